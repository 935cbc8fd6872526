from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from podium.core.budget import Budget
from podium.core.errors import RequestRefused, Unavailable
from podium.core.events import StepDelta, StepDone, StepRetried, StepStarted
from podium.core.pool import Limits
from podium.core.request import NO_USAGE, Reply, Request, Usage, user
from podium.core.run import Round, StepRecord
from podium.core.workflow import Access, Step, Workflow
from support.harness import Actor, EngineHarness


def workflow(*access: Access, worker: str = "a") -> Workflow:
    return Workflow(tuple(Step(worker, f"subtask {i}", entry) for i, entry in enumerate(access)))


def failing(request: Request) -> Exception:
    return RequestRefused("no")


async def until(condition: object) -> None:
    """Let other tasks run until the condition holds."""
    assert callable(condition)
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came to hold")


async def test_a_step_starts_when_its_inputs_are_done_and_not_before() -> None:
    stage = EngineHarness()
    slow, fast, joiner = Actor("slow"), Actor("fast"), Actor("joiner")
    slow.gate = asyncio.Event()
    plan = Workflow(
        (Step("slow", "x"), Step("fast", "y"), Step("fast", "z", (1,)), Step("joiner", "w", "all"))
    )
    task = asyncio.create_task(stage.prepare(plan, slow, fast, joiner).execute())
    await until(lambda: len(fast.asked) == 2)
    assert (slow.in_flight, joiner.asked) == (1, [])
    slow.gate.set()
    await task
    assert len(joiner.asked) == 1


async def test_independent_steps_run_at_once() -> None:
    actor = Actor("a")
    actor.gate = asyncio.Event()
    task = asyncio.create_task(
        EngineHarness().prepare(workflow((), (), (), "all"), actor).execute()
    )
    await until(lambda: actor.in_flight == 3)
    actor.gate.set()
    await task
    assert len(actor.asked) == 4


async def test_a_workers_concurrency_limit_holds_within_a_workflow() -> None:
    actor = Actor("a", limits=Limits(concurrency=2))
    actor.gate = asyncio.Event()
    plan = workflow((), (), (), (), "all")
    task = asyncio.create_task(EngineHarness().prepare(plan, actor).execute())
    await until(lambda: actor.in_flight == 2)
    actor.gate.set()
    await task
    assert actor.most_in_flight == 2


async def test_a_step_sees_the_pairs_its_access_names_and_no_others() -> None:
    actor = Actor("a", lambda request: f"reply to <{request.messages[-1].text[-9:]}>")
    await EngineHarness().carry_out(workflow((), (), (1,)), actor)
    seen = actor.asked[2]
    assert "reply to <subtask 1>" in seen
    assert "reply to <subtask 0>" not in seen


async def test_all_also_shows_the_round_before_and_indices_do_not() -> None:
    before = StepRecord(0, 0, "a", "old subtask", (), "done", "old reply", None, 0, 1)
    actor = Actor("a")
    await EngineHarness().carry_out(
        workflow((), (0,), "all"), actor, round_=1, previous=(Round(0, workflow(()), (before,)),)
    )
    assert ["old reply" in asked for asked in actor.asked] == [False, False, True]


async def test_the_conversation_comes_before_the_message() -> None:
    actor = Actor("a", lambda request: " / ".join(m.text[:12] for m in request.messages))
    execution = await EngineHarness().carry_out(workflow(()), actor, history=(user("earlier"),))
    assert execution.records[0].reply == "earlier / Your subtask"


async def test_only_the_last_step_streams() -> None:
    stage = EngineHarness()
    await stage.carry_out(workflow((), (0,)), Actor("a", lambda request: "one two"))
    deltas = [event for event in stage.events if isinstance(event, StepDelta)]
    assert [(delta.index, delta.text) for delta in deltas] == [(1, "one"), (1, "two")]


async def test_events_tell_the_story_in_order() -> None:
    stage = EngineHarness()
    await stage.carry_out(workflow((), (0,)), Actor("a"))
    assert [type(event).__name__ for event in stage.events] == [
        "StepStarted",
        "StepDone",
        "StepStarted",
        "StepDelta",
        "StepDone",
    ]


async def test_a_step_falls_back_to_the_named_substitute() -> None:
    stage = EngineHarness()
    weak = Actor("weak", failing, fallback="strong")
    execution = await stage.carry_out(workflow((), worker="weak"), weak, Actor("strong"))
    record = execution.records[0]
    assert (record.status, record.worker, record.answered_by) == ("done", "weak", "strong")
    assert [attempt.worker for attempt in record.attempts] == ["weak", "strong"]
    assert any(isinstance(event, StepRetried) for event in stage.events)


async def test_fallbacks_are_followed_until_one_answers_and_never_in_a_circle() -> None:
    one = Actor("one", failing, fallback="two")
    two = Actor("two", failing, fallback="three")
    three = Actor("three")
    execution = await EngineHarness().carry_out(workflow((), worker="one"), one, two, three)
    assert execution.records[0].answered_by == "three"
    circle = Actor("two", failing, fallback="one")
    execution = await EngineHarness().carry_out(workflow((), worker="one"), one, circle)
    assert execution.records[0].status == "failed"
    assert [attempt.worker for attempt in execution.records[0].attempts] == ["one", "two"]


async def test_a_refusal_without_a_word_is_a_failure_and_has_a_fallback() -> None:
    refusing = Actor("a", lambda _: Reply("", NO_USAGE, "refused"), fallback="b")
    execution = await EngineHarness().carry_out(workflow(()), refusing, Actor("b"))
    assert (execution.records[0].answered_by, execution.records[0].reply) == ("b", "ok")


