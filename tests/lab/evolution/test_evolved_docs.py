"""What the page on evolved conductors shows is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from podium.conductors.evolved_turns import CoordinatorDescription
from podium.config.schema import ConductorTable
from podium_lab.evolution.hidden_states import LONGEST_TEXT

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "lab" / "evolved.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)
    return str(found)


def test_the_documented_table_is_one() -> None:
    text = re.sub(r"^# (\w+ = )", r"\1", block("toml"), flags=re.M)
    table = ConductorTable.model_validate(tomllib.loads(text)["conductor"])
    assert (table.kind, table.rounds) == ("evolved", 5)


def test_the_documented_sizes_are_right() -> None:
    five = CoordinatorDescription(workers=tuple("abcde"), base="smollm2-135m-instruct", width=576)
    assert f"are {five.size:,} numbers" in PAGE
    assert f"more than {LONGEST_TEXT:,} tokens" in PAGE


def test_the_documented_trainings_are_those_that_are_measured() -> None:
    """Every directory that is measured is made by a command of this page."""
    made = set(re.findall(r"--output (trained/\S+)", PAGE))
    (command,) = re.findall(r"^podium eval run etudes (.*?)^```$", PAGE, re.S | re.M)
    measured = re.findall(r"evolved:(trained/[^/]+)/coordinator", command)
    assert measured == ["trained/etudes-evolved", *sorted(made, key=measured.index)]


def test_the_documented_program_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("numpy", "torch", "transformers", "gguf"):
        pytest.importorskip(package)
    from support.evolved import coordinator

    monkeypatch.chdir(tmp_path)
    coordinator().save(tmp_path / "trained" / "etudes-evolved" / "coordinator")
    names: dict[str, object] = {}
    exec(block("python"), names)
    assert names["conductor"].name == f"evolved({coordinator().fingerprint})"  # type: ignore[attr-defined]
