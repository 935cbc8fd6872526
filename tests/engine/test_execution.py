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
from support.harness import EngineHarness, FakeWorker


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
    engine = EngineHarness()
    slow, fast, joiner = FakeWorker("slow"), FakeWorker("fast"), FakeWorker("joiner")
    slow.gate = asyncio.Event()
    plan = Workflow(
        (Step("slow", "x"), Step("fast", "y"), Step("fast", "z", (1,)), Step("joiner", "w", "all"))
    )
    task = asyncio.create_task(engine.prepare(plan, slow, fast, joiner).execute())
    await until(lambda: len(fast.asked) == 2)
    assert (slow.in_flight, joiner.asked) == (1, [])
    slow.gate.set()
    await task
    assert len(joiner.asked) == 1


async def test_independent_steps_run_at_once() -> None:
    fake = FakeWorker("a")
    fake.gate = asyncio.Event()
    task = asyncio.create_task(EngineHarness().prepare(workflow((), (), (), "all"), fake).execute())
    await until(lambda: fake.in_flight == 3)
    fake.gate.set()
    await task
    assert len(fake.asked) == 4


async def test_a_workers_concurrency_limit_holds_within_a_workflow() -> None:
    fake = FakeWorker("a", limits=Limits(concurrency=2))
    fake.gate = asyncio.Event()
    plan = workflow((), (), (), (), "all")
    task = asyncio.create_task(EngineHarness().prepare(plan, fake).execute())
    await until(lambda: fake.in_flight == 2)
    fake.gate.set()
    await task
    assert fake.most_in_flight == 2


async def test_a_step_sees_the_pairs_its_access_names_and_no_others() -> None:
    fake = FakeWorker("a", lambda request: f"reply to <{request.messages[-1].text[-9:]}>")
    await EngineHarness().execute(workflow((), (), (1,)), fake)
    seen = fake.asked[2]
    assert "reply to <subtask 1>" in seen
    assert "reply to <subtask 0>" not in seen


async def test_all_also_shows_the_round_before_and_indices_do_not() -> None:
    before = StepRecord(0, 0, "a", "old subtask", (), "done", "old reply", None, 0, 1)
    fake = FakeWorker("a")
    await EngineHarness().execute(
        workflow((), (0,), "all"), fake, round_=1, previous=(Round(0, workflow(()), (before,)),)
    )
    assert ["old reply" in asked for asked in fake.asked] == [False, False, True]


async def test_the_conversation_comes_before_the_message() -> None:
    fake = FakeWorker("a", lambda request: " / ".join(m.text[:12] for m in request.messages))
    execution = await EngineHarness().execute(workflow(()), fake, history=(user("earlier"),))
    assert execution.records[0].reply == "earlier / Your subtask"


async def test_only_the_last_step_streams() -> None:
    engine = EngineHarness()
    await engine.execute(workflow((), (0,)), FakeWorker("a", lambda request: "one two"))
    deltas = [event for event in engine.events if isinstance(event, StepDelta)]
    assert [(delta.index, delta.text) for delta in deltas] == [(1, "one"), (1, "two")]


async def test_events_tell_the_story_in_order() -> None:
    engine = EngineHarness()
    await engine.execute(workflow((), (0,)), FakeWorker("a"))
    assert [type(event).__name__ for event in engine.events] == [
        "StepStarted",
        "StepDone",
        "StepStarted",
        "StepDelta",
        "StepDone",
    ]


async def test_a_step_falls_back_to_the_named_substitute() -> None:
    engine = EngineHarness()
    weak = FakeWorker("weak", failing, fallback="strong")
    execution = await engine.execute(workflow((), worker="weak"), weak, FakeWorker("strong"))
    record = execution.records[0]
    assert (record.status, record.worker, record.answered_by) == ("done", "weak", "strong")
    assert [attempt.worker for attempt in record.attempts] == ["weak", "strong"]
    assert any(isinstance(event, StepRetried) for event in engine.events)


async def test_fallbacks_are_followed_until_one_answers_and_never_in_a_circle() -> None:
    one = FakeWorker("one", failing, fallback="two")
    two = FakeWorker("two", failing, fallback="three")
    three = FakeWorker("three")
    execution = await EngineHarness().execute(workflow((), worker="one"), one, two, three)
    assert execution.records[0].answered_by == "three"
    circle = FakeWorker("two", failing, fallback="one")
    execution = await EngineHarness().execute(workflow((), worker="one"), one, circle)
    assert execution.records[0].status == "failed"
    assert [attempt.worker for attempt in execution.records[0].attempts] == ["one", "two"]


async def test_a_refusal_without_a_word_is_a_failure_and_has_a_fallback() -> None:
    refusing = FakeWorker("a", lambda _: Reply("", NO_USAGE, "refused"), fallback="b")
    execution = await EngineHarness().execute(workflow(()), refusing, FakeWorker("b"))
    assert (execution.records[0].answered_by, execution.records[0].reply) == ("b", "ok")


async def test_an_empty_reply_is_a_failure_but_its_usage_is_kept() -> None:
    silent = FakeWorker("a", lambda _: Reply(" ", Usage(3, 1, 0, 0, 0)))
    execution = await EngineHarness().execute(workflow(()), silent)
    record = execution.records[0]
    assert (record.status, record.error) == ("failed", "a returned an empty reply")
    assert record.usage.total_tokens == 4


