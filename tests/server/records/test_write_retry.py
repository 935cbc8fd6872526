"""Runs that ended while the store was away."""

from __future__ import annotations

import asyncio
import logging

import pytest

from podium.core.errors import RunTakenOver, StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run
from podium.server.records import buffered_store as owing
from podium.server.records.buffered_store import WriteRetryQueue

AWAY = StoreError("the database is away")


def a_run(id_: str) -> Run:
    return Run(
        id=id_,
        question="Why?",
        status="answered",
        answer="yes",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
    )


class Store:
    """Takes runs, unless it is away; of some it never does."""

    def __init__(self) -> None:
        self.is_away = True
        self.never: dict[str, Exception] = {}
        self.tries = 0
        self.written: list[str] = []

    async def write(self, run: Run) -> None:
        self.tries += 1
        if self.is_away:
            raise AWAY
        if run.id in self.never:
            raise self.never[run.id]
        self.written.append(run.id)

    async def until_written(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.written) < count:
                await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owing, "RETRY_SECONDS", 0.001)


async def test_all_are_written_by_themselves_as_soon_as_the_store_is_back() -> None:
    queue = WriteRetryQueue((store := Store()).write)
    for number in range(5):
        queue.add(a_run(f"run_{number}"), AWAY)
    await asyncio.sleep(0.01)
    assert queue.get("run_3") == a_run("run_3")
    store.is_away = False
    await store.until_written(5)
    assert "run_3" not in queue
    await queue.close()
    assert len(store.written) == 5, "each once"


async def test_a_store_that_is_away_is_tried_with_one_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owing, "RETRY_SECONDS", 60.0)
    queue = WriteRetryQueue((store := Store()).write)
    for number in range(50):
        queue.add(a_run(f"run_{number}"), AWAY)
    await queue.write()
    assert store.tries == 1
    store.is_away = False
    await queue.close()
    assert len(store.written) == 50


async def test_a_run_that_the_store_never_takes_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = WriteRetryQueue((store := Store()).write)
    store.is_away, store.never = False, {"run_0": StoreError("a reply is too large")}
    for number in range(3):
        queue.add(a_run(f"run_{number}"), AWAY)
    await store.until_written(2)
    assert "run_0" in queue
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        await queue.close()
    assert sorted(store.written) == ["run_1", "run_2"]
    assert "run_0 was not stored" in caplog.text


async def test_a_run_taken_over_by_another_process_leaves_the_retry_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = WriteRetryQueue((store := Store()).write)
    store.is_away, store.never = False, {"run_0": RunTakenOver("run_0 is another's")}
    queue.add(a_run("run_0"), AWAY)
    with caplog.at_level(logging.WARNING):
        await queue.write()
    assert "run_0" not in queue
    assert "run_0 was not stored: run_0 is another's" in caplog.text
    await queue.close()


async def test_held_items_are_bounded_in_number_and_time(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owing, "MAX_RETRIED", 2)
    monkeypatch.setattr(owing, "RETRY_LIMIT_SECONDS", -1.0)
    queue = WriteRetryQueue(Store().write)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            queue.add(a_run(f"run_{number}"), AWAY)
        assert ["run_0" in queue, "run_1" in queue] == [False, True]
        assert "run_0 was not stored: more than 2 runs wait for the store" in caplog.text
        await queue.write()
    assert "run_1" not in queue
    assert "run_1 was not stored: the database is away" in caplog.text
    await queue.close()
