"""Runs that were cut off with their process, found by servers on the same store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from podium._util.process import this_process
from podium.client.client import AsyncPodium
from podium.conductors import Conductor, FixedConductor
from podium.config import ServerSettings
from podium.core.budget import SharedBudget
from podium.core.errors import StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.run import Round, Run, StepRecord, timestamp
from podium.core.workflow import Step, Workflow
from podium.server.access import AccessPolicy
from podium.server.api_error import ApiError
from podium.server.records import maintenance as recovering
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.maintenance import MAX_TAKEOVERS, RunRecovery
from podium.server.service import Service, open_service
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.postgres import Postgres

GONE = f"{this_process().rpartition(':')[0]}:999999999"
WORKFLOW = Workflow((Step("solo", "first"), Step("solo", "second", "all")))
FIRST = StepRecord(0, 0, "solo", "first", (), "done", "one", None, 0.0, 1.0, answered_by="solo")


def cut_off(number: int = 0, *, worker: str = "solo") -> Run:
    """A run whose process died after its first step."""
    return Run(
        id=f"run_{number}",
        question=f"Why {number}?",
        status="running",
        pool=Pool((WorkerProfile(name=worker),)),
        conductor="fixed",
        created_at=timestamp(),
        rounds=(Round(0, WORKFLOW, (FIRST,)),),
        process=GONE,
    )


class Worker(ScriptedWorker):
    """Says when it was asked, and answers when it may."""

    def __init__(self) -> None:
        super().__init__("solo", "two")
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.at_once = self.most_at_once = 0

    async def reply(self, request: Request) -> Reply:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_answer.wait()
            return await super().reply(request)
        finally:
            self.at_once -= 1


class GoodNoLonger(AccessPolicy):
    """Knows a key that was revoked meanwhile."""

    @asynccontextmanager
    async def shared_budget_for_run(self, run: Run) -> AsyncIterator[SharedBudget | None]:
        raise ApiError("unauthenticated", "this key was revoked")
        yield None


class Hindered(AccessPolicy):
    """Cannot say at first what a run may draw on."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    @asynccontextmanager
    async def shared_budget_for_run(self, run: Run) -> AsyncIterator[SharedBudget | None]:
        if self.errors:
            raise self.errors.pop()
        yield None


@dataclass
class Server:
    """What of a server goes on with runs, over a store of its own."""

    store: SqlRunStore
    worker: Worker
    service: Service
    recovery: RunRecovery

    async def until(self, is_so: Callable[[Run], bool], run_id: str = "run_0") -> Run:
        async with asyncio.timeout(10):
            while not is_so(run := await self.store.load(run_id)):
                await asyncio.sleep(0.005)
        return run


@pytest.fixture(params=["sqlite", "postgres"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "podium.db")
    server: Postgres = request.getfixturevalue("postgres")
    return await server.empty()


@asynccontextmanager
async def a_server(
    where: str, access: AccessPolicy | None = None, conductor: Conductor | None = None
) -> AsyncIterator[Server]:
    store, worker = await SqlRunStore.open(where), Worker()
    buffered = BufferedRunStore(store, shared=True, lease_seconds=0.1)
    podium = AsyncPodium([worker], conductor, store=buffered)
    service = await open_service(
        podium,
        buffered,
        access or AccessPolicy(),
        ServerSettings(in_flight=9, queue=9),
        audit=AuditRecorder(store.audit),
    )
    server = Server(store, worker, service, RunRecovery(service, every_seconds=0.01))
    try:
        yield server
    finally:
        await server.recovery.close()
        await podium.close()
        await buffered.close()


async def left_behind(where: str, *runs: Run) -> None:
    """A process wrote these runs, and died."""
    store = await SqlRunStore.open(where)
    for run in runs:
        await store.begin(run)
    await store.close()


def has_ended(run: Run) -> bool:
    return run.status != "running"


async def test_a_run_that_was_cut_off_is_carried_to_its_end_and_its_done_steps_are_kept(
    where: str,
) -> None:
    await left_behind(where, cut_off())
    async with a_server(where) as server:
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, run.answer, run.process) == ("answered", "two", this_process())
        assert run.steps[0] == FIRST
        assert server.worker.calls == 1
        counted = b'podium_runs_recovered_total{status="answered"} 1.0\n'
        async with asyncio.timeout(10):
            while counted not in server.service.metrics.render():
                await asyncio.sleep(0.005)


