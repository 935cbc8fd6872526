from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from podium.core.errors import StoreError
from podium.core.events import RunStarted
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run
from podium.store.base import RunStore
from podium.store.journal import Heartbeat, Journal


class Hearing(RunStore):
    """Notes for which runs the pulse beats; `fails` makes it fail so often."""

    def __init__(self, fails: int = 0) -> None:
        self.beats: asyncio.Queue[list[str]] = asyncio.Queue()
        self.fails = fails

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        self.beats.put_nowait(sorted(run_ids))
        if self.beats.qsize() <= self.fails:
            raise StoreError("the disk is full")
        return ["run_lost"]


def journal_of(run_id: str, store: RunStore) -> Journal:
    journal = Journal(store)
    run = Run(
        id=run_id,
        question="Why?",
        status="running",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
    )
    journal.emit(RunStarted(run))
    return journal


async def test_the_pulse_beats_for_all_runs_that_go_on_and_for_no_others() -> None:
    store = Hearing()
    pulse = Heartbeat(store, seconds=0.001)
    with pulse.keep_alive(journal_of("run_1", store)), pulse.keep_alive(Journal(store)):
        with pulse.keep_alive(journal_of("run_2", store)):
            assert await store.beats.get() == ["run_1", "run_2"]
        while await store.beats.get() != ["run_1"]:
            pass
    await pulse.close()


async def test_no_heartbeat_while_no_run_is_in_progress() -> None:
    store = Hearing()
    pulse = Heartbeat(store, seconds=0.001)
    with pulse.keep_alive(journal_of("run_1", store)):
        await store.beats.get()
    await pulse.close()
    while not store.beats.empty():
        store.beats.get_nowait()
    await asyncio.sleep(0.01)
    assert store.beats.empty()


async def test_a_failed_heartbeat_is_logged_and_the_next_ones_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Hearing(fails=1)
    pulse = Heartbeat(store, seconds=0.001)
    with caplog.at_level(logging.WARNING), pulse.keep_alive(journal_of("run_1", store)):
        while store.beats.qsize() < 2:
            await asyncio.sleep(0.001)
    await pulse.close()
    assert "cannot write the heartbeat of runs: the disk is full" in caplog.text


async def test_a_heartbeat_that_finds_a_run_taken_over_notifies_only_its_journal() -> None:
    store = Hearing()
    pulse = Heartbeat(store, seconds=0.001)
    kept, lost = journal_of("run_kept", store), journal_of("run_lost", store)
    with pulse.keep_alive(kept), pulse.keep_alive(lost):
        async with asyncio.timeout(5):
            while lost.taken_over is None:
                await asyncio.sleep(0.001)
    await pulse.close()
    assert kept.taken_over is None
