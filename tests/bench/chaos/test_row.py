from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.report import ChaosRow, figures_text, summarize

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "benchmarks" / "chaos" / "README.md"
ROW = ChaosRow(name="faults", runs=100, answered_share=0.995, seconds=1.5, note="all well")


def document_of(rows: Sequence[ChaosRow], seed: int = 7) -> dict[str, Any]:
    """Return the document of these rows as it is read from a file."""
    found: dict[str, Any] = json.loads(json.dumps(summarize(rows, seed, quick=False)))
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")]


@pytest.mark.parametrize(
    "broken",
    [
        replace(ROW, lost=1),
        replace(ROW, stuck=1),
        replace(ROW, usage_mismatch=1),
        replace(ROW, repeated_steps=1),
        replace(ROW, budget_overruns=1),
        replace(ROW, answered_share=0.98),
        replace(ROW, broken=("memory grows",)),
    ],
)
def test_a_row_with_anything_broken_does_not_hold(broken: ChaosRow) -> None:
    assert ROW.holds
    assert not broken.holds
    assert not document_of([ROW, broken])["holds"]


def test_a_part_without_a_fallback_promises_no_share() -> None:
    assert replace(ROW, answered_share=None).holds


def test_the_line_of_json_has_the_sums_and_the_lowest_share() -> None:
    document = document_of([ROW, ChaosRow(name="kills", runs=20, lost=2, answered_share=1.0)])
    assert (document["runs"], document["lost"], document["answered_share"]) == (120, 2, 0.995)
    for name in ("stuck", "usage_mismatch", "repeated_steps", "budget_overruns"):
        assert document[name] == 0
    assert [part["name"] for part in document["parts"]] == ["faults", "kills"]
    assert document["holds"] is False


def test_a_skipped_part_is_named_and_fails_no_requirement() -> None:
    untried = ChaosRow(name="replicas", runs=0, not_tried="needs a | b")
    document = document_of([ROW, untried])
    assert (document["holds"], document["not_tried"]) == (True, ["replicas"])
    assert not document_of([replace(ROW, lost=1), untried])["holds"]
    head, _, _, line, _, words = figures_text(document).splitlines()
    assert cells(line) == ["replicas", *[""] * 8, "not tried: needs a \\| b"]
    assert line.replace("\\|", "").count("|") == head.count("|")
    assert words.endswith("Every promise that was tried held: yes. Not tried: replicas.")


def test_each_row_is_a_line_of_the_table_with_what_broke() -> None:
    rows = [replace(ROW, runs=5000), replace(ROW, name="soak", broken=("files grew", "it | grew"))]
    head, rule, faults, soak, _, last = figures_text(document_of(rows, seed=4)).splitlines()
    assert cells(head)[:5] == ["part", "runs", "lost", "stuck", "answered"]
    assert head.count("|") == rule.count("|") == 11
    assert cells(faults) == [
        *("faults", "5,000", "0", "0", "99.50%", "0", "0", "0", "2"),
        "all well",
    ]
    assert cells(soak)[-1] == "files grew; it \\| grew; all well"
    assert last.startswith("With seed 4, everything")
    assert last.endswith("Every promise held: NO.")


def test_the_page_has_the_figures_of_the_committed_results() -> None:
    results = json.loads((ROOT / "results" / "chaos.json").read_text("utf-8"))
    assert figures_text(results) in PAGE.read_text("utf-8")
