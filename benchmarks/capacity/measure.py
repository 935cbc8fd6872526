"""Measure all stations under all loads, each started anew."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.capacity import database
from benchmarks.capacity.database import (
    allow_many_connections,
    family_cpu_seconds,
    family_memory_bytes,
)
from benchmarks.capacity.report import Capacity, Database, Memory, Row
from benchmarks.environment import Say
from benchmarks.load_client import Call, Flood, connect, flood
from benchmarks.postgres import programs, running_postgres
from benchmarks.processes import (
    Started,
    free_port,
    run_on_fast_loop,
    server_process,
    upstream_process,
)
from benchmarks.server import once_idle
from benchmarks.upstream import MODEL, WHOLE
from podium.core.errors import ConfigError

MOST_IN_FLIGHT: Final = 5000
"""More than any measurement uses, so that no request waits."""

THREE_STEPS: Final = {
    "steps": [
        {"worker": MODEL, "subtask": "Find what is asked", "access": []},
        {"worker": MODEL, "subtask": "Reckon", "access": [0]},
        {"worker": MODEL, "subtask": "Answer", "access": "all"},
    ]
}

CONFIGURATION: Final = """
[conductor]
kind = "fixed"
workflow = "three-steps.json"

[store]
{store}

[server]
in_flight = {in_flight}

