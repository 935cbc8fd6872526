"""A great many runs in one process: does anything grow?

Of twenty, twelve go through the library and six through the server's application, as a server
process has it, both over a keeper and SQLite; one through the library with the journal alone,
which writes each step as it ends; and one to a worker by its own name. Half of them stream, and
half of the runs are of one step, half of three. The workers are scripted, so nothing is waited
for. Old runs are deleted on the way, as `keep_days` has it, or the files would grow by what is
kept in them. Whatever is asked is forgotten here once it is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from benchmarks.chaos.gauges import (
    LEAST_GROWTH_BYTES,
    MIB,
    SLOPE_RUNS,
    Gauge,
    growing,
    read_gauge,
    slope,
)
from benchmarks.chaos.row import ChaosRow
from benchmarks.chaos.turns import in_turns
from benchmarks.heap import settled_heap
from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor
from podium.conductors.plan import read_workflow
from podium.config import Settings, current_settings
from podium.core.run import Tier, timestamp
from podium.core.usage import Price
from podium.server.operation.startup import application
from podium.server.records.buffered_store import BufferedRunStore
from podium.store import RunStore, open_store
from podium.workers.scripted import ScriptedWorker

IN_FLIGHT: Final = 16
SLICES: Final = 20
WARM_SHARE: Final = 0.25
"""What is filled by so many of the runs is warm; growth is judged from there on."""

DATABASES: Final = ("library.db", "journal.db", "server.db")
ANSWER: Final = "It holds."
PATH: Final = "/v1/chat/completions"

CONFIGURATION: Final = """
[conductor]
kind = "fixed"
workflow = "workflow.json"

[store]
path = "server.db"

[[worker]]
name = "solo"
provider = "scripted"
description = "answers at once"
price = { input = 1.0, output = 2.0 }
options = { reply = "It holds." }
"""

WORKFLOW: Final = {
    "steps": [
        {"worker": "solo", "subtask": "Think", "access": []},
        {"worker": "solo", "subtask": "Doubt", "access": []},
        {"worker": "solo", "subtask": "Decide", "access": [0, 1]},
    ]
}


async def measure_soak(runs: int, slices: int = SLICES) -> ChaosRow:
    """So many runs, with a look at what the process holds after each slice of them."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as name:
        directory = Path(name)
        (directory / "podium.toml").write_text(CONFIGURATION, "utf-8")
        (directory / "workflow.json").write_text(json.dumps(WORKFLOW), "utf-8")
        settings = await current_settings(os.environ, config=directory / "podium.toml")
        async with AsyncExitStack() as stack:
            soak = await Soak.opened(settings, directory, stack)
            with settled_heap():
                gauges = [await soak.slice(max(1, runs // slices)) for _ in range(slices)]
    return _row(soak, gauges, time.perf_counter() - started)


class Soak:
    """The library and the application, open in this process. Made by `opened`."""

    def __init__(
        self, library: AsyncPodium, journaling: AsyncPodium, app: FastAPI, directory: Path
    ) -> None:
        self._library = library
        self._journalled = journaling
        self._app = app
        self._databases = [directory / name for name in DATABASES]
        self.done = 0
        self.lost = 0
        self.seconds = 0.0

    @classmethod
    async def opened(cls, settings: Settings, directory: Path, stack: AsyncExitStack) -> Soak:
        """Open all of it, for as long as the stack is."""

        async def find() -> Settings:
            return settings

        app = application(find)
        await stack.enter_async_context(app.router.lifespan_context(app))
        keeper = BufferedRunStore(await open_store(directory / "library.db"))
        stack.push_async_callback(keeper.close)
        conductor = FixedConductor(read_workflow(WORKFLOW, settings.pool))
        library, journaling = [
            await stack.enter_async_context(AsyncPodium([_worker()], conductor, store=store))
            for store in (keeper, directory / "journal.db")
        ]
        return cls(library, journaling, app, directory)

    async def slice(self, runs: int) -> Gauge:
        """So many more runs; then delete them, and see what is held."""
        began = time.perf_counter()
        await in_turns(runs, IN_FLIGHT, self._one)
        self.seconds += time.perf_counter() - began
        self.done += runs
        stores = (await self._library.store(), await self._journalled.store(), self._keeper())
        for store in stores:
            await store.delete_before(timestamp())
        return read_gauge(self.done, self._databases)

    def _keeper(self) -> RunStore:
        keeper: RunStore = self._app.state.holder().keeper
        return keeper

    async def _one(self, number: int) -> None:
        turn, streams = number % 20, number % 2 == 1
        tier: Tier = "mini" if number % 4 < 2 else "ultra"
        if turn == 0:
            answer = await answered(self._app, "solo", stream=number % 40 == 0)
        elif turn > 13:
            answer = await answered(self._app, f"podium-{tier}", stream=streams)
        else:
            podium = self._journalled if turn == 1 else self._library
            answer = (await podium.ask("What holds?", tier=tier, stream=streams)).answer or ""
        self.lost += answer != ANSWER


def _worker() -> ScriptedWorker:
    """The worker of the pool's file, but for its memory of what it was asked."""
    return ScriptedWorker("solo", ANSWER, price=Price(input=1, output=2), keep_requests=0)


async def answered(app: FastAPI, model: str, *, stream: bool) -> str:
    """The answer of the application to a plain question, asked without a network."""
    document = {"model": model, "messages": [{"role": "user", "content": "What holds?"}]}
    body = json.dumps({**document, "stream": stream}).encode()
    sent: list[bytes] = []
    incoming = iter(({"type": "http.request", "body": body, "more_body": False},))
    is_over = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        for message in incoming:
            return message
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    headers = ((b"host", b"127.0.0.1"), (b"content-type", b"application/json"))
    try:
        await app({**_SCOPE, "headers": headers}, receive, send)
    finally:
        is_over.set()
    return _text_of(b"".join(sent), stream=stream)


_SCOPE: Final = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": PATH,
    "raw_path": PATH.encode(),
    "query_string": b"",
    "root_path": "",
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 7755),
}


def _text_of(content: bytes, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(content)["choices"][0]["message"]["content"])
    events = [line[6:] for line in content.split(b"\n") if line.startswith(b"data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def _row(soak: Soak, gauges: list[Gauge], seconds: float) -> ChaosRow:
    warm = gauges[round(len(gauges) * WARM_SHARE) :]
    first, last = warm[0], warm[-1]
    rate = soak.done / soak.seconds
    memory = slope(warm, "bytes") / MIB
    in_all = memory * (last.runs - first.runs) / SLOPE_RUNS
    return ChaosRow(
        name="soak",
        runs=soak.done,
        lost=soak.lost,
        answered_share=1 - soak.lost / soak.done,
        seconds=seconds,
        note=(
            f"{rate:,.0f} runs/s; memory {first.bytes / MIB:.1f} to {last.bytes / MIB:.1f} MiB, "
            f"{memory:+.2f} MiB in {SLOPE_RUNS:,} runs, {in_all:+.2f} MiB in all "
            f"(less than {LEAST_GROWTH_BYTES // MIB} is no growth)"
        ),
        broken=growing(warm),
        figures={
            "runs_per_second": round(rate, 1),
            "mib_warm": round(first.bytes / MIB, 2),
            "mib_end": round(last.bytes / MIB, 2),
            "mib_per_10000_runs": round(memory, 4),
            "objects_per_10000_runs": round(slope(warm, "objects"), 1),
            **{
                f"{name}_{when}": getattr(gauge, name)
                for name in ("files", "tasks", "threads", "connections", "locks", "wal_bytes")
                for when, gauge in (("warm", first), ("end", last))
            },
        },
    )