async def test_an_empty_reply_is_a_failure_but_its_usage_is_kept() -> None:
    silent = Actor("a", lambda _: Reply(" ", Usage(3, 1, 0, 0, 0)))
    execution = await EngineHarness().carry_out(workflow(()), silent)
    record = execution.records[0]
    assert (record.status, record.error) == ("failed", "a returned an empty reply")
    assert record.usage.total_tokens == 4


async def test_steps_of_a_capped_run_still_run_at_once() -> None:
    actor = Actor("a", limits=Limits(max_output_tokens=100_000))
    actor.gate = asyncio.Event()
    stage = EngineHarness(budget=Budget(tokens=5000))
    task = asyncio.create_task(stage.prepare(workflow((), (), "all"), actor).execute())
    await until(lambda: actor.in_flight == 2)
    actor.gate.set()
    await task
    assert stage.ledger.spent.calls == 3


async def test_a_join_continues_with_what_it_has() -> None:
    plan = Workflow((Step("bad", "x"), Step("good", "y"), Step("good", "z", (0, 1))))
    good = Actor("good")
    execution = await EngineHarness().carry_out(plan, Actor("bad", failing), good)
    assert [execution.records[i].status for i in range(3)] == ["failed", "done", "done"]
    assert 'step="0"' not in good.asked[-1]


async def test_a_step_without_any_successful_input_is_skipped() -> None:
    plan = Workflow((Step("bad", "x"), Step("good", "y", (0,)), Step("good", "z", (1,))))
    good = Actor("good")
    execution = await EngineHarness().carry_out(plan, Actor("bad", failing), good)
    assert [execution.records[i].status for i in range(3)] == ["failed", "skipped", "skipped"]
    assert good.asked == []


async def test_retries_wait_and_are_emitted() -> None:
    stage = EngineHarness()
    outcomes: Iterator[str | Exception] = iter((Unavailable("down"), Unavailable("down"), "up"))
    execution = await stage.carry_out(workflow(()), Actor("a", lambda _: next(outcomes)))
    assert execution.records[0].reply == "up"
    assert stage.slept == [0.5, 1.0]
    events = [event for event in stage.events if isinstance(event, StepRetried)]
    assert [(event.error, event.wait_seconds) for event in events] == [("down", 0.5), ("down", 1.0)]


async def test_a_spent_budget_skips_what_is_left_and_is_remembered() -> None:
    stage = EngineHarness(budget=Budget(calls=2))
    execution = await stage.carry_out(workflow((), (0,), (1,)), Actor("a"))
    assert [execution.records[i].status for i in range(3)] == ["done", "done", "skipped"]
    assert execution.exhausted is not None
    assert execution.exhausted.cap == "calls"


async def test_finished_steps_are_not_asked_again() -> None:
    first = await EngineHarness().carry_out(workflow((), (0,)), Actor("a", lambda request: "first"))
    actor = Actor("a", lambda request: "second")
    done = [first.records[0]]
    execution = await EngineHarness().carry_out(workflow((), (0,)), actor, finished=done)
    assert len(actor.asked) == 1
    assert "first" in actor.asked[0]
    assert execution.records[0].reply == "first"
    assert execution.records[1].reply == "second"


async def test_a_finished_step_that_went_on_without_a_failed_one_is_not_asked_again() -> None:
    plan = workflow((), (), (0, 1), (2,))
    first = await EngineHarness().carry_out(plan, Actor("a", lambda request: "first"))
    failed = replace(first.records[1], status="failed", reply="", error="it is down")
    before = [first.records[0], failed, first.records[2]]
    actor = Actor("a", lambda request: "second")
    execution = await EngineHarness().carry_out(plan, actor, finished=before)
    replies = [execution.records[index].reply for index in range(4)]
    assert replies == ["first", "second", "first", "second"]


async def test_the_calls_of_a_cut_off_step_stay_on_its_record() -> None:
    stage = EngineHarness()
    actor = Actor("a")
    actor.gate = asyncio.Event()
    execution = stage.prepare(workflow(()), actor)
    task = asyncio.create_task(execution.execute())
    await until(lambda: actor.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cut = execution.records[0]
    assert cut.status == "cancelled"
    assert len(cut.attempts) == 1
    actor.gate.set()
    again = await EngineHarness().carry_out(workflow(()), actor, finished=[cut])
    assert [attempt.error for attempt in again.records[0].attempts] == ["cancelled", None]


async def test_cancellation_leaves_no_task_behind() -> None:
    actor = Actor("a")
    actor.gate = asyncio.Event()
    stage = EngineHarness()
    execution = stage.prepare(workflow((), (), (), (), "all"), actor)
    before = asyncio.all_tasks()
    task = asyncio.create_task(execution.execute())
    await until(lambda: actor.in_flight == 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert actor.in_flight == 0
    ended = [event.step.index for event in stage.events if isinstance(event, StepDone)]
    assert sorted(ended) == [0, 1, 2, 3]
    gc.collect()


async def test_a_step_that_is_started_shows_what_its_worker_receives() -> None:
    stage = EngineHarness()
    actor = Actor("a")
    execution = await stage.carry_out(workflow((), "all"), actor)
    started = [event.prompt for event in stage.events if isinstance(event, StepStarted)]
    assert started == actor.asked == [execution.records[i].prompt for i in range(2)]
