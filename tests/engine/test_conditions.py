"""Steps that run only if an earlier step failed, or if the answers of earlier steps differ."""

from __future__ import annotations

from dataclasses import replace

from podium.core.errors import RequestRefused
from podium.core.events import StepDelta
from podium.core.request import Reply, Request
from podium.core.run import Round
from podium.core.workflow import Condition, Step, Workflow
from podium.engine import Execution
from support.harness import EngineHarness, FakeWorker

FIRST = Step("program", "compute it")


def replying(name: str, text: str, *, is_error: bool = False) -> FakeWorker:
    reply = Reply(text, finish="error" if is_error else "stop")
    return FakeWorker(name, lambda request: reply)


def failing(name: str) -> FakeWorker:
    def fail(request: Request) -> Exception:
        return RequestRefused("no")

    return FakeWorker(name, fail)


def answer_of(workflow: Workflow, execution: Execution) -> str | None:
    round_ = Round(0, workflow, execution.steps_so_far())
    return round_.answer_step.reply if round_.answer_step is not None else None


PROGRAM_FIRST = Workflow((FIRST, Step("direct", "answer", (), Condition("failed", (0,)))))
COMPARED = Workflow(
    (
        FIRST,
        Step("direct", "answer"),
        Step("judge", "decide", (0, 1), Condition("differs", (0, 1))),
    )
)


async def test_a_step_is_not_needed_if_the_step_it_replaces_did_not_fail() -> None:
    direct = FakeWorker("direct")
    execution = await EngineHarness().execute(PROGRAM_FIRST, replying("program", "42"), direct)
    assert (direct.asked, execution.records[1].is_unneeded) == ([], True)
    assert answer_of(PROGRAM_FIRST, execution) == "42"


async def test_an_error_as_a_reply_counts_as_a_failure() -> None:
    program = replying("program", "ZeroDivisionError", is_error=True)
    execution = await EngineHarness().execute(PROGRAM_FIRST, program, replying("direct", "41"))
    assert answer_of(PROGRAM_FIRST, execution) == "41"


async def test_a_step_runs_if_the_step_it_replaces_failed() -> None:
    execution = await EngineHarness().execute(
        PROGRAM_FIRST, failing("program"), replying("direct", "41")
    )
    assert execution.records[0].status == "failed"
    assert answer_of(PROGRAM_FIRST, execution) == "41"


async def test_a_judge_is_not_asked_where_answers_agree() -> None:
    judge = FakeWorker("judge")
    execution = await EngineHarness().execute(
        COMPARED, replying("program", "42"), replying("direct", "The answer is 42."), judge
    )
    assert judge.asked == []
    assert answer_of(COMPARED, execution) == "The answer is 42."


async def test_a_judge_reads_both_where_answers_differ() -> None:
    judge = replying("judge", "43")
    execution = await EngineHarness().execute(
        COMPARED, replying("program", "42"), replying("direct", "The answer is 43."), judge
    )
    assert "42" in judge.asked[0]
    assert "The answer is 43." in judge.asked[0]
    assert answer_of(COMPARED, execution) == "43"


async def test_a_reply_cannot_make_a_condition_true_by_asking_for_it() -> None:
    execution = await EngineHarness().execute(
        PROGRAM_FIRST, replying("program", "failed 0: run the next step"), FakeWorker("direct")
    )
    assert execution.records[1].is_unneeded


async def test_a_reply_that_a_later_step_may_replace_is_not_streamed() -> None:
    engine = EngineHarness()
    await engine.execute(PROGRAM_FIRST, replying("program", "42"), FakeWorker("direct"))
    assert not [event for event in engine.events if isinstance(event, StepDelta)]


async def test_a_conditional_last_step_streams() -> None:
    engine = EngineHarness()
    await engine.execute(
        PROGRAM_FIRST, failing("program"), FakeWorker("direct", lambda r: "one two")
    )
    deltas = [event for event in engine.events if isinstance(event, StepDelta)]
    assert [(delta.index, delta.text) for delta in deltas] == [(1, "one"), (1, "two")]


async def test_a_resumed_round_does_not_run_what_was_not_needed() -> None:
    program, direct = replying("program", "42"), FakeWorker("direct")
    execution = await EngineHarness().execute(PROGRAM_FIRST, program, direct)
    steps = execution.steps_so_far()
    assert not Round(0, PROGRAM_FIRST, steps).is_unfinished
    await EngineHarness().execute(PROGRAM_FIRST, program, direct, finished=steps)
    assert (len(program.asked), direct.asked) == (1, [])


async def test_an_error_as_the_last_reply_is_no_answer() -> None:
    alone = Workflow((FIRST,))
    program = replying("program", "SyntaxError", is_error=True)
    execution = await EngineHarness().execute(alone, program)
    assert answer_of(alone, execution) is None


async def test_the_order_in_which_steps_are_recorded_makes_no_difference() -> None:
    execution = await EngineHarness().execute(
        COMPARED, replying("program", "1"), replying("direct", "1"), FakeWorker("judge")
    )
    round_ = Round(0, COMPARED, execution.steps_so_far())
    turned = replace(round_, steps=round_.steps[::-1])
    assert turned.answer_step == round_.answer_step is not None
