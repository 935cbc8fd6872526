"""The page that compares the paper's results with ours states the committed figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/reference/paper.md").read_text("utf-8")


def _row(claim: str) -> str:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {claim} |")]
    return row.split("|")[3]


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        ("the conductor beats its best worker", "best_single"),
        ("it beats mixture of agents", "moa"),
        ("it beats self-reflection", "reflection"),
        ("it comes close to the ceiling", "ceiling"),
        ("a second round helps", "two_rounds"),
        ("an untrained conductor is worse", "baseline-conductor"),
    ],
)
def test_a_row_states_the_committed_figures(claim: str, other: str) -> None:
    table = json.loads((ROOT / "results/etudes.json").read_text("utf-8"))
    for key in ("conductor", other):
        assert f"{table[key]['value']:.3f}" in _row(claim)


def test_the_gain_of_a_second_round_on_flaky_workers() -> None:
    table = json.loads((ROOT / "results/etudes.json").read_text("utf-8"))
    (row,) = [row for row in table["rows"] if row["strategy"] == "recursion, flaky pool"]
    after = row["accuracy"]
    before = after - table["recursion_gain"]["value"]
    assert f"{before:.3f} to {after:.3f}" in _row("a second round helps")


def test_the_everyday_questions() -> None:
    (row,) = json.loads((ROOT / "results/everyday-100.json").read_text("utf-8"))["rows"]
    low, high = (round(100 * bound) for bound in row["interval"])
    assert f"answers {round(100 * row['accuracy'])} of 100" in PAGE
    assert f"interval {low} to {high}" in PAGE
