from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.chaos.report import ChaosFigures, ChaosRow, row_of

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
    document = json.loads(json.dumps(figures.document()))
    assert (document["runs"], document["lost"], document["answered_share"]) == (120, 2, 0.995)
    for name in ("stuck", "usage_mismatch", "repeated_steps", "budget_overruns"):
        assert document[name] == 0
    assert [part["name"] for part in document["parts"]] == ["faults", "kills"]
    assert document["holds"] is False


def test_a_peer_breaks_no_promise_of_ours() -> None:
    assert ChaosFigures(parts=[ROW], peers=[replace(ROW, lost=9)]).holds


def test_a_part_that_was_not_tried_breaks_no_promise_and_is_named() -> None:
    untried = ChaosRow(name="replicas", runs=0, not_tried="needs Postgres")
    figures = ChaosFigures(parts=[ROW, untried])
    assert figures.holds
    document = figures.document()
    assert (document["holds"], document["not_tried"]) == (True, ["replicas"])
    assert [part["not_tried"] for part in document["parts"]] == ["", "needs Postgres"]
    assert not ChaosFigures(parts=[replace(ROW, lost=1), untried]).holds


def test_a_row_passes_between_processes_unchanged() -> None:
    row = replace(ROW, broken=("one", "two"), not_tried="no", figures={"kills": 3})
    assert row_of(json.loads(json.dumps(row.document()))) == row


def test_a_part_that_is_run_again_by_itself_stands_beside_the_others() -> None:
    kills = ChaosRow(name="kills", runs=20)
    before = ChaosFigures(parts=[replace(ROW, lost=3), kills], seed=7).document()
    again = ChaosFigures(parts=[ROW], seed=7)
    assert again.beside(before).parts == (ROW, kills)
    assert again.beside({**before, "seed": 8}) == again
    assert again.beside({**before, "quick": True}) == again


def test_each_row_is_a_line_of_the_table_with_what_broke() -> None:
    rows = [ROW, replace(ROW, name="soak", broken=("files grew", "tasks grew"))]
    figures = ChaosFigures(parts=rows, peers=[replace(ROW, name="LiteLLM 1.83.14", runs=200_000)])
    head, _, faults, soak, peer, _, last = figures.as_text().splitlines()
    assert head.startswith("| part | runs | lost | stuck | answered | usage | repeated | overruns")
    assert faults == "| faults | 100 | 0 | 0 | 99.50% | 0 | 0 | 0 | 2 | all well |"
    assert soak.endswith("| files grew; tasks grew; all well |")
    assert peer.startswith("| LiteLLM 1.83.14 | 200,000 |")
    assert last.endswith("Every promise held: NO.")


def test_why_a_part_was_not_tried_is_printed_to_the_letter() -> None:
    command = "/a/rather/long/place/python -m pip install -e '/a/rather/long/place[postgres]'"
    remedy = f"needs the extra postgres ({command})"
    figures = ChaosFigures(parts=[ChaosRow(name="replicas", runs=0, not_tried=remedy)])
    assert f" not tried: {remedy} |" in figures.as_text()
