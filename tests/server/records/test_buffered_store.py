from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from podium.core.errors import Conflict, NotFound, RunTakenOver, StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Round, Run, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.records import buffered_store as keeping
from podium.server.records import buffered_store as owed
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.repository import RunRepository
from podium.store import AbandonedRun, RunStore, open_store

WORKFLOW = Workflow((Step("solo", "answer"),))
STEP = StepRecord(0, 0, "solo", "answer", (), "done", "yes", None, 0.0, 1.0)


def a_run(id_: str = "run_1") -> Run:
    return Run(
        id=id_,
        question="Why?",
        status="running",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
    )


def ended(id_: str = "run_1") -> Run:
    return replace(a_run(id_), status="answered", answer="yes")


class Written(RunStore):
    """Remembers what it was given; `finish` waits for the gate and may fail."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, ...]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails: set[str] = set()

    async def begin(self, run: Run) -> None:
        self.writes.append(("begin", run.id))

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        self.writes.append(("plan" if isinstance(content, Round) else "step", run_id))

    async def finish(self, *runs: Run) -> None:
        await self.gate.wait()
        if self.fails & {run.id for run in runs}:
            raise StoreError("the disk is full")
        self.writes.append(("finish", *(run.id for run in runs)))

    async def delete(self, run_id: str) -> None:
        self.writes.append(("delete", run_id))


async def test_a_run_that_ends_soon_is_written_once() -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    await buffered.begin(a_run())
    await buffered.save("run_1", Round(0, WORKFLOW))
    await buffered.save("run_1", STEP)
    await buffered.finish(ended())
    await buffered.close()
    assert store.writes == [("finish", "run_1")]


async def test_runs_that_end_while_another_is_written_are_written_together() -> None:
    store = Written()
    store.gate.clear()
    buffered = BufferedRunStore(store)
    await buffered.finish(ended("run_1"))
    await asyncio.sleep(0)
    await buffered.finish(ended("run_2"))
    await buffered.finish(ended("run_3"))
    store.gate.set()
    await buffered.close()
    assert store.writes == [("finish", "run_1"), ("finish", "run_2", "run_3")]


async def test_a_run_in_progress_is_written_as_it_happens() -> None:
    store = Written()
    buffered = BufferedRunStore(store, write_delay=0)
    await buffered.begin(a_run())
    await buffered.save("run_1", Round(0, WORKFLOW))
    async with asyncio.timeout(5):
        while len(store.writes) < 2:
            await asyncio.sleep(0)
    assert store.writes == [("begin", "run_1"), ("plan", "run_1")]
    await buffered.save("run_1", STEP)
    assert store.writes[-1] == ("step", "run_1")
    await buffered.finish(ended())
    await buffered.close()
    assert store.writes[-1] == ("finish", "run_1")


async def test_pending_writes_finish_when_the_server_ends() -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    await buffered.begin(a_run())
    await buffered.close()
    assert store.writes == [("begin", "run_1")]


async def test_a_run_is_found_before_it_is_written() -> None:
    store = Written()
    store.gate.clear()
    buffered = BufferedRunStore(store)
    await buffered.finish(ended())
    assert (await buffered.load("run_1")).answer == "yes"
    await asyncio.sleep(0)
    assert (await buffered.load("run_1")).answer == "yes", "also while it is being written"
    store.gate.set()


async def test_of_a_run_that_is_left_out_nothing_is_kept() -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    buffered.do_not_store(a_run())
    await buffered.begin(a_run())
    await buffered.save("run_1", STEP)
    await buffered.finish(ended())
    with pytest.raises(NotFound):
        await buffered.load("run_1")
    await buffered.close()
    assert store.writes == []


async def test_a_run_that_is_left_out_is_held_while_it_waits_for_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    waiting = replace(a_run(), status="waiting")
    buffered.do_not_store(waiting)
    await buffered.finish(waiting)
    assert await buffered.load("run_1") == waiting
    await buffered.begin(a_run())
    await buffered.finish(ended())
    assert store.writes == [], "resumed, it is still not to be kept"
    buffered.do_not_store(waiting)
    monkeypatch.setattr(keeping, "HELD_SECONDS", -1)
    await buffered.finish(waiting)
    with pytest.raises(NotFound):
        await buffered.load("run_1")


async def test_a_held_run_can_be_deleted() -> None:
    buffered = BufferedRunStore(Written())
    waiting = replace(a_run(), status="waiting")
    buffered.do_not_store(waiting)
    await buffered.finish(waiting)
    await buffered.delete("run_1")
    with pytest.raises(NotFound):
        await buffered.load("run_1")


async def test_deleting_waits_for_what_is_still_to_be_written() -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    await buffered.finish(ended())
    await buffered.delete("run_1")
    assert store.writes == [("finish", "run_1"), ("delete", "run_1")]


async def test_one_run_that_cannot_be_stored_costs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Written()
    store.fails = {"run_2"}
    store.gate.clear()
    buffered = BufferedRunStore(store)
    await buffered.finish(ended("run_1"))
    await asyncio.sleep(0)
    await buffered.finish(ended("run_2"))
    await buffered.finish(ended("run_3"))
    with caplog.at_level(logging.WARNING):
        store.gate.set()
        await buffered.close()
    assert store.writes == [("finish", "run_1"), ("finish", "run_3")]
    assert "run_2 was not stored: the disk is full" in caplog.text


async def test_shared_stores_have_runs_before_they_end() -> None:
    store = Written()
    store.gate.clear()
    buffered = BufferedRunStore(store, shared=True)
    ending = [asyncio.create_task(buffered.finish(ended(f"run_{n}"))) for n in range(3)]
    await asyncio.sleep(0.001)
    assert not any(task.done() for task in ending)
    store.gate.set()
    await asyncio.wait_for(asyncio.gather(*ending), 5)
    assert sorted(run for _, *runs in store.writes for run in runs) == ["run_0", "run_1", "run_2"]


async def test_shared_stores_keep_unstored_runs_while_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path / "runs.db")
    here, there = BufferedRunStore(store, shared=True), BufferedRunStore(store, shared=True)
    waiting = replace(a_run(), status="waiting")
    here.do_not_store(waiting)
    await here.finish(waiting)
    assert (await there.load("run_1")).status == "waiting"
    there.do_not_store(waiting)
    await there.begin(a_run())
    await there.finish(ended())
    assert await store.list() == []
    monkeypatch.setattr(keeping, "HELD_SECONDS", -1)
    here.do_not_store(waiting)
    await here.finish(waiting)
    await here.close()
    restarted = await open_store(tmp_path / "runs.db")
    assert len(await restarted.list()) == 1
    assert await restarted.delete_expired() == 1
    assert await restarted.list() == []
    await restarted.close()


async def test_a_run_that_is_held_is_taken_up_once() -> None:
    buffered = BufferedRunStore(Written())
    waiting = replace(a_run(), status="waiting")
    buffered.do_not_store(waiting)
    await buffered.finish(waiting)
    assert await buffered.claim("run_1", "here:1") == waiting
    assert await buffered.is_claimed("run_1")
    with pytest.raises(Conflict):
        await buffered.claim("run_1", "here:1")
    await buffered.finish(waiting)
    assert not await buffered.is_claimed("run_1")
    assert await buffered.claim("run_1", "here:1") == waiting, "it was let go"


async def test_a_run_is_performed_before_its_beginning_is_written() -> None:
    store = Written()
    buffered = BufferedRunStore(store)
    await buffered.begin(a_run())
    assert await buffered.is_claimed("run_1")
    assert await buffered.load("run_1") == a_run()
    with pytest.raises(Conflict):
        await buffered.claim("run_1", "here:1")
    await buffered.finish(ended())
    assert not await buffered.is_claimed("run_1")


async def test_a_run_that_ends_while_its_beginning_is_written_is_found_throughout() -> None:
    class Slow(Written):
        def __init__(self) -> None:
            super().__init__()
            self.begins, self.may_begin = asyncio.Event(), asyncio.Event()

        async def begin(self, run: Run) -> None:
            self.begins.set()
            await self.may_begin.wait()
            await super().begin(run)

    store = Slow()
    store.gate.clear()
    buffered = BufferedRunStore(store, write_delay=0.0)
    await buffered.begin(a_run())
    await store.begins.wait()
    ending = asyncio.create_task(buffered.finish(ended()))
    await asyncio.sleep(0)  # it waits for the beginning now
    assert await buffered.load("run_1") == a_run()
    store.may_begin.set()
    await ending
    assert await buffered.load("run_1") == ended()
    store.gate.set()
    await buffered.close()
    assert store.writes == [("begin", "run_1"), ("finish", "run_1")]


async def test_a_run_is_taken_up_as_it_ended_though_that_is_still_to_be_written(
    tmp_path: Path,
) -> None:
    store = await open_store(tmp_path / "runs.db")
    buffered = BufferedRunStore(store)
    waiting = replace(a_run(), status="waiting")
    await buffered.finish(waiting)
    assert await buffered.claim("run_1", "another-machine:1") == waiting
    assert await store.is_claimed("run_1")
    await buffered.close()


class Busy(Written):
    """Another run ends whenever some are written, a thousand times."""

    buffered: BufferedRunStore
    most = 1000

    async def finish(self, *runs: Run) -> None:
        await super().finish(*runs)
        await asyncio.sleep(0)
        if len(self.writes) < self.most:
            await self.buffered.finish(ended(f"later_{len(self.writes)}"))

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        return ended(run_id)


Reading = Callable[[BufferedRunStore], Awaitable[object]]


@pytest.mark.parametrize(
    "reading",
    [
        lambda buffered: buffered.list(),
        lambda buffered: buffered.flush(),
        lambda buffered: buffered.delete_before("2026-01-01"),
        lambda buffered: buffered.delete("run_2"),
        lambda buffered: buffered.claim("run_2", "here:1"),
        lambda buffered: buffered.begin(a_run("run_2")),
    ],
    ids=["list", "settled", "delete_before", "delete", "claim", "begin"],
)
async def test_flushing_does_not_wait_for_later_runs(reading: Reading) -> None:
    store = Busy()
    store.buffered = buffered = BufferedRunStore(store)
    await buffered.finish(ended("run_1"))
    await asyncio.sleep(0)
    await buffered.finish(ended("run_2"))
    await reading(buffered)
    finished = [runs for what, *runs in store.writes if what == "finish"]
    assert any("run_2" in runs for runs in finished), "what had ended is written"
    assert len(finished) < 10, "what ends meanwhile is not waited for"
    await buffered.close()


async def test_a_broken_store_blocks_no_request() -> None:
    class Broken(Written):
        async def finish(self, *runs: Run) -> None:
            await super().finish(*runs)
            raise RuntimeError("no store any more")

    buffered = BufferedRunStore(store := Broken())
    store.gate.clear()
    await buffered.finish(ended("run_1"))
    await asyncio.sleep(0)
    await buffered.finish(ended("run_2"))
    waiting = asyncio.create_task(buffered.flush())
    await asyncio.sleep(0)
    store.gate.set()
    async with asyncio.timeout(5):
        await waiting
        await buffered.close()


@pytest.mark.parametrize("shared", [False, True])
async def test_a_run_that_ends_while_the_store_is_away_is_found_and_written_when_it_is_back(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owed, "RETRY_SECONDS", 0.001)
    store = Written()
    buffered = BufferedRunStore(store, shared=shared)
    await buffered.begin(a_run())
    store.fails = {"run_1"}
    await asyncio.wait_for(buffered.finish(ended()), 5)
    await asyncio.sleep(0.01)
    assert (await buffered.load("run_1")).answer == "yes"
    assert not await buffered.is_claimed("run_1")
    with pytest.raises(StoreError, match="before its last state is stored"):
        await buffered.claim("run_1", "here:1")
    store.fails = set()
    async with asyncio.timeout(5):
        while ("finish", "run_1") not in store.writes:
            await asyncio.sleep(0.001)
    await buffered.close()
    assert store.writes.count(("finish", "run_1")) == 1


class Forsaken(Written):
    """Has a run that no process says to be at work on."""

    is_away = False

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        if self.is_away:
            raise StoreError("the database is away")
        return [AbandonedRun(id="run_1", owner="", takeovers=0)]


async def test_a_run_that_has_ended_here_is_not_taken_over_while_that_is_to_be_written() -> None:
    store = Forsaken()
    buffered = BufferedRunStore(store, shared=True)
    assert [run.id for run in await buffered.list_abandoned(9)] == ["run_1"]
    store.fails = {"run_1"}
    await buffered.finish(ended())
    assert list(await buffered.list_abandoned(9)) == []
    store.fails = set()
    await buffered.list_abandoned(9)
    assert store.writes == [("finish", "run_1")], "its end comes before anything else"
    await buffered.close()


@pytest.mark.parametrize(("lease_seconds", "is_over"), [(60.0, False), (0.002, True)])
async def test_after_a_store_was_away_others_may_say_that_they_are_at_work_before_they_lose_runs(
    lease_seconds: float, is_over: bool
) -> None:
    store = Forsaken()
    buffered = BufferedRunStore(store, shared=True, lease_seconds=lease_seconds)
    archive = RunRepository(buffered)
    assert not await archive.is_claimed(a_run())
    store.is_away = True
    with pytest.raises(StoreError):
        await buffered.list_abandoned(9)
    store.is_away = False
    await asyncio.sleep(0.005)
    found = [run.id for run in await buffered.list_abandoned(9)]
    assert found == (["run_1"] if is_over else [])
    assert await archive.is_claimed(a_run()) is not is_over, "who sends it again waits as well"
    assert not await archive.is_claimed(ended())
    await buffered.close()


async def test_only_runs_that_are_written_get_a_beat() -> None:
    class Hearing(Written):
        async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
            self.writes.append(("heartbeat", *run_ids))
            return ["run_2"]

    store = Hearing()
    buffered = BufferedRunStore(store)
    await buffered.begin(a_run("run_1"))
    assert not await buffered.heartbeat(["run_1"])
    assert await buffered.heartbeat(["run_1", "run_2"]) == ["run_2"], "that one is lost"
    assert store.writes == [("heartbeat", "run_2")]
    await buffered.finish(ended("run_1"))
    await buffered.close()


async def test_in_a_shared_store_a_run_is_written_as_it_begins() -> None:
    buffered = BufferedRunStore(store := Written(), shared=True)
    await buffered.begin(a_run())
    assert store.writes == [("begin", "run_1")]
    await buffered.save("run_1", Round(0, WORKFLOW))
    await buffered.save("run_1", STEP)
    assert store.writes[1:] == [("plan", "run_1"), ("step", "run_1")]
    await buffered.close()


async def test_ending_a_run_that_was_taken_over_is_an_error() -> None:
    class Lost(Written):
        async def finish(self, *runs: Run) -> None:
            if any(run.id == "run_1" for run in runs):
                raise RunTakenOver("run_1 is another's")
            await super().finish(*runs)

    buffered = BufferedRunStore(store := Lost(), shared=True)
    ends = (buffered.finish(ended("run_1")), buffered.finish(ended("run_2")))
    lost, kept = await asyncio.gather(*ends, return_exceptions=True)
    assert isinstance(lost, RunTakenOver)
    assert (kept, store.writes) == (None, [("finish", "run_2")])
    await buffered.close()
