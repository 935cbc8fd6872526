from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from podium.core.errors import StoreError, UsageError
from podium.core.events import (
    Event,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
)
from podium.core.run import Round, Run, StepRecord
from podium.store.base import RunStore
from podium.store.journal import BACKLOG, Journal


class NotingStore(RunStore):
    """Notes what is written. Writes wait while the gate is closed, and fail with `fault`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.finished: list[Run] = []
        self.writing = 0
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def begin(self, run: Run) -> None:
        await self._note(f"begin {run.id}")

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        await self._note(f"{'plan' if isinstance(content, Round) else 'step'} {content.index}")

    async def finish(self, *runs: Run) -> None:
        for run in runs:
            await self._note(f"finish {run.id}")
            self.finished.append(run)

    async def _note(self, note: str) -> None:
        assert not self.writing, "two writes at once"
        self.writing += 1
        try:
            await self.gate.wait()
            if self.fault is not None:
                raise self.fault
            self.notes.append(note)
        finally:
            self.writing -= 1


@pytest.fixture
def noting() -> NotingStore:
    return NotingStore()


def events(run: Run) -> list[Event]:
    round_ = run.rounds[0]
    return [
        RunStarted(replace(run, rounds=(), status="running", answer=None)),
        RoundPlanned(run.id, replace(round_, steps=())),
        *(StepDone(run.id, step) for step in run.steps),
        RoundDone(run.id, round_),
        RunDone(run),
    ]


WHOLE = ["begin run_a", "plan 0", "step 0", "step 1", "step 2", "plan 0", "finish run_a"]


async def test_events_are_written_in_order(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    journal = Journal(noting)
    for event in events(make_run("run_a")):
        journal.emit(event)
        await journal.drain()
    assert noting.notes == WHOLE
    assert journal.error is None


async def test_the_store_holds_the_run_once_the_journal_is_closed(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    journal = Journal(store)
    for event in events(run):
        journal.emit(event)
    await journal.close()
    assert journal.error is None
    assert await store.load(run.id) == run


async def test_every_event_before_the_end_is_in_the_store_once_drained(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    run = make_run(status="running", answer=None)
    journal = Journal(store)
    for event in events(run)[:-1]:
        journal.emit(event)
    await journal.close()
    assert await store.load(run.id) == run


async def test_taking_an_event_does_not_wait_for_the_store(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    noting.gate.clear()
    journal = Journal(noting)
    for event in events(make_run("run_a"))[:-1]:
        journal.emit(event)
    await asyncio.sleep(0)
    assert noting.notes == []
    noting.gate.set()
    await journal.close()
    assert noting.notes == WHOLE[:-1]


async def test_the_end_of_a_run_stands_for_all_that_was_waiting(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    noting.gate.clear()
    run = make_run("run_a")
    journal = Journal(noting)
    for event in events(run):
        journal.emit(event)
        await asyncio.sleep(0)
    noting.gate.set()
    await journal.close()
    assert noting.notes == ["begin run_a", "finish run_a"]
    assert noting.finished == [run]


async def test_queue_is_bounded_and_the_end_is_written(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    noting.gate.clear()
    run = make_run("run_a")
    begin, plan, step, *_, end = events(run)
    journal = Journal(noting)
    journal.emit(begin)
    await asyncio.sleep(0)
    journal.emit(plan)
    for _ in range(10 * BACKLOG):
        journal.emit(step)
    noting.gate.set()
    await journal.drain()
    assert noting.notes == ["begin run_a", "plan 0", *["step 0"] * (BACKLOG - 1)]
    journal.emit(step)
    await journal.drain()
    assert len(noting.notes) == BACKLOG + 1, "a journal that fell behind leaves no gaps"
    journal.emit(end)
    await journal.close()
    assert noting.finished == [run]
    assert journal.error is None


async def test_events_for_watchers_alone_are_not_stored(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    journal = Journal(noting)
    journal.emit(events(make_run("run_a"))[0])
    journal.emit(StepStarted("run_a", 0, 0, "solo", "prompt"))
    journal.emit(StepRetried("run_a", 0, 0, "solo", "busy", 1.0))
    journal.emit(StepDelta("run_a", 0, 0, "piece"))
    await journal.close()
    assert noting.notes == ["begin run_a"]


async def test_a_nested_run_is_left_to_the_step_that_holds_it(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    journal = Journal(noting)
    outer, inner = events(make_run("run_a")), events(make_run("run_b"))
    started = inner[0]
    assert isinstance(started, RunStarted)
    for event in [*outer[:2], replace(started, parent=("run_a", 0)), *inner[1:], *outer[2:]]:
        journal.emit(event)
        await journal.drain()
    assert noting.notes == WHOLE


async def test_a_second_run_needs_a_second_journal(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    journal = Journal(noting)
    journal.emit(events(make_run("run_a"))[0])
    with pytest.raises(UsageError, match="writes run run_a, not run_b"):
        journal.emit(events(make_run("run_b"))[0])
    await journal.close()


async def test_the_first_fault_is_remembered_and_the_rest_of_the_run_continues(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    journal = Journal(noting)
    first = StoreError("the first fault")
    for number, event in enumerate(events(make_run("run_a"))):
        if number == 3:
            noting.fault = first
        journal.emit(event)
        await journal.drain()
        noting.fault = noting.fault and StoreError("a later fault")
    await journal.close()
    assert noting.notes == WHOLE[:3]
    assert journal.error is first


async def test_a_fault_that_has_passed_by_the_end_costs_nothing(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    run = make_run("run_a")
    *before, end = events(run)
    journal = Journal(noting)
    noting.fault = StoreError("locked")
    for event in before:
        journal.emit(event)
    await journal.drain()
    assert journal.error is noting.fault
    noting.fault = None
    journal.emit(end)
    await journal.close()
    assert noting.finished == [run]
    assert journal.error is None


async def test_after_a_fault_no_step_is_written_without_those_before_it(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    begin, plan, first, second, *_ = events(make_run("run_a"))
    journal = Journal(noting)
    journal.emit(begin)
    journal.emit(plan)
    await journal.drain()
    noting.fault = StoreError("locked")
    journal.emit(first)
    await journal.drain()
    noting.fault = None
    journal.emit(second)
    await journal.close()
    assert noting.notes == ["begin run_a", "plan 0"]
    assert str(journal.error) == "locked"


async def test_a_store_with_a_bug_does_not_cost_the_answer(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    noting.fault = ZeroDivisionError("oh")
    journal = Journal(noting)
    for event in events(make_run("run_a")):
        journal.emit(event)
    await journal.close()
    assert isinstance(journal.error, StoreError)
    assert "ZeroDivisionError('oh')" in str(journal.error)


async def test_nothing_is_taken_after_closing(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    begin, *rest = events(make_run("run_a"))
    journal = Journal(noting)
    journal.emit(begin)
    await journal.close()
    for event in rest:
        journal.emit(event)
    await journal.drain()
    assert noting.notes == ["begin run_a"]


async def test_a_cancelled_wait_does_not_cancel_the_write(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    noting.gate.clear()
    journal = Journal(noting)
    journal.emit(events(make_run("run_a"))[0])
    waiting = asyncio.create_task(journal.drain())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    noting.gate.set()
    await journal.close()
    assert noting.notes == ["begin run_a"]


async def test_a_closed_journal_leaves_no_task_behind(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    before = asyncio.all_tasks()
    journal = Journal(noting)
    for event in events(make_run("run_a")):
        journal.emit(event)
    await journal.close()
    assert asyncio.all_tasks() == before


async def test_a_run_with_an_unwritten_start_can_be_refused(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    begin, *rest = events(make_run("run_a"))
    journal = Journal(noting)
    noting.fault = StoreError("the database is away")
    journal.emit(begin)
    await journal.drain()
    with pytest.raises(StoreError, match="away"):
        journal.require_begun()
    noting.fault = None
    for event in rest:
        journal.emit(event)
    await journal.close()
    assert noting.notes == []


async def test_a_run_that_is_on_record_continues_whatever_fails_later(
    noting: NotingStore, make_run: Callable[..., Run]
) -> None:
    begin, plan, *_ = events(make_run("run_a"))
    journal = Journal(noting)
    journal.emit(begin)
    await journal.drain()
    noting.fault = StoreError("the database is away")
    journal.emit(plan)
    await journal.drain()
    journal.require_begun()
    await journal.close()
