from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos import kills
from benchmarks.chaos.checks import Kills, StepName
from benchmarks.chaos.client import Response, post
from benchmarks.chaos.kills import judged, measure_kills, misbilled, overspent
from benchmarks.chaos.upstream import (
    ANSWER,
    CallCounts,
    chaos_upstream,
    read_counts,
    tokens_of,
)
from benchmarks.chaos.workload import (
    DEEPER,
    INNER,
    STEPS,
    budget_of,
    calls_needed,
    mark_of,
    question_of,
    steps_done,
    workflow_of,
    write_configuration,
)
from podium.config import discover_settings
from podium.core.errors import ConfigError
from podium.core.request import Usage
from podium.core.run import Attempt, Run
from podium.core.workflow import Step
from support.runs_on_record import run_with_calls

MARK = mark_of(question_of(0))


def a_run(*workers: str, usage: Usage | None = None, cost: float | None = None) -> Run:
    """An answered run of the first question whose steps these workers did, one call each."""
    read, written = tokens_of(MARK)
    attempt = Attempt(
        "solo",
        usage or Usage(read, written, 0, 0, 0),
        (read * 1.0 + written * 4.0) / 1e6 if cost is None else cost,
        0.0,
        1.0,
    )
    steps = [(Step(worker, "Do it"), (attempt,)) for worker in workers]
    budget = budget_of(workflow_of(0, 1))
    return run_with_calls("run_1", *steps, question=question_of(0), answer=ANSWER, budget=budget)


async def test_runs_outlive_the_kills_of_their_process_and_no_step_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kills, "MAX_CALLS_A_LIFE", 2)
    monkeypatch.setattr(kills, "SHARE_KILLED_AT_START", 0)
    row = await measure_kills(2, seed=5)
    assert row.holds, row
    assert row.figures["kills"] == 2


def test_a_step_on_record_that_is_asked_again_is_counted() -> None:
    step = StepName(MARK, STEPS[0])
    kills = Kills()
    kills.journal.note([step], {step: 1})
    assert judged(1, {MARK: [a_run("step-0")]}, CallCounts({step: 1}, {}), kills, 1.0).holds
    row = judged(1, {MARK: [a_run("step-0")]}, CallCounts({step: 2}, {}), kills, 1.0)
    assert row.repeated_steps == 1


def test_a_question_without_a_run_is_lost_and_one_with_two_is_reported() -> None:
    asked = CallCounts({}, {})
    assert judged(1, {}, asked, Kills(), 1.0).lost == 1
    twice = judged(1, {MARK: [a_run("step-0")] * 2}, asked, Kills(), 1.0)
    assert twice.broken == ("1 questions have more than one run",)


def test_a_run_still_in_progress_at_the_end_is_stuck() -> None:
    left = replace(a_run("step-0"), status="running", answer=None)
    assert judged(1, {MARK: [left]}, CallCounts({}, {}), Kills(), 1.0).stuck == 1


def test_usage_on_record_that_the_upstream_did_not_say_is_found() -> None:
    assert not misbilled(a_run("step-0"), MARK)
    assert misbilled(a_run("step-0", usage=Usage(1, 1, 0, 0, 0)), MARK)
    assert misbilled(a_run("step-0", cost=0.5), MARK)


def test_more_calls_than_a_run_may_make_are_found_beyond_those_that_kills_hid() -> None:
    run = a_run("step-0")
    cap = run.budget.calls
    assert cap is not None
    assert not overspent(run, cap + len(STEPS), hits=0)
    assert overspent(run, cap + len(STEPS) + 1, hits=0)
    assert overspent(a_run(*(f"step-{n}" for n in range(cap + 1))), 0, hits=9)


def test_the_same_question_has_the_same_workflow_and_never_a_worker_twice() -> None:
    for index in range(40):
        workflow = workflow_of(index, 3)
        assert workflow == workflow_of(index, 3)
        workers = [step.worker for step in workflow.steps]
        assert len(workers) == len(set(workers))
        nested = DEEPER in workers
        assert calls_needed(workflow) == len(workers) + nested * (len(INNER) - 1)


def test_steps_of_nested_runs_are_among_those_that_are_done() -> None:
    outer = a_run(DEEPER, "step-1")
    steps = outer.rounds[0].steps
    nested = replace(steps[0], nested=(a_run("inner-0"),), status="cancelled")
    run = replace(outer, rounds=(replace(outer.rounds[0], steps=(nested, steps[1])),))
    assert steps_done(run, MARK) == [StepName(MARK, "inner-0"), StepName(MARK, "step-1")]


async def test_the_scene_is_a_configuration_that_podium_reads(tmp_path: Path) -> None:
    settings = await discover_settings({}, config=write_configuration(tmp_path, 9))
    assert {*STEPS, *INNER, DEEPER} == set(settings.pool.names)


def test_a_question_without_a_mark_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a question with a mark"):
        mark_of("why?")


async def test_the_upstream_counts_what_it_is_asked_by_mark_and_model() -> None:
    async with chaos_upstream() as port:
        for stream in (False, True):
            document = {
                "model": "step-0",
                "messages": [{"role": "user", "content": question_of(0)}],
                "stream": stream,
            }
            assert await post(port, document, {}, 10) == Response(200, ANSWER)
        assert (await read_counts(port)).steps == {StepName(MARK, "step-0"): 2}


async def test_a_request_with_a_partial_answer_gets_the_rest() -> None:
    async with chaos_upstream() as port:
        begun = ANSWER[:9]
        messages = [
            {"role": "user", "content": MARK},
            {"role": "assistant", "content": begun},
            {"role": "user", "content": "go on"},
        ]
        for stream in (False, True):
            document = {"model": "first", "messages": messages, "stream": stream}
            assert begun + (await post(port, document, {}, 10)).text == ANSWER
