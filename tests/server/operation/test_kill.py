"""Servers that are killed, paused and started again while they answer: real processes, a real
SQLite file and a real Postgres."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium.core.run import Run
from podium.store import EVERY_RUN
from podium.store.sql.run_store import SqlRunStore
from support.postgres import Postgres
from support.replicas import PATIENCE, Replica, Upstream, body_of, replicas, upstream

CHAT = "/v1/chat/completions"


async def asked(server: Replica, question: str, parts: int, *, named: bool = True) -> str:
    """Ask as a client that does not give up: the same request again until it is answered."""
    headers = {"Idempotency-Key": question} if named else {}
    async with httpx.AsyncClient(timeout=PATIENCE) as client, asyncio.timeout(PATIENCE):
        while True:
            try:
                response = await client.post(
                    server.address + CHAT, json=body_of(question, parts), headers=headers
                )
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            assert response.status_code == 200, response.text
            answer: str = response.json()["choices"][0]["message"]["content"]
            return answer


async def on_record(where: str) -> list[Run]:
    """Every run, as far as it has come."""
    store = await SqlRunStore.open(where)
    try:
        return [await store.load(item.id) for item in await store.list(EVERY_RUN, limit=100)]
    finally:
        await store.close()


def done(runs: list[Run]) -> set[str]:
    """The parts of questions that are done, as the runs say."""
    return {step.subtask for run in runs for step in run.steps if step.status == "done"}


async def recovered_by(server: Replica) -> int:
    """How many runs it has taken over and answered, as it counts them."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        page = (await client.get(server.address + "/metrics")).text
    found = re.search(r'podium_runs_recovered_total{status="answered"} (\d+)', page)
    return int(found[1]) if found else 0


async def until(where: str, count: int) -> list[Run]:
    """The runs once so many of them have ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            runs = await on_record(where)
            if sum(run.status != "running" for run in runs) >= count:
                return runs
            await asyncio.sleep(0.05)


async def test_runs_cut_off_by_kill_9_finish_without_repeating_steps(
    tmp_path: Path,
) -> None:
    where, chance = tmp_path / "runs.db", random.Random(7)
    questions, parts = [f"q{n}" for n in range(6)], 4
    kept: dict[str, int] = {}
    with (
        upstream(0.5) as counting,
        replicas(tmp_path, 'path = "runs.db"', counting.address, 1) as (server,),
    ):
        asking = [asyncio.create_task(asked(server, item, parts)) for item in questions]
        for _ in range(2):
            while not done(await on_record(str(where))) - kept.keys():
                await asyncio.sleep(0.02)
            await asyncio.sleep(chance.uniform(0, 0.4))
            server.send(signal.SIGKILL)
            for part in done(await on_record(str(where))):
                kept.setdefault(part, counting.asked[part])
            server.start()
            await asyncio.to_thread(server.await_start)
        answers = await asyncio.gather(*asking)
        runs = await on_record(str(where))
        assert answers == [f"done: part {parts - 1} of {item}" for item in questions]
        assert len(runs) == len(questions), "a request that is sent again begins no second run"
        assert {run.status for run in runs} == {"answered"}
        assert {part: counting.asked[part] for part in kept} == kept
        assert all(run.spent.calls == parts for run in runs)


@pytest.fixture(scope="module")
def counting() -> Iterator[Upstream]:
    with upstream(0.15) as listening:
        yield listening


@pytest.fixture(scope="module")
def pair(
    postgres: Postgres, counting: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Replica]]:
    """Two servers over one Postgres."""
    where = asyncio.run(postgres.empty("replicas"))
    directory = tmp_path_factory.mktemp("pair")
    with replicas(directory, f'url = "{where}"', counting.address, 2) as servers:
        yield servers


@pytest.fixture
def where(postgres: Postgres) -> str:
    return postgres.address("replicas")


def test_a_run_that_waits_for_tools_continues_at_the_other_replica(pair: list[Replica]) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "what time is it?"}]
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    body = {"model": "podium-mini", "messages": messages, "tools": [tool]}
    first = httpx.post(pair[0].address + CHAT, json=body, timeout=PATIENCE)
    message = first.json()["choices"][0]["message"]
    call = message["tool_calls"][0]["id"]
    messages += [message, {"role": "tool", "tool_call_id": call, "content": "noon"}]
    second = httpx.post(pair[1].address + CHAT, json=body, timeout=PATIENCE)
    assert second.json()["choices"][0]["message"]["content"] == "done: so"
    assert second.headers["X-Podium-Run"] == first.headers["X-Podium-Run"]


async def test_a_replica_that_was_paused_for_longer_than_its_lease_is_fenced(
    pair: list[Replica], where: str, counting: Upstream
) -> None:
    paused, other = pair
    before = len(await on_record(where))
    asking = [
        asyncio.create_task(asked(paused, "paused", 3)),
        asyncio.create_task(asked(paused, "plain", 3, named=False)),
    ]
    while not all(counting.asked[f"part 0 of {item}"] for item in ("paused", "plain")):
        await asyncio.sleep(0.01)
    paused.send(signal.SIGSTOP)
    try:
        runs = (await until(where, before + 2))[:2]
    finally:
        paused.send(signal.SIGCONT)
    assert other.process is not None
    for run in runs:
        assert (run.status, run.process.rpartition(":")[2]) == ("answered", str(other.process.pid))
    answers = [f"done: part 2 of {item}" for item in ("paused", "plain")]
    assert await asyncio.gather(*asking) == answers, "clients are told what is on record"
    assert "was taken over by" in paused.log
    assert (await on_record(where))[:2] == runs, "nothing was written over them"


async def test_the_runs_of_a_replica_that_is_killed_are_finished_by_the_other(
    pair: list[Replica], where: str, counting: Upstream
) -> None:
    killed, other = pair
    questions = [f"k{n}" for n in range(6)]
    before, recovered = len(await on_record(where)), await recovered_by(other)
    counting.held = "part 3"
    asking = [asyncio.create_task(asked(killed, item, 4)) for item in questions]
    while not all(counting.asked[f"part 1 of {item}"] for item in questions):
        await asyncio.sleep(0.01)
    while not any(part.endswith(tuple(questions)) for part in done(await on_record(where))):
        await asyncio.sleep(0.01)
    killed.send(signal.SIGKILL)
    left = await on_record(where)
    kept = {part: counting.asked[part] for part in done(left)}
    counting.released.set()
    runs = (await until(where, before + len(questions)))[: len(questions)]
    for item in asking:
        item.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert {run.status for run in runs} == {"answered"}
    assert {run.question for run in runs} == {f"the question {item}" for item in questions}
    assert {part: counting.asked[part] for part in kept} == kept
    assert await recovered_by(other) == recovered + len(questions)