[[worker]]
name = "{model}"
provider = "openai-compatible"
model = "{model}"
base_url = "http://127.0.0.1:{upstream}/v1"
price = {{ input = 1.0, output = 1.0 }}
limits = {{ concurrency = {in_flight} }}
"""


class Load(NamedTuple):
    """A model name and the number of steps of its run; none for a worker by name."""

    name: str
    model: str
    steps: int


LOADS: Final = (
    Load("a worker by its name", MODEL, 0),
    Load("a run of one step", "podium-mini", 1),
    Load("a run of three steps", "podium-ultra", 3),
)


@dataclass(frozen=True, slots=True)
class Station:
    """A number of replicas with a number of processes each; over SQLite without `url`."""

    name: str
    replicas: int = 1
    workers: int = 1
    url: str | None = None

    @property
    def processes(self) -> int:
        """The number of processes."""
        return self.replicas * self.workers


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a station, ready."""

    servers: Sequence[Started]

    @property
    def ports(self) -> list[int]:
        """Their ports."""
        return [server.port for server in self.servers]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all their processes."""
        return sum(family_cpu_seconds(server.process.pid) for server in self.servers)

    @property
    def memory_bytes(self) -> int:
        """Memory of all their processes."""
        return sum(family_memory_bytes(server.process.pid) for server in self.servers)


@asynccontextmanager
async def running(station: Station, upstream: int, directory: Path) -> AsyncIterator[Running]:
    """Start the servers of the station over that upstream, and stop them."""
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(station.replicas):
            home = directory / f"replica-{number}"
            home.mkdir(parents=True, exist_ok=True)
            _configure(home, station, upstream)
            port = free_port()
            said = ("--host", "127.0.0.1", "--port", str(port), "--workers", str(station.workers))
            command = (sys.executable, "-P", "-m", "podium", "serve", "--config", "bench.toml")
            process = server_process(
                "podium serve",
                (*command, *said),
                port=port,
                ready="/readyz",
                directory=home,
                environment={"PODIUM_HOME": str(home)},
            )
            servers.append(await stack.enter_async_context(process))
        yield Running(servers)


def _configure(home: Path, station: Station, upstream: int) -> None:
    store = 'path = "runs.db"' if station.url is None else f"url = {json.dumps(station.url)}"
    text = CONFIGURATION.format(
        store=store, in_flight=MOST_IN_FLIGHT, model=MODEL, upstream=upstream
    )
    (home / "bench.toml").write_text(text, "utf-8")
    (home / "three-steps.json").write_text(json.dumps(THREE_STEPS), "utf-8")


LONGEST_WAIT_SECONDS: Final = 60.0
FIRST: Final = 32
"""Warm-up requests."""


class HoldingUpstream:
    """An upstream that holds its answers until released; `asked` counts requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next(line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                async with self._changed:
                    self.asked += 1
                    self._changed.notify_all()
                await self.may_answer.wait()
                writer.write(WHOLE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever asked is gone
        finally:
            writer.close()

    async def until_asked(self, count: int) -> None:
        """Wait until it was asked that often."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self.asked >= count)
        except TimeoutError as error:
            raise ConfigError(
                f"{self.asked} of {count} requests reached the worker within "
                f"{LONGEST_WAIT_SECONDS:g} s; let a process open more files (ulimit -n)"
            ) from error


@asynccontextmanager
async def _listening(upstream: HoldingUpstream) -> AsyncIterator[int]:
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=4096)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        upstream.may_answer.set()
        server.close()


async def memory_in_flight(load: Load, count: int, directory: Path) -> Memory:
    """Return a process's memory before, and with that many requests in flight."""
    allow_many_connections()
    upstream = HoldingUpstream()
    upstream.may_answer.set()
    async with (
        _listening(upstream) as port,
        running(Station("one process"), port, directory) as servers,
    ):
        call = Call(servers.ports[0], load.model)
        await asyncio.gather(*(_ask(call) for _ in range(FIRST)))
        before, asked = servers.memory_bytes, upstream.asked
        upstream.may_answer.clear()
        asking = [asyncio.create_task(_ask(call)) for _ in range(count)]
        try:
            await upstream.until_asked(asked + count)
            held = servers.memory_bytes
            upstream.may_answer.set()
            await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()
    return Memory(idle_bytes=before, in_flight=count, held_bytes=held)


async def _ask(call: Call) -> None:
    async with connect(call.port) as connection:
        await connection.whole(call.request(stream=False))


IN_FLIGHT: Final = 32
"""Requests in flight for each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityExtent:
    """Seconds of each load and of its warm-up, runs in flight, and seconds of pgbench."""

    seconds: float
    first_seconds: float
    held: int
    database_seconds: int


USUAL: Final = CapacityExtent(seconds=8.0, first_seconds=2.0, held=1000, database_seconds=10)
QUICK: Final = CapacityExtent(seconds=0.4, first_seconds=0.1, held=40, database_seconds=1)


async def measure_capacity(
    extent: CapacityExtent, *, workers: int, replicas: int, loads: Sequence[Load] = LOADS, say: Say
) -> Capacity:
    """Measure one process, `workers` processes, and one and `replicas` replicas.

    Replicas need a Postgres on this machine and are left out without one.
    """
    async with AsyncExitStack() as stack:
        url = None
        if programs() is None:
            say("this machine has no Postgres, so replicas over one are not measured")
        else:
            url = stack.enter_context(running_postgres(durable=True)).address()
        measuring = _measured(stations(workers, replicas, url), loads, url, extent, say)
        return await asyncio.to_thread(run_on_fast_loop, measuring)


async def _measured(
    places: Sequence[Station],
    loads: Sequence[Load],
    url: str | None,
    extent: CapacityExtent,
    say: Say,
) -> Capacity:
    load_before = os.getloadavg()[0]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        rows = []
        for station in places:
            for load in loads:
                say(f"{station.name}: {load.name} …")
                home = directory / f"{station.name}-{load.steps}".replace(" ", "-")
                rows.append(await _row(station, load, upstream, home, extent))
        say(f"{extent.held} runs in flight …")
        memory = await memory_in_flight(loads[-1], extent.held, directory / "held")
        commits = None
        if url is not None:
            say("what Postgres itself can do …")
            commits = await database.commits_per_second(url, extent.database_seconds)
    return Capacity(
        rows=rows,
        memory=memory,
        commits_per_second=commits,
        cpus=os.cpu_count() or 1,
        python=platform.python_version(),
        load_average=round(load_before, 2),
        quick=extent == QUICK,
    )


def stations(workers: int, replicas: int, url: str | None) -> list[Station]:
    """Return the stations in order."""
    found = [Station("one process"), Station("one machine", workers=workers)]
    if url is not None:
        found.append(Station("one replica over Postgres", url=url))
        found.append(Station("replicas over Postgres", replicas=replicas, url=url))
    return found


async def _row(
    station: Station, load: Load, upstream: int, home: Path, extent: CapacityExtent
) -> Row:
    before = None if station.url is None else await database.read_counters(station.url)
    spent_by_database = open_connections = 0.0
    async with running(station, upstream, home) as servers:
        first = await _flooded(servers, load, station, extent.first_seconds)
        await once_idle(servers)
        cpu = servers.cpu_seconds
        theirs = await _database_cpu(station)
        flooded = await _flooded(servers, load, station, extent.seconds)
        if station.url is not None:
            open_connections = await database.connections(station.url)
        cpu = await once_idle(servers) - cpu
        spent_by_database = await _database_cpu(station) - theirs
    made = None
    if station.url is not None and before is not None:
        await database.left_alone(station.url)
        done = (await database.read_counters(station.url)).since(before)
        requests = first.requests + flooded.requests
        made = Database(
            commits=round(done.commits / requests, 2),
            rows=round(done.rows / requests, 2),
            wal_bytes=round(done.wal_bytes / requests),
            cpu_ms=round(spent_by_database / flooded.requests * 1000, 3),
            connections=int(open_connections),
        )
    return Row(
        station=station.name,
        load=load.name,
        steps=load.steps,
        replicas=station.replicas,
        processes=station.processes,
        in_flight=IN_FLIGHT * station.processes,
        per_second=round(flooded.per_second, 1),
        cpu_ms=round(cpu / flooded.requests * 1000, 3),
        database=made,
    )


async def _database_cpu(station: Station) -> float:
    if station.url is None:
        return 0.0
    return family_cpu_seconds(await database.postmaster(station.url))


async def _flooded(servers: Running, load: Load, station: Station, seconds: float) -> Flood:
    """Keep every process busy, all servers at once."""
    floods = await asyncio.gather(
        *(
            flood(Call(port, load.model), in_flight=IN_FLIGHT * station.workers, seconds=seconds)
            for port in servers.ports
        )
    )
    return Flood(sum(one.requests for one in floods), max(one.seconds for one in floods))