async def test_of_several_servers_one_continues_with_each_run(where: str) -> None:
    runs = [cut_off(number) for number in range(12)]
    await left_behind(where, *runs)
    async with a_server(where) as one, a_server(where) as other:
        one.recovery.start()
        other.recovery.start()
        for run in runs:
            assert (await one.until(has_ended, run.id)).status == "answered"
        assert one.worker.calls + other.worker.calls == len(runs)
        assert [run for run in await one.store.list() if run.status == "running"] == []
        async with asyncio.timeout(10):
            while len(entries := await one.store.audit.entries()) < len(runs):
                await asyncio.sleep(0.005)
        assert sorted(entry.subject for entry in entries) == sorted(run.id for run in runs)
        assert {entry.action for entry in entries} == {"run recovered"}


async def test_resumed_runs_are_limited(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovering, "MAX_CONCURRENT", 2)
    await left_behind(where, *(cut_off(number) for number in range(5)))
    async with a_server(where) as server:
        server.worker.may_answer.clear()
        server.recovery.start()
        while server.worker.at_once < 2:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        server.worker.may_answer.set()
        for number in range(5):
            await server.until(has_ended, f"run_{number}")
        assert server.worker.most_at_once == 2


async def test_a_server_that_is_about_to_stop_takes_nothing_over(where: str) -> None:
    await left_behind(where, cut_off())
    async with a_server(where) as server:
        await server.service.limiter.close(0)
        server.recovery.start()
        await asyncio.sleep(0.05)
        assert (await server.store.load("run_0")).process == GONE


async def test_a_run_that_a_stopping_server_was_at_is_left_to_the_next(where: str) -> None:
    await left_behind(where, cut_off())
    async with a_server(where) as server:
        server.worker.may_answer.clear()
        server.recovery.start()
        while not server.worker.at_once:
            await asyncio.sleep(0.005)
    async with a_server(where) as server:
        run = await server.store.load("run_0")
        assert (run.status, run.steps[0]) == ("running", FIRST)
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, run.steps[0], server.worker.calls) == ("answered", FIRST, 1)


async def test_a_run_is_released_in_one_write(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await left_behind(where, cut_off())
    written: list[tuple[str, str]] = []
    async with a_server(where) as server:
        finish = server.store.finish

        async def finishing(*runs: Run) -> None:
            written.extend((run.status, run.process) for run in runs)
            await finish(*runs)

        monkeypatch.setattr(server.store, "finish", finishing)
        server.worker.may_answer.clear()
        server.recovery.start()
        while not server.worker.at_once:
            await asyncio.sleep(0.005)
    assert written == [("running", "")]


async def test_a_run_with_only_dead_processes_is_ended_with_a_cause(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    await left_behind(where, cut_off())
    for _ in range(MAX_TAKEOVERS):
        store = await SqlRunStore.open(where)
        await store.claim("run_0", GONE, takeover=True)
        await store.close()
    async with a_server(where) as server:
        with caplog.at_level(logging.WARNING):
            server.recovery.start()
            run = await server.until(has_ended)
        assert (run.status, server.worker.calls) == ("failed", 0)
        assert run.error == f"its process died {MAX_TAKEOVERS + 1} times before a step was done"
    assert "run_0 failed: its process died" in caplog.text


async def test_a_run_with_an_invalid_key_is_ended_with_a_cause(where: str) -> None:
    await left_behind(where, cut_off())
    async with a_server(where, GoodNoLonger()) as server:
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, run.error) == ("failed", "this key was revoked")
        assert server.worker.calls == 0


@pytest.mark.parametrize(
    "error",
    [
        ApiError("overloaded", "keys cannot be looked up now; try again"),
        ApiError("rate_limited", "too many keys were tried"),
        StoreError("the connection was reset"),
    ],
)
async def test_a_run_resumes_after_its_key_could_not_be_read_for_a_moment(
    where: str, error: Exception
) -> None:
    await left_behind(where, cut_off())
    async with a_server(where, Hindered(error)) as server:
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, server.worker.calls) == ("answered", 1)


