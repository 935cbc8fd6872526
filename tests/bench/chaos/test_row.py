from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from podium.bench.chaos.row import ChaosFigures, ChaosRow, row_of

ROW = ChaosRow(name="faults", runs=100, answered_share=0.995, seconds=1.5, note="all well")


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
    assert not ChaosFigures(parts=[ROW, broken]).holds


def test_a_part_without_a_fallback_promises_no_share() -> None:
    assert replace(ROW, answered_share=None).holds


def test_the_line_of_json_has_the_sums_and_the_lowest_share() -> None:
    figures = ChaosFigures(
        parts=[ROW, ChaosRow(name="kills", runs=20, lost=2, answered_share=1.0)],
        peers=[ChaosRow(name="LiteLLM", runs=100, lost=50, answered_share=0.5)],
        seed=7,
    )
    document = json.loads(figures.as_json())
    assert (document["runs"], document["lost"], document["answered_share"]) == (120, 2, 0.995)
    for name in ("stuck", "usage_mismatch", "repeated_steps", "budget_overruns"):
        assert document[name] == 0
    assert [part["name"] for part in document["parts"]] == ["faults", "kills"]
    assert document["holds"] is False


def test_a_peer_breaks_no_promise_of_ours() -> None:
    assert ChaosFigures(parts=[ROW], peers=[replace(ROW, lost=9)]).holds


def test_a_row_passes_between_processes_unchanged() -> None:
    row = replace(ROW, broken=("one", "two"), figures={"kills": 3})
    assert row_of(json.loads(json.dumps(row.document()))) == row


def test_the_table_has_a_line_for_each_part_and_says_what_is_broken() -> None:
    console = Console(file=StringIO(), width=160)
    rows = [ROW, replace(ROW, name="soak", broken=("files grew",))]
    console.print(ChaosFigures(parts=rows, peers=[replace(ROW, name="LiteLLM")]).as_table())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("faults", "soak", "LiteLLM", "files grew", "99.50%", "NO", "beside"):
        assert words in text
