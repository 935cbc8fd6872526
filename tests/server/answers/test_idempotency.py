"""Requests that were named, and sent again while they are about to begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from podium.core.errors import NotFound, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run, timestamp
from podium.server.answers.tiers import run_once
from podium.server.dialects.request import IdempotencyKey
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.repository import RunRepository
from podium.store import IdempotentRequest
from podium.store.sql.run_store import SqlRunStore

NAMED = IdempotencyKey(name="mine", digest="ab")
OWNER = "key_1"


def answered(run_id: str) -> Run:
    return Run(
        id=run_id,
        question="Why?",
        status="answered",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="fixed",
        created_at=timestamp(),
        rounds=(),
        answer="Because.",
    )


class Runtime:
    """An archive over a store whose clock is set by hand, and what requests do there."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)
        self.begun: list[str] = []
        self.followed = asyncio.Event()
        self.checked = asyncio.Event()
        self.refuses = False

    async def open(self, file: Path) -> None:
        self.store = await SqlRunStore.open(
            file, clock=lambda: timestamp(self.now), lease_seconds=30
        )
        self.archive = RunRepository(BufferedRunStore(self.store, shared=True))

    async def begin(self, run_id: str) -> Run:
        """The question is looked at for long before the run is on record."""
        self.begun.append(run_id)
        await self.checked.wait()
        if self.refuses:
            raise UsageError("not so")
        run = answered(run_id)
        await self.store.begin(run)
        return run

    async def resume(self, run: Run) -> Run:
        raise AssertionError("nothing was cut off")

    def follow(self, run_id: str) -> None:
        self.followed.set()

    def ask(self) -> asyncio.Task[Run]:
        return asyncio.create_task(
            run_once(
                self.archive,
                NAMED,
                OWNER,
                begin=self.begin,
                resume=self.resume,
                follow=self.follow,
            )
        )

    async def first(self) -> asyncio.Task[Run]:
        """A request whose question is looked at for longer than a lease."""
        asked = self.ask()
        while not self.begun:
            await asyncio.sleep(0.001)
        self.now += timedelta(seconds=60)
        return asked

    async def given(self) -> IdempotentRequest:
        mine = IdempotentRequest(
            owner=OWNER, key="mine", digest="ab", run_id="run_new", process="here", created_at=""
        )
        return await self.store.idempotency.register(mine)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime()
    await runtime.open(tmp_path / "podium.db")
    yield runtime
    await runtime.store.close()


async def test_repeated_requests_during_a_check_start_no_second_run(
    runtime: Runtime,
) -> None:
    first = await runtime.first()
    again = runtime.ask()
    await runtime.followed.wait()
    await asyncio.sleep(0.05)
    runtime.checked.set()
    assert (await first).id == (await again).id
    assert runtime.begun == [(await first).id]
    assert not runtime.archive.beginning


async def test_a_run_that_is_stored_while_it_is_looked_for_is_not_begun_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await runtime.first()
    load = runtime.archive.store.load

    async def load_just_before(run_id: str) -> Run:
        try:
            return await load(run_id)
        except NotFound:
            runtime.checked.set()
            await first
            raise

    monkeypatch.setattr(runtime.archive.store, "load", load_just_before)
    assert (await runtime.ask()).id == (await first).id
    assert runtime.begun == [(await first).id]


async def test_a_late_refusal_leaves_the_idempotency_key_to_its_new_owner(
    runtime: Runtime,
) -> None:
    first = await runtime.first()
    taken = await runtime.store.idempotency.take_over(await runtime.given(), "there:2")
    runtime.refuses = True
    runtime.checked.set()
    with pytest.raises(UsageError):
        await first
    assert taken is not None
    assert await runtime.given() == replace(taken, run_id=runtime.begun[0])


async def test_a_request_that_is_refused_gives_its_name_back(runtime: Runtime) -> None:
    first = await runtime.first()
    runtime.refuses = True
    runtime.checked.set()
    with pytest.raises(UsageError):
        await first
    assert (await runtime.given()).run_id == "run_new"