async def test_a_run_that_cannot_be_taken_for_a_moment_is_resumed_afterwards(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(where, cut_off())
    async with a_server(where) as server:
        claim, failures = server.store.claim, [StoreError("the connection was reset")]

        async def claiming(run_id: str, process: str, *, takeover: bool = False) -> Run:
            if failures:
                raise failures.pop()
            return await claim(run_id, process, takeover=takeover)

        monkeypatch.setattr(server.store, "claim", claiming)
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, server.worker.calls) == ("answered", 1)


async def test_a_run_without_its_recorded_workflow_gets_no_other(where: str) -> None:
    await left_behind(where, replace(cut_off(), rounds=()))
    async with a_server(where) as server:
        server.recovery.start()
        run = await server.until(has_ended)
        assert (run.status, server.worker.calls) == ("failed", 0)
        assert "before the workflow that it was given was on record; ask again" in str(run.error)


THEIRS = {
    "evolved(theirs)": "evolved(theirs)",
    "podium(evolved(theirs))": "evolved(theirs)",
    "mini(evolved(theirs))": "evolved(theirs)",
    "rules": "rules",
    "podium(model(solo))": "model(solo)",
}
"""Who led a run -> who of them is configured."""


async def test_a_coordinator_resumes_only_its_own_runs(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = [
        replace(cut_off(number), conductor=name) for number, name in enumerate(THEIRS, start=1)
    ]
    await left_behind(where, *theirs, replace(cut_off(), conductor="evolved(ours)"))
    ours = FixedConductor(WORKFLOW, name="evolved(ours)")
    async with a_server(where, conductor=ours) as server:
        server.recovery.start()
        assert (await server.until(has_ended)).status == "answered"
        await asyncio.sleep(0.03)
        assert [await server.store.load(run.id) for run in theirs] == theirs
        assert server.worker.calls == 1
    for run, led in zip(theirs, THEIRS.values(), strict=True):
        assert (
            f"{run.id} was planned by {led}, and the conductor here is evolved(ours)" in caplog.text
        )


async def test_routed_runs_resume_with_a_coordinator_configured(
    where: str,
) -> None:
    await left_behind(where, replace(cut_off(), conductor="router", tier="mini"))
    ours = FixedConductor(WORKFLOW, name="evolved(ours)")
    async with a_server(where, conductor=ours) as server:
        server.recovery.start()
        assert (await server.until(has_ended)).status == "answered"


async def test_runs_of_others_and_those_that_wait_for_tools_are_left_alone(where: str) -> None:
    foreign, waiting = cut_off(1, worker="theirs"), replace(cut_off(2), status="waiting")
    await left_behind(where, foreign, waiting, cut_off())
    async with a_server(where) as server:
        server.recovery.start()
        await server.until(has_ended)
        await asyncio.sleep(0.03)
        assert await server.store.load("run_1") == foreign
        assert await server.store.load("run_2") == waiting


async def test_a_run_under_another_guardrail_is_left_to_the_server_that_has_it(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = replace(cut_off(1), guardrails=("privacy",))
    await left_behind(where, guarded, cut_off())
    async with a_server(where) as server:
        with caplog.at_level(logging.WARNING):
            server.recovery.start()
            await server.until(has_ended)
            async with asyncio.timeout(10):
                while "'privacy', which is not in force now" not in caplog.text:
                    await asyncio.sleep(0.005)
        assert await server.store.load("run_1") == replace(guarded, process="")
        assert server.worker.calls == 1


async def test_a_store_that_fails_for_a_while_is_asked_again(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(where, cut_off())
    async with a_server(where) as server:
        monkeypatch.setattr(server.store.database, "is_closed", True)
        with caplog.at_level(logging.WARNING):
            server.recovery.start()
            await asyncio.sleep(0.03)
        assert "cannot search for abandoned runs" in caplog.text
        monkeypatch.setattr(server.store.database, "is_closed", False)
        assert (await server.until(has_ended)).status == "answered"
