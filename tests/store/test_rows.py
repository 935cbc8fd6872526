from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core.errors import StoreError, UnreadableRun
from podium.core.request import Usage
from podium.core.run import Run
from podium.store.sql.tables import (
    NO_INDEX,
    StoredDocument,
    build_run,
    round_row,
    run_row,
    step_row,
    storable_text,
)

NOW = "2026-01-02T03:04:06.000+00:00"


def pieces(run: Run) -> list[StoredDocument]:
    rounds = [round_row(run.id, round_) for round_ in run.rounds]
    steps = [step_row(run.id, step) for step in run.steps]
    return sorted(
        [
            StoredDocument(NO_INDEX, NO_INDEX, run_row(run, NOW)["document"]),
            *(StoredDocument(row["round"], NO_INDEX, row["document"]) for row in rounds),
            *(StoredDocument(row["round"], row["step"], row["document"]) for row in steps),
        ]
    )


@given(data=st.data())
def test_any_run_can_be_cut_into_pieces_and_put_together_again(
    runs: st.SearchStrategy[Run], data: st.DataObject
) -> None:
    run = data.draw(runs)
    cut = pieces(run)
    assert build_run(cut) == run
    assert all(piece.document.isascii() for piece in cut)


def test_a_document_holds_none_of_what_other_rows_hold(make_run: Callable[..., Run]) -> None:
    run = make_run()
    assert "rounds" not in json.loads(run_row(run, NOW)["document"])
    assert "steps" not in json.loads(round_row(run.id, run.rounds[0])["document"])


def test_two_halves_of_a_character_come_back_as_the_character(make_run: Callable[..., Run]) -> None:
    run = make_run(question="half \ud83d alone, both \ud83d\ude00 together")
    assert build_run(pieces(run)).question == "half \ud83d alone, both 😀 together"


def test_plain_text_has_a_mark_where_no_database_could_hold_the_character() -> None:
    assert storable_text("a\0b\ud800c 😀") == "a\ufffdb\ufffdc 😀"


def test_totals_are_unknown_while_a_run_is_running(make_run: Callable[..., Run]) -> None:
    totals = ("cost_usd", "total_tokens", "calls", "seconds")
    running, answered = (
        run_row(make_run(status=status), NOW) for status in ("running", "answered")
    )
    assert [running[name] for name in totals] == [None] * 4
    assert [answered[name] for name in totals] == [0.75, 45, 3, 1.5]


def test_a_count_that_no_column_can_hold_is_kept_in_the_document_only(
    make_run: Callable[..., Run],
) -> None:
    run = make_run(steps=1)
    step = run.steps[0]
    absurd = replace(step.attempts[0], usage=Usage(10**30, 1))
    run = replace(run, rounds=(replace(run.rounds[0], steps=(replace(step, attempts=(absurd,)),)),))
    assert run_row(run, NOW)["total_tokens"] is None
    assert build_run(pieces(run)).usage.total_tokens == 10**30 + 1


def test_a_step_without_its_round_is_the_stores_fault(make_run: Callable[..., Run]) -> None:
    cut = pieces(make_run())
    lost = next(piece for piece in cut if piece.round == 0 and piece.step == NO_INDEX)
    with pytest.raises(UnreadableRun, match="round 0 of its steps is missing"):
        build_run(piece for piece in cut if piece is not lost)


@pytest.mark.parametrize("document", ['{"id": "run_1", "quest', "[]", "{}", '{"version": 1}'])
def test_a_damaged_document_is_the_stores_fault(document: str) -> None:
    with pytest.raises(StoreError, match="this run"):
        build_run([StoredDocument(NO_INDEX, NO_INDEX, document)])
