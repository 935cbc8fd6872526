"""A run that another process takes over while it is performed here, and one that must be on record
before anything is done for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from podium import AsyncPodium, ScriptedWorker, Step, Workflow
from podium._util.process import this_process
from podium.core.errors import Conflict, RunTakenOver, StoreError
from podium.core.events import Event, RunStarted
from podium.core.request import Reply, Request, ResponseOptions, Tool, ToolCall, ToolResult, Usage
from podium.core.run import Round, Run, StepRecord
from podium.engine.guardrails import Guardrail, GuardrailInput, Pass
from podium.server.records.buffered_store import BufferedRunStore
from podium.store import Heartbeat, RunStore
from podium.store.journal import journal_events
from podium.store.sql.run_store import SqlRunStore
from support.harness import FakeWorker

WORKFLOW = Workflow((Step("solo", "first"), Step("solo", "second", "all")))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[SqlRunStore]]:
    """The stores of two processes on one database; neither is heard of for long."""
    where = tmp_path / "podium.db"
    opened = [await SqlRunStore.open(where, lease_seconds=0.001) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


async def taken_over_by(other: SqlRunStore) -> None:
    """Let the other store take over the only run, after its last write."""
    async with asyncio.timeout(10):
        while True:
            for lost in await other.list_abandoned(1):
                with suppress(Conflict):
                    await other.claim(lost.id, "another-machine:1", takeover=True)
                    return
            await asyncio.sleep(0.002)


async def test_a_run_that_another_process_took_over_is_stopped_and_left_to_it(
    stores: list[SqlRunStore], caplog: pytest.LogCaptureFixture
) -> None:
    here, other = stores

    class Slow(ScriptedWorker):
        """So slow that another process takes the run over meanwhile."""

        async def reply(self, request: Request) -> Reply:
            if self.calls == 0:
                await taken_over_by(other)
            return await super().reply(request)

    worker = Slow("solo", "done")
    async with AsyncPodium([worker], store=here) as podium:
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(RunTakenOver, match="by process another-machine:1"),
        ):
            await podium.run(WORKFLOW, "Why?")
    assert worker.calls <= 2, "what was under way when it was lost is all that is asked"
    assert "it is stopped here" in caplog.text
    (run,) = await other.list()
    now = await other.load(run.id)
    assert (now.status, now.process, now.steps) == ("running", "another-machine:1", ())


async def test_a_run_taken_over_at_its_end_is_not_reported_as_kept(
    stores: list[SqlRunStore],
) -> None:
    here, other = stores

    class Ending(SqlRunStore):
        """Another process comes between the last step and the end."""

        is_write_ahead = True

        async def finish(self, *runs: Run) -> None:
            await taken_over_by(other)
            await super().finish(*runs)

    here.__class__ = Ending
    async with AsyncPodium([ScriptedWorker("solo", "done")], store=here) as podium:
        async with asyncio.timeout(5):
            with pytest.raises(RunTakenOver):
                await podium.run(WORKFLOW, "Why?")
    assert (await other.load("last")).status == "running"


TOOL = Tool("look", "looks", {"type": "object"})


def looking(request: Request) -> Reply:
    """Ask for the tool first, and answer then."""
    if request.messages[-1].role == "tool":
        return Reply("done", Usage(1, 1, 0, 0, 0))
    call = ToolCall("call_1", "look", "{}")
    return Reply("", Usage(1, 1, 0, 0, 0), finish="tool", tool_calls=(call,))


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_resume_cancelled_during_guardrails_can_be_repeated(
    tmp_path: Path, keeps: bool
) -> None:
    looks, is_looking = 0, asyncio.Event()

    async def slow_at_results(checked: GuardrailInput) -> Pass:
        nonlocal looks
        looks += 1
        if looks == 2:
            is_looking.set()
            await asyncio.sleep(60)
        return Pass()

    buffered = BufferedRunStore(await SqlRunStore.open(tmp_path / "podium.db"))

    def emit(event: Event) -> None:
        if isinstance(event, RunStarted) and not keeps:
            buffered.do_not_store(event.run)

    guardrail = Guardrail("slow", slow_at_results, stages=("question",))
    worker = FakeWorker("solo", looking, can=("tools",))
    async with AsyncPodium([worker], store=buffered, guardrails=[guardrail]) as podium:
        waiting = await podium.ask(
            "Why?", response_options=ResponseOptions(tools=(TOOL,)), emit=emit
        )
        results = [ToolResult(waiting.waiting_for[0].id, "found")]
        resuming = asyncio.create_task(podium.resume(waiting, results=results))
        await is_looking.wait()
        resuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        assert (await buffered.load(waiting.id)).status == "waiting"
        assert (await podium.resume(waiting, results=results)).answer == "done"
    await buffered.close()


async def test_the_pulse_beats_for_a_run_that_was_claimed_before_it_begins_again(
    stores: list[SqlRunStore],
) -> None:
    async with AsyncPodium([ScriptedWorker("solo", "done")], store=stores[0]) as podium:
        run = await podium.ask("Why?")
    pulse = Heartbeat(stores[0])
    claimed = await stores[0].claim(run.id, this_process())
    async with journal_events(stores[0], pulse, None, claimed=claimed):
        assert [journal.run_id for journal in pulse._journals] == [run.id]
    assert await stores[1].load(run.id) == run, "it did not begin again"


class First(RunStore):
    """Must have a run before anything is done for it; counts what was done by then."""

    is_write_ahead = True

    def __init__(self, worker: ScriptedWorker, *, fails: bool = False) -> None:
        self.worker = worker
        self.fails = fails
        self.done_before: list[int] = []

    async def begin(self, run: Run) -> None:
        await asyncio.sleep(0.01)
        self.done_before.append(self.worker.calls)
        if self.fails:
            raise StoreError("the disk is full")

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        await asyncio.sleep(0.01)
        if (
            isinstance(content, Round) and len(self.done_before) == 1
        ):  # the round is written once more when it is done
            self.done_before.append(self.worker.calls)


async def test_a_store_that_must_have_a_run_first_has_it_and_its_plan_before_the_first_call() -> (
    None
):
    worker = ScriptedWorker("solo", "done")
    store = First(worker)
    async with AsyncPodium([worker], store=store) as podium:
        run = await podium.run(WORKFLOW, "Why?")
    assert (run.status, store.done_before) == ("answered", [0, 0])


async def test_unstorable_runs_are_not_started() -> None:
    worker = ScriptedWorker("solo", "done")
    async with AsyncPodium([worker], store=First(worker, fails=True)) as podium:
        with pytest.raises(StoreError, match="the disk is full"):
            await podium.run(WORKFLOW, "Why?")
    assert worker.calls == 0


async def test_a_run_that_such_a_store_has_continues_though_its_plan_cannot_be_written() -> None:
    class Forgetful(First):
        async def save(self, run_id: str, content: Round | StepRecord) -> None:
            if isinstance(content, Round):
                raise StoreError("the database is away")

    worker = ScriptedWorker("solo", "done")
    async with AsyncPodium([worker], store=Forgetful(worker)) as podium:
        run = await podium.run(WORKFLOW, "Why?")
    assert (run.status, worker.calls) == ("answered", len(WORKFLOW))
