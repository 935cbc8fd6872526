from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.errors import UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Message, ResponseOptions, Tool, ToolCall, ToolResult, assistant
from podium.core.run import Round, Run, RunStatus, StepRecord
from podium.core.workflow import Step, Workflow
from podium.engine.tool_calls import (
    apply_results,
    awaits_results,
    tool_call_ids,
    with_answers,
)

ONE, TWO = ToolCall("1", "look", "{}"), ToolCall("2", "count", "{}")


def step(index: int, *turns: Message, nested: tuple[Run, ...] = ()) -> StepRecord:
    return StepRecord(0, index, "a", "x", (), "waiting", "", None, 0, 1, turns=turns, nested=nested)


def waiting(*steps: StepRecord) -> Run:
    return Run(
        id="run_1",
        question="why?",
        status="waiting",
        pool=Pool((WorkerProfile(name="a"),)),
        conductor="test",
        created_at="2026-01-01T00:00:00+00:00",
        rounds=(Round(0, Workflow(tuple(Step("a", "x") for _ in steps)), steps),),
    )


def calling(*calls: ToolCall) -> Message:
    return Message("assistant", calls)


def test_each_result_goes_to_the_step_that_called_and_to_no_other() -> None:
    run = apply_results(
        waiting(step(0, calling(ONE)), step(1, calling(TWO))),
        (ToolResult("2", "two"), ToolResult("1", "one")),
    )
    assert [s.turns[-1].parts for s in run.steps] == [
        (ToolResult("1", "one"),),
        (ToolResult("2", "two"),),
    ]
    assert run.pending_tool_calls == ()


def test_the_results_of_one_turn_are_one_message_in_the_order_of_its_calls() -> None:
    turns = (calling(ONE, TWO), Message("tool", (ToolResult("2", "two"),)))
    (_, result) = with_answers(turns, {"1": ToolResult("1", "one")})
    assert result == Message("tool", (ToolResult("1", "one"), ToolResult("2", "two")))


def test_a_result_finds_its_step_in_a_nested_run() -> None:
    outer = waiting(step(0, nested=(waiting(step(0, calling(ONE))),)))
    run = apply_results(outer, (ToolResult("1", "one"),))
    assert run.steps[0].nested[0].steps[0].turns[-1].parts == (ToolResult("1", "one"),)
    assert run.pending_tool_calls == ()


@pytest.mark.parametrize("nests", [False, True])
def test_the_same_results_again_change_nothing_and_others_are_refused(nests: bool) -> None:
    run = waiting(step(0, calling(ONE, TWO)))
    run = waiting(step(0, nested=(run,))) if nests else run
    results = (ToolResult("1", "one"), ToolResult("2", "two", is_error=True))
    given = replace(apply_results(run, results), status="interrupted")
    assert apply_results(given, results) == given
    for changed in (ToolResult("2", "two"), ToolResult("2", "three", is_error=True)):
        with pytest.raises(UsageError, match="already has another result for the call '2'"):
            apply_results(given, (changed,))


def test_under_guardrails_a_result_for_the_same_call_is_the_same_again() -> None:
    """What is on record is what they left of it."""
    run = replace(waiting(step(0, calling(ONE))), guardrails=("redaction",))
    given = replace(apply_results(run, (ToolResult("1", "[e-mail 1]"),)), status="interrupted")
    again = (ToolResult("1", "ada@example.org"),)
    assert apply_results(given, again) == given


def test_results_sent_again_do_not_stand_for_those_of_later_calls() -> None:
    given = apply_results(waiting(step(0, calling(ONE))), (ToolResult("1", "one"),))
    run = waiting(step(0, *given.steps[0].turns, calling(TWO)))
    with pytest.raises(UsageError, match="waits for the results of 2"):
        apply_results(run, (ToolResult("1", "one"),))


@pytest.mark.parametrize(
    ("status", "goes_on"),
    [("waiting", True), ("interrupted", True), ("failed", True), ("answered", False)],
)
def test_results_can_be_sent_for_a_run_that_was_cut_off_with_them(
    status: RunStatus, goes_on: bool
) -> None:
    response_options = ResponseOptions(tools=(Tool("look", "", {}),))
    run = replace(waiting(step(0, calling(ONE))), response_options=response_options)
    given = apply_results(run, (ToolResult("1", "one"),))
    assert awaits_results(replace(given, status=status)) is goes_on
    own = replace(given, response_options=ResponseOptions())
    assert awaits_results(replace(own, status=status)) is (status == "waiting")


@pytest.mark.parametrize(
    ("results", "problem"),
    [
        ((ToolResult("9", "x"),), "unexpected result for the call '9': run_1 waits for 1, 2"),
        ((ToolResult("1", "x"), ToolResult("1", "y")), "two results for the call '1'"),
        ((ToolResult("1", "x"),), r"run_1 waits for the results of 2 \(count\); give them all"),
        ((), r"run_1 waits for the results of 1 \(look\), 2 \(count\)"),
    ],
)
def test_unknown_doubled_and_missing_results_are_refused_by_their_ids(
    results: tuple[ToolResult, ...], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        apply_results(waiting(step(0, calling(ONE, TWO))), results)


def test_an_interrupted_run_resumes_while_steps_wait() -> None:
    run = replace(waiting(step(0, calling(ONE))), status="interrupted")
    assert apply_results(run, ()) == run


def test_a_run_that_waits_for_nothing_takes_no_results() -> None:
    with pytest.raises(UsageError, match="'1': run_1 waits for none"):
        apply_results(waiting(step(0, assistant("said"))), (ToolResult("1", "x"),))


def test_the_calls_of_the_conversation_before_and_of_nested_runs_are_known() -> None:
    inner = replace(waiting(step(0, calling(TWO))), history=(calling(ToolCall("0", "old", "{}")),))
    assert tool_call_ids(waiting(step(0, calling(ONE), nested=(inner,)))) == {"0", "1", "2"}
