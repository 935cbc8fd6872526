"""The judgements of the chaos bench find what is planted, so that its zeros mean something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.chaos.faults import Billed, is_lost, misreports, overruns
from benchmarks.chaos.replicas import Kills, Spending
from benchmarks.chaos.upstream import StepName
from benchmarks.chaos.workload import has_ended
from podium.core.budget import Budget, Spent
from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Usage
from podium.core.run import Attempt, Run
from podium.core.workflow import Step
from support.runs_on_record import run_with_calls

USED = Usage(10, 5, 0, 0, 0)
COST = 0.25


def a_run(*attempts: Attempt) -> Run:
    """An answered run of one step that took these calls."""
    return run_with_calls(
        "run_1",
        (Step("solo", "Do it"), attempts),
        question="chaos-1: why?",
        answer="42",
        budget=Budget(calls=2),
        spent=Spent(calls=len(attempts)),
    )


def a_call(usage: Usage = USED, cost: float | None = COST) -> Attempt:
    return Attempt("solo", usage, cost, 0.0, 1.0)


BILLED = Billed("solo", USED, COST)
HIDDEN = Billed("solo", UNKNOWN_USAGE, None)


def test_a_run_that_is_kept_as_it_ended_is_not_lost() -> None:
    run = a_run(a_call())
    assert not is_lost(run, a_run(a_call()))
    assert not is_lost(run, run, streamed="42")


def test_a_run_that_is_missing_or_kept_in_part_is_lost() -> None:
    run = a_run(a_call())
    assert is_lost(run, None)
    assert is_lost(run, replace(run, rounds=()))
    assert is_lost(run, replace(run, answer="43"))


def test_a_run_whose_stream_differed_from_its_answer_is_lost() -> None:
    run = a_run(a_call())
    assert is_lost(run, run, streamed="4")


@pytest.mark.parametrize("status", ["running", "interrupted", "waiting"])
def test_a_run_in_progress_has_not_ended(status: str) -> None:
    assert not has_ended(replace(a_run(), status=status))  # type: ignore[arg-type]


def test_a_run_that_failed_has_ended_only_where_it_says_why() -> None:
    failed = replace(a_run(), status="failed", answer=None)
    assert not has_ended(failed)
    assert has_ended(replace(failed, error="nobody answered"))


def test_a_bill_that_agrees_call_by_call_is_right_though_its_sum_is_unknown() -> None:
    run = a_run(a_call(), a_call(UNKNOWN_USAGE, None))
    assert not misreports(run, [HIDDEN, BILLED])
    assert not misreports(a_run(a_call()), [BILLED])


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [BILLED, BILLED],
        [HIDDEN],
        [Billed("other", USED, COST)],
        [Billed("solo", Usage(10, 6, 0, 0, 0), COST)],
        [Billed("solo", USED, COST + 2e-9)],
        [Billed("solo", USED, None)],
    ],
)
def test_a_bill_that_is_wrong_by_a_call_a_token_or_a_fraction_is_found(calls: list[Billed]) -> None:
    assert misreports(a_run(a_call()), calls)


def test_an_unknown_part_that_hides_a_wrong_one_is_found() -> None:
    run = a_run(a_call(UNKNOWN_USAGE, None), a_call(Usage(11, 5, 0, 0, 0)))
    assert misreports(run, [HIDDEN, BILLED])


def test_a_cap_on_calls_is_overrun_by_the_runs_count_or_by_the_workers() -> None:
    run = a_run(a_call(), a_call())
    assert not overruns(run, 2)
    assert overruns(run, 3)
    assert overruns(replace(run, spent=Spent(calls=3)), 2)
    assert overruns(a_run(a_call(), a_call(), a_call()), 0)


def test_a_step_on_record_that_is_asked_again_is_found() -> None:
    first, second = StepName("chaos-1", "step-0"), StepName("chaos-1", "step-1")
    kills = Kills()
    kills.note([first], {first: 2, second: 1})
    assert kills.find_repeated({first: 2, second: 5}) == []
    kills.note([first, second], {first: 3, second: 5})
    assert kills.find_repeated({first: 3, second: 5}) == [first]


def test_money_beyond_the_cap_is_an_overrun_unless_calls_in_flight_explain_it() -> None:
    spending = Spending(cap=1.0, spent=1.3, unsettled=0.2, most_in_flight=0.1)
    assert spending.beyond == pytest.approx(0.3)
    assert not spending.overran
    assert spending._replace(spent=1.31).overran
    assert not spending._replace(spent=0.9).overran


def test_a_call_that_an_open_circuit_refused_counts_nowhere() -> None:
    refused = Attempt("solo", NO_USAGE, 0.0, 1.0, 1.0, error="circuit open for solo")
    run = a_run(a_call(), a_call(), refused)
    assert not misreports(run, [BILLED, BILLED])
    assert not overruns(replace(run, spent=Spent(calls=2)), 2)
