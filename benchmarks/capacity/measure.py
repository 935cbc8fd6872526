"""Measure all server groups under all loads, each started anew."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.capacity import database
from benchmarks.capacity.report import ONE_REPLICA, Capacity, Database, Memory, Row
from benchmarks.environment import OnProgress
from benchmarks.load_client import Call, LoadResult, connect, run_load
from benchmarks.postgres import programs, running_postgres
from benchmarks.processes import (
    WORKER,
    Started,
    cpu_seconds,
    podium_process,
    run_on_fast_loop,
    upstream_process,
)
from benchmarks.server import once_idle
from benchmarks.upstream import MODEL, WHOLE, Upstream
from podium.core.errors import ConfigError

PROC: Final = Path("/proc")

MAX_IN_FLIGHT: Final = 5000
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
"""
_OPTIONS: Final = f"""\
price = {{ input = 1.0, output = 1.0 }}
limits = {{ concurrency = {MAX_IN_FLIGHT} }}"""


def family(process: int) -> Iterator[int]:
    """Return the process and its living descendants."""
    yield process
    for thread in (PROC / str(process) / "task").glob("*/children"):
        try:
            children = thread.read_text("ascii").split()
        except OSError:
            continue  # the thread has ended meanwhile
        for child in children:
            yield from family(int(child))


def family_cpu_seconds(process: int) -> float:
    """Return their CPU seconds."""
    return sum(map(_cpu_seconds, family(process)))


def _cpu_seconds(process: int) -> float:
    try:
        return cpu_seconds(process)
    except ConfigError:
        return 0.0  # it has ended meanwhile


def family_memory_bytes(process: int) -> int:
    """Return their memory; shared pages count once."""
    return sum(map(_memory_bytes, family(process)))


def _memory_bytes(process: int) -> int:
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text("ascii").splitlines()
    except OSError as error:
        raise ConfigError(
            f"the memory of process {process} cannot be read: {error.strerror}; measure on Linux"
        ) from error
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


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
class ServerGroup:
    """A number of replicas with a number of processes each; over SQLite without `url`."""

    name: str
    replicas: int = 1
    workers: int = 1
    url: str | None = None

    @property
    def processes(self) -> int:
        """The number of processes."""
        return self.replicas * self.workers


def server_groups(workers: int, replicas: int, url: str | None) -> list[ServerGroup]:
    """Return the server groups in order."""
    found = [ServerGroup("one process"), ServerGroup("one machine", workers=workers)]
    if url is not None:
        found.append(ServerGroup(ONE_REPLICA, url=url))
        found.append(ServerGroup("replicas over Postgres", replicas=replicas, url=url))
    return found


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a group, ready."""

    servers: Sequence[Started]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all their processes."""
        return sum(family_cpu_seconds(server.process.pid) for server in self.servers)

    @property
    def memory_bytes(self) -> int:
        """Memory of all their processes."""
        return sum(family_memory_bytes(server.process.pid) for server in self.servers)

    async def run_load(self, load: Load, group: ServerGroup, seconds: float) -> LoadResult:
        """Keep every process busy, all servers at once."""
        clients = IN_FLIGHT * group.workers
        results = await asyncio.gather(
            *(
                run_load(Call(server.port, load.model), in_flight=clients, seconds=seconds)
                for server in self.servers
            )
        )
        return LoadResult(sum(one.requests for one in results), max(one.seconds for one in results))


@asynccontextmanager
async def running(group: ServerGroup, upstream: int, directory: Path) -> AsyncIterator[Running]:
    """Start the servers of the group over that upstream, and stop them."""
    store = 'path = "runs.db"' if group.url is None else f"url = {json.dumps(group.url)}"
    text = CONFIGURATION.format(store=store, in_flight=MAX_IN_FLIGHT)
    text += WORKER.format(name=MODEL, port=upstream, more=_OPTIONS)
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(group.replicas):
            home = directory / f"replica-{number}"
            home.mkdir(parents=True, exist_ok=True)
            (home / "three-steps.json").write_text(json.dumps(THREE_STEPS), "utf-8")
            process = podium_process(home, "--workers", str(group.workers), text=text)
            servers.append(await stack.enter_async_context(process))
        yield Running(servers)


LONGEST_WAIT_SECONDS: Final = 60.0
FIRST: Final = 32
"""Warm-up requests."""


