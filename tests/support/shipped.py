"""Adapters that ship with Podium, for as long as a test lasts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podium._util.files import sha256_file
from podium.workers.local import sources as adapters
from support.local_weights import MODEL

Ship = Callable[..., Path]


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ship:
    """Puts a file among the adapters that Podium ships, in place of the real ones."""
    directory = tmp_path / "adapters"
    directory.mkdir()
    manifest = directory / adapters.MANIFEST
    manifest.touch()
    monkeypatch.setattr(adapters, "DIRECTORY", directory)

    def ship(name: str, content: bytes = b"GGUF", **changes: object) -> Path:
        path = directory / f"{name}.gguf"
        path.write_bytes(content)
        entry = {
            "name": name,
            "file": path.name,
            "base": MODEL,
            "template": "chatml",
            "sha256": sha256_file(path),
            "bytes": len(content),
            "licence": "Apache-2.0",
            "trained_by": "nobody",
            "description": "random",
            **changes,
        }
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in entry.items()]
        with manifest.open("a", encoding="utf-8") as file:
            file.writelines(["[[adapter]]\n", *lines])
        return path

    return ship