async def test_steps_of_a_capped_run_still_run_at_once() -> None:
    fake = FakeWorker("a", limits=Limits(max_output_tokens=100_000))
    fake.gate = asyncio.Event()
    engine = EngineHarness(budget=Budget(tokens=5000))
    task = asyncio.create_task(engine.prepare(workflow((), (), "all"), fake).execute())
    await until(lambda: fake.in_flight == 2)
    fake.gate.set()
    await task
    assert engine.ledger.spent.calls == 3


async def test_a_join_continues_with_what_it_has() -> None:
    plan = Workflow((Step("bad", "x"), Step("good", "y"), Step("good", "z", (0, 1))))
    good = FakeWorker("good")
    execution = await EngineHarness().execute(plan, FakeWorker("bad", failing), good)
    assert [execution.records[i].status for i in range(3)] == ["failed", "done", "done"]
    assert 'step="0"' not in good.asked[-1]


async def test_a_step_without_any_successful_input_is_skipped() -> None:
    plan = Workflow((Step("bad", "x"), Step("good", "y", (0,)), Step("good", "z", (1,))))
    good = FakeWorker("good")
    execution = await EngineHarness().execute(plan, FakeWorker("bad", failing), good)
    assert [execution.records[i].status for i in range(3)] == ["failed", "skipped", "skipped"]
    assert good.asked == []


async def test_retries_wait_and_are_emitted() -> None:
    engine = EngineHarness()
    outcomes: Iterator[str | Exception] = iter((Unavailable("down"), Unavailable("down"), "up"))
    execution = await engine.execute(workflow(()), FakeWorker("a", lambda _: next(outcomes)))
    assert execution.records[0].reply == "up"
    assert engine.slept == [0.5, 1.0]
    events = [event for event in engine.events if isinstance(event, StepRetried)]
    assert [(event.error, event.wait_seconds) for event in events] == [("down", 0.5), ("down", 1.0)]


async def test_a_spent_budget_skips_what_is_left_and_is_remembered() -> None:
    engine = EngineHarness(budget=Budget(calls=2))
    execution = await engine.execute(workflow((), (0,), (1,)), FakeWorker("a"))
    assert [execution.records[i].status for i in range(3)] == ["done", "done", "skipped"]
    assert execution.exhausted is not None
    assert execution.exhausted.cap == "calls"


async def test_finished_steps_are_not_asked_again() -> None:
    first = await EngineHarness().execute(
        workflow((), (0,)), FakeWorker("a", lambda request: "first")
    )
    fake = FakeWorker("a", lambda request: "second")
    done = [first.records[0]]
    execution = await EngineHarness().execute(workflow((), (0,)), fake, finished=done)
    assert len(fake.asked) == 1
    assert "first" in fake.asked[0]
    assert execution.records[0].reply == "first"
    assert execution.records[1].reply == "second"


async def test_a_finished_step_that_went_on_without_a_failed_one_is_not_asked_again() -> None:
    plan = workflow((), (), (0, 1), (2,))
    first = await EngineHarness().execute(plan, FakeWorker("a", lambda request: "first"))
    failed = replace(first.records[1], status="failed", reply="", error="it is down")
    before = [first.records[0], failed, first.records[2]]
    fake = FakeWorker("a", lambda request: "second")
    execution = await EngineHarness().execute(plan, fake, finished=before)
    replies = [execution.records[index].reply for index in range(4)]
    assert replies == ["first", "second", "first", "second"]


async def test_the_calls_of_a_cut_off_step_stay_on_its_record() -> None:
    engine = EngineHarness()
    fake = FakeWorker("a")
    fake.gate = asyncio.Event()
    execution = engine.prepare(workflow(()), fake)
    task = asyncio.create_task(execution.execute())
    await until(lambda: fake.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cut = execution.records[0]
    assert cut.status == "cancelled"
    assert len(cut.attempts) == 1
    fake.gate.set()
    again = await EngineHarness().execute(workflow(()), fake, finished=[cut])
    assert [attempt.error for attempt in again.records[0].attempts] == ["cancelled", None]


async def test_cancellation_leaves_no_task_behind() -> None:
    fake = FakeWorker("a")
    fake.gate = asyncio.Event()
    engine = EngineHarness()
    execution = engine.prepare(workflow((), (), (), (), "all"), fake)
    before = asyncio.all_tasks()
    task = asyncio.create_task(execution.execute())
    await until(lambda: fake.in_flight == 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert fake.in_flight == 0
    ended = [event.step.index for event in engine.events if isinstance(event, StepDone)]
    assert sorted(ended) == [0, 1, 2, 3]
    gc.collect()


async def test_a_step_that_is_started_shows_what_its_worker_receives() -> None:
    engine = EngineHarness()
    fake = FakeWorker("a")
    execution = await engine.execute(workflow((), "all"), fake)
    started = [event.prompt for event in engine.events if isinstance(event, StepStarted)]
    assert started == fake.asked == [execution.records[i].prompt for i in range(2)]
