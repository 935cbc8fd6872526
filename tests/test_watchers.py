"""A run that another process takes over while it is performed here, and one that must be on record
before anything is done for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podium import AsyncPodium, ScriptedWorker, Step, Workflow
from podium.errors import StoreError, TakenOver
from podium.request import Reply, Request
from podium.run import Round, Run
from podium.store import NullStore
from podium.store.sql import SqlRunStore

WORKFLOW = Workflow((Step("solo", "first"), Step("solo", "second", "all")))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[SqlRunStore]]:
    """The stores of two processes on one database; neither is heard of for long."""
    place = tmp_path / "podium.db"
    opened = [await SqlRunStore.open(place, lease_seconds=0.001) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


async def taken_over_by(other: SqlRunStore) -> None:
    """Have the other store take over the one run that there is."""
    async with asyncio.timeout(10):
        while not (lost := await other.abandoned(1)):
            await asyncio.sleep(0.002)
    await other.claim(lost[0].id, "another-machine:1", takeover=True)


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
            pytest.raises(TakenOver, match="by the process another-machine:1"),
        ):
            await podium.run(WORKFLOW, "Why?")
    assert worker.calls <= 2, "what was under way when it was lost is all that is asked"
    assert "it is stopped here" in caplog.text
    (run,) = await other.list()
    now = await other.load(run.id)
    assert (now.status, now.process, now.steps) == ("running", "another-machine:1", ())


async def test_a_run_that_is_lost_at_its_very_end_is_not_told_as_if_it_were_kept(
    stores: list[SqlRunStore],
) -> None:
    here, other = stores

    class Ending(SqlRunStore):
        """Another process comes between the last step and the end."""

        writes_first = True

        async def finish(self, *runs: Run) -> None:
            await taken_over_by(other)
            await super().finish(*runs)

    here.__class__ = Ending
    async with AsyncPodium([ScriptedWorker("solo", "done")], store=here) as podium:
        async with asyncio.timeout(5):
            with pytest.raises(TakenOver):
                await podium.run(WORKFLOW, "Why?")
    assert (await other.load("last")).status == "running"


class First(NullStore):
    """Must have a run before anything is done for it; counts what was done by then."""

    writes_first = True

    def __init__(self, worker: ScriptedWorker, *, fails: bool = False) -> None:
        self.worker = worker
        self.fails = fails
        self.done_before: list[int] = []

    async def begin(self, run: Run) -> None:
        await asyncio.sleep(0.01)
        self.done_before.append(self.worker.calls)
        if self.fails:
            raise StoreError("the disk is full")

    async def plan(self, run_id: str, round_: Round) -> None:
        await asyncio.sleep(0.01)
        if len(self.done_before) == 1:  # the round is written once more when it is done
            self.done_before.append(self.worker.calls)


async def test_a_store_that_must_have_a_run_first_has_it_and_its_plan_before_the_first_call() -> (
    None
):
    worker = ScriptedWorker("solo", "done")
    store = First(worker)
    async with AsyncPodium([worker], store=store) as podium:
        run = await podium.run(WORKFLOW, "Why?")
    assert (run.status, store.done_before) == ("answered", [0, 0])


async def test_where_a_store_must_have_a_run_first_and_cannot_nothing_is_done_for_it() -> None:
    worker = ScriptedWorker("solo", "done")
    async with AsyncPodium([worker], store=First(worker, fails=True)) as podium:
        with pytest.raises(StoreError, match="the disk is full"):
            await podium.run(WORKFLOW, "Why?")
    assert worker.calls == 0


async def test_a_run_that_such_a_store_has_goes_on_though_its_plan_cannot_be_written() -> None:
    class Forgetful(First):
        async def plan(self, run_id: str, round_: Round) -> None:
            raise StoreError("the database is away")

    worker = ScriptedWorker("solo", "done")
    async with AsyncPodium([worker], store=Forgetful(worker)) as podium:
        run = await podium.run(WORKFLOW, "Why?")
    assert (run.status, worker.calls) == ("answered", len(WORKFLOW))
