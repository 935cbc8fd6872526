from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from podium.core.errors import UnreadableRun
from podium.core.events import RunDone, RunStarted
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.repository import RunRepository
from podium.store import RunStore, open_store

RUN = Run(
    id="run_0123456789abcdef",
    question="Why?",
    status="running",
    pool=Pool((WorkerProfile(name="solo"),)),
    conductor="rules",
    created_at="2026-01-01T00:00:00.000+00:00",
    owner="key_ada",
)
ENDED = replace(RUN, status="answered", answer="so")
ADA = Principal(key_id="key_ada", scopes=frozenset({"ask"}))
BOB = Principal(key_id="key_bob", scopes=frozenset({"ask"}))
ADMIN = Principal(key_id="key_admin", scopes=frozenset({"admin"}))


async def damaged(directory: Path) -> RunStore:
    """A store in which the run is on record, and cannot be read."""
    store = await open_store(directory / "runs.db")
    await store.finish(ENDED)
    await store.close()
    with sqlite3.connect(directory / "runs.db") as database:
        database.execute("UPDATE runs SET document = '[]'")
    database.close()
    return await open_store(directory / "runs.db")


async def test_a_run_in_progress_is_found_though_nothing_of_it_is_written() -> None:
    archive = RunRepository(BufferedRunStore(RunStore()))
    archive.broadcast(RunStarted(RUN))
    assert await archive.run(RUN.id, ADA) == RUN


async def test_a_run_that_ends_while_the_store_is_read_is_found() -> None:
    class Slow(RunStore):
        def __init__(self) -> None:
            self.is_read, self.may_answer = asyncio.Event(), asyncio.Event()

        async def load(self, run_id: str) -> Run:
            self.is_read.set()
            await self.may_answer.wait()
            return await super().load(run_id)

        async def finish(self, *runs: Run) -> None:
            await asyncio.Event().wait()

    store = Slow()
    buffered = BufferedRunStore(store)
    archive = RunRepository(buffered)
    archive.broadcast(RunStarted(RUN))
    looking = asyncio.create_task(archive.run(RUN.id, ADA))
    await store.is_read.wait()
    archive.broadcast(RunDone(ENDED))
    await buffered.finish(ENDED)
    store.may_answer.set()
    assert await looking == ENDED


async def test_an_unreadable_run_can_be_deleted_by_its_owner(
    tmp_path: Path,
) -> None:
    for number, principal in enumerate((ADA, ADMIN)):
        (directory := tmp_path / str(number)).mkdir()
        archive = RunRepository(BufferedRunStore(await damaged(directory)))
        with pytest.raises(UnreadableRun):
            await archive.run(RUN.id, principal)
        await archive.delete(RUN.id, principal)
        assert await archive.store.list() == []
        await archive.store.close()


async def test_to_others_a_run_that_cannot_be_read_looks_as_if_there_were_none(
    tmp_path: Path,
) -> None:
    archive = RunRepository(BufferedRunStore(await damaged(tmp_path)))
    for look in (archive.run, archive.delete):
        with pytest.raises(ApiError, match="run not found: 'run_0123") as refused:
            await look(RUN.id, BOB)
        assert refused.value.reason == "not_found"
    assert len(await archive.store.list()) == 1
    await archive.store.close()


@pytest.mark.parametrize("wanted", ["last", RUN.id[:-1], RUN.id.removeprefix("run_")])
async def test_one_that_cannot_be_read_is_found_by_its_whole_id_alone_as_all_are(
    tmp_path: Path, wanted: str
) -> None:
    archive = RunRepository(BufferedRunStore(await damaged(tmp_path)))
    with pytest.raises(ApiError, match="run not found: ") as refused:
        await archive.run(wanted, ADMIN)
    assert refused.value.reason == "not_found"
    await archive.store.close()
