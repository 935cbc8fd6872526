"""Shipping an adapter: its file, and what the manifest tells of it."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from podium._util.files import sha256_file
from podium.train import gguf as export
from podium.workers.local.sources import embedded_adapter, embedded_adapters, verify_adapter
from support.shipped import Ship, ship

__all__ = ["ship"]

SCRIPT = Path(__file__).parents[2] / "scripts" / "ship.py"


def test_an_adapter_takes_the_place_of_the_one_of_its_name_and_the_others_stay(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exported(trained: Path, output: Path, *, base: str) -> None:
        output.write_text(f"GGUF of {trained} over {base}", "utf-8")

    monkeypatch.setattr(export, "export_adapter", exported)
    for name in ("first", "second", "third"):
        ship(name, description=f'the "{name}"')
    first, second, third = embedded_adapters()
    runpy.run_path(str(SCRIPT))["ship"]("second", Path("trained/second"), "recipes/études.toml")
    assert embedded_adapters()[::2] == (first, third)
    now = embedded_adapter("embedded/second")
    assert verify_adapter(now).read_text("utf-8") == f"GGUF of trained/second over {second.base}"
    assert (now.bytes, now.sha256) == (now.path.stat().st_size, sha256_file(now.path))
    assert (now.trained_by, now.description) == ("recipes/études.toml", second.description)


def test_a_lower_rank_is_the_best_approximation() -> None:
    rng = np.random.default_rng(1)
    down, up = rng.normal(size=(6, 40)), rng.normal(size=(30, 6))
    cut_pair = runpy.run_path(str(SCRIPT))["cut_pair"]
    assert np.allclose(np.matmul(*cut_pair(down, up, 6)[::-1]), up @ down)
    lower_down, lower_up = cut_pair(down, up, 2)
    assert (lower_down.shape, lower_up.shape) == ((2, 40), (30, 2))
    left, values, right = np.linalg.svd(up @ down)
    assert np.allclose(lower_up @ lower_down, left[:, :2] * values[:2] @ right[:2])