class HoldingUpstream:
    """An upstream that holds its answers until released; `asked` counts requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._waiting: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def connect(self) -> Upstream:
        """Return the protocol of a new connection."""
        return _HoldingConnection(self)

    def take(self, answer: Callable[[], None]) -> None:
        """Count a request and answer it now or later."""
        self.asked += 1
        self._changed.set()
        if self.may_answer.is_set():
            answer()
        else:
            self._waiting.append(answer)

    def release(self) -> None:
        """Answer all requests from now on."""
        self.may_answer.set()
        for answer in self._waiting:
            answer()

    async def until_asked(self, count: int) -> None:
        """Wait until it was asked that often."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                while self.asked < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ConfigError(
                f"{self.asked} of {count} requests reached the worker within "
                f"{LONGEST_WAIT_SECONDS:g} s; let a process open more files (ulimit -n)"
            ) from error


class _HoldingConnection(Upstream):
    def __init__(self, upstream: HoldingUpstream) -> None:
        super().__init__()
        self._upstream = upstream

    def answer(self, body: bytes) -> None:
        self._upstream.take(lambda: self.send((WHOLE,), 0))


async def memory_in_flight(load: Load, count: int, directory: Path) -> Memory:
    """Return a process's memory before, and with that many requests in flight."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two connections for each run
    upstream = HoldingUpstream()
    loop = asyncio.get_running_loop()
    async with (
        await loop.create_server(upstream.connect, "127.0.0.1", 0, backlog=4096) as listening,
        running(ServerGroup("one process"), _port(listening), directory) as servers,
    ):
        call = Call(servers.servers[0].port, load.model)
        await asyncio.gather(*(_ask(call) for _ in range(FIRST)))
        before, asked = servers.memory_bytes, upstream.asked
        upstream.may_answer.clear()
        asking = [asyncio.create_task(_ask(call)) for _ in range(count)]
        try:
            await upstream.until_asked(asked + count)
            held = servers.memory_bytes
            upstream.release()
            await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()
    return Memory(idle_bytes=before, in_flight=count, held_bytes=held)


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


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
    extent: CapacityExtent,
    *,
    workers: int,
    replicas: int,
    loads: Sequence[Load] = LOADS,
    on_progress: OnProgress,
) -> Capacity:
    """Measure one process, `workers` processes, and one and `replicas` replicas.

    Replicas need a Postgres on this machine and are left out without one.
    """
    async with AsyncExitStack() as stack:
        url = None
        if programs() is None:
            on_progress("this machine has no Postgres, so replicas over one are not measured")
        else:
            url = stack.enter_context(running_postgres(durable=True)).address()
        measuring = _measure(server_groups(workers, replicas, url), loads, url, extent, on_progress)
        return await asyncio.to_thread(run_on_fast_loop, measuring)


async def _measure(
    places: Sequence[ServerGroup],
    loads: Sequence[Load],
    url: str | None,
    extent: CapacityExtent,
    on_progress: OnProgress,
) -> Capacity:
    load_before = os.getloadavg()[0]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        rows = []
        for group in places:
            for load in loads:
                on_progress(f"{group.name}: {load.name} …")
                home = directory / f"{group.name}-{load.steps}".replace(" ", "-")
                rows.append(await _row(group, load, upstream, home, extent))
        on_progress(f"{extent.held} runs in flight …")
        memory = await memory_in_flight(loads[-1], extent.held, directory / "held")
        commits = None
        if url is not None:
            on_progress("what Postgres itself can do …")
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


async def _row(
    group: ServerGroup, load: Load, upstream: int, home: Path, extent: CapacityExtent
) -> Row:
    url, made = group.url, None
    before = None if url is None else await database.read_counters(url)
    async with running(group, upstream, home) as servers:
        first = await servers.run_load(load, group, extent.first_seconds)
        await once_idle(servers)
        cpu, theirs = servers.cpu_seconds, await _database_cpu(url)
        flooded = await servers.run_load(load, group, extent.seconds)
        open_connections = 0 if url is None else await database.connections(url)
        cpu = await once_idle(servers) - cpu
        theirs = await _database_cpu(url) - theirs
    if url is not None and before is not None:
        await database.left_alone(url)
        after, requests = await database.read_counters(url), first.requests + flooded.requests
        commits, rows, wal = ((a - b) / requests for a, b in zip(after, before, strict=True))
        made = Database(
            commits=round(commits, 2),
            rows=round(rows, 2),
            wal_bytes=round(wal),
            cpu_ms=round(theirs / flooded.requests * 1000, 3),
            connections=open_connections,
        )
    return Row(
        group=group.name,
        load=load.name,
        steps=load.steps,
        replicas=group.replicas,
        processes=group.processes,
        in_flight=IN_FLIGHT * group.processes,
        per_second=round(flooded.per_second, 1),
        cpu_ms=round(cpu / flooded.requests * 1000, 3),
        database=made,
    )


async def _database_cpu(url: str | None) -> float:
    return 0.0 if url is None else family_cpu_seconds(await database.postmaster(url))
