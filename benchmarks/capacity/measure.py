"""Measure all server groups under all loads, each started anew, and the load on Postgres.

A connection to Postgres reports its counters when it closes, so they are read when the servers have
ended. The maximum is measured by `pgbench` with rows of a run's size, each committed to disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from benchmarks.report import machine
from benchmarks.server import wait_until_idle
from benchmarks.upstream import MODEL, WHOLE, Upstream
from podium.core.errors import ConfigError
from podium.evals.results import markdown
from podium.store.sql.database import CONNECTIONS

Document = Mapping[str, Any]

MAX_TRIES: Final = 200
BETWEEN_TRIES_SECONDS: Final = 0.05
CLIENTS: Final = 16
SCRIPT: Final = """
INSERT INTO written (words)
SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 128);
"""
"""Inserts a row of 4 KiB that does not compress."""

_COUNTERS: Final = """
    SELECT xact_commit, tup_inserted + tup_updated + tup_deleted,
        (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint
    FROM pg_stat_database WHERE datname = current_database()
"""
_CONNECTIONS: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Counters(NamedTuple):
    commits: int
    rows: int
    wal_bytes: int


async def read_counters(url: str) -> Counters:
    return Counters(*await _fetch_row(url, _COUNTERS))


async def count_connections(url: str) -> int:
    """Count the open connections of others."""
    return int((await _fetch_row(url, _CONNECTIONS))[0])


async def wait_until_unused(url: str) -> None:
    for _ in range(MAX_TRIES):
        if not await count_connections(url):
            return
        await asyncio.sleep(BETWEEN_TRIES_SECONDS)
    raise ConfigError("the servers have ended, and their connections to Postgres have not")


async def postmaster(url: str) -> int:
    """Return the process id of Postgres."""
    return int((await _fetch_row(url, "SELECT pg_read_file('postmaster.pid')"))[0].split()[0])


async def commits_per_second(url: str, seconds: int) -> float:
    where = programs()
    if where is None or not (where / "pgbench").is_file():
        raise ConfigError(
            "pgbench is not there, which comes with Postgres; apt-get install postgresql-contrib"
        )
    await _fetch_row(url, "CREATE TABLE written (id bigserial PRIMARY KEY, words text)")
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        script = Path(directory) / "script.sql"
        script.write_text(SCRIPT, "utf-8")
        process = await asyncio.create_subprocess_exec(
            *(str(where / "pgbench"), "--no-vacuum", f"--client={CLIENTS}", f"--time={seconds}"),
            *(f"--file={script}", url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaints = await process.communicate()
    found = re.search(rb"tps = ([\d.]+)", output)
    if found is None:
        raise ConfigError(f"pgbench did not say how far it came: {complaints.decode()[-400:]}")
    return float(found[1])


async def _fetch_row(url: str, query: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchrow(query)
    finally:
        await connection.close()


PROC: Final = Path("/proc")

MAX_IN_FLIGHT: Final = 5000
"""More than any measurement uses, so that no request waits."""

IN_FLIGHT: Final = 32
"""Requests in flight for each process."""

REPLICAS: Final = 3

ONE_REPLICA: Final = "one replica over Postgres"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySize:
    """Seconds of each load and of its warm-up, runs in flight, and seconds of pgbench."""

    seconds: float
    warmup_seconds: float
    in_flight: int
    database_seconds: int


USUAL: Final = CapacitySize(seconds=8.0, warmup_seconds=2.0, in_flight=1000, database_seconds=10)
QUICK: Final = CapacitySize(seconds=0.4, warmup_seconds=0.1, in_flight=40, database_seconds=1)


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


class ServerGroup(NamedTuple):
    """A number of replicas with a number of processes each; over SQLite without `url`."""

    name: str
    replicas: int = 1
    workers: int = 1
    url: str | None = None

    @property
    def processes(self) -> int:
        return self.replicas * self.workers


def server_groups(url: str | None) -> list[ServerGroup]:
    found = [ServerGroup("one process"), ServerGroup("one machine", workers=os.cpu_count() or 1)]
    if url is not None:
        found.append(ServerGroup(ONE_REPLICA, url=url))
        found.append(ServerGroup("replicas over Postgres", replicas=REPLICAS, url=url))
    return found


def process_tree(process: int) -> Iterator[int]:
    """Yield the process and its living descendants."""
    yield process
    for thread in (PROC / str(process) / "task").glob("*/children"):
        try:
            children = thread.read_text("ascii").split()
        except OSError:
            continue  # the thread has ended meanwhile
        for child in children:
            yield from process_tree(int(child))


def tree_cpu_seconds(process: int) -> float:
    total = 0.0
    for member in process_tree(process):
        try:
            total += cpu_seconds(member)
        except ConfigError:
            continue  # it has ended meanwhile
    return total


def tree_memory_bytes(process: int) -> int:
    """Return their memory; shared pages count once."""
    total = 0
    for member in process_tree(process):
        lines = (PROC / str(member) / "smaps_rollup").read_text("ascii").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * total


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a group, ready."""

    group: ServerGroup
    servers: Sequence[Started]

    @property
    def cpu_seconds(self) -> float:
        return sum(tree_cpu_seconds(server.process.pid) for server in self.servers)

    @property
    def memory_bytes(self) -> int:
        return sum(tree_memory_bytes(server.process.pid) for server in self.servers)

    async def run_load(self, load: Load, seconds: float) -> LoadResult:
        """Keep every process busy, all servers at once."""
        calls = [Call(server.port, load.model) for server in self.servers]
        clients = IN_FLIGHT * self.group.workers
        loads = (run_load(call, in_flight=clients, seconds=seconds) for call in calls)
        results = await asyncio.gather(*loads)
        return LoadResult(sum(one.requests for one in results), max(one.seconds for one in results))


@asynccontextmanager
async def run_servers(group: ServerGroup, upstream: int, directory: Path) -> AsyncIterator[Running]:
    """Start the servers of the group over that upstream, and stop them."""
    store = 'path = "runs.db"' if group.url is None else f"url = {json.dumps(group.url)}"
    text = CONFIGURATION.format(store=store, in_flight=MAX_IN_FLIGHT)
    text += WORKER.format(name=MODEL, port=upstream, more=_OPTIONS)
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(group.replicas):
            home = directory / f"replica-{number}"
            home.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(__file__).with_name("three-steps.json"), home)
            process = podium_process(home, "--workers", str(group.workers), text=text)
            servers.append(await stack.enter_async_context(process))
        yield Running(group, servers)


LONGEST_WAIT_SECONDS: Final = 60.0


class HoldingUpstream:
    """An upstream that holds its answers while `holds`; `waiting` are the connections."""

    def __init__(self) -> None:
        self.holds = False
        self.waiting: list[Upstream] = []
        self._changed = asyncio.Event()

    def connect(self) -> Upstream:
        holder = self

        class Connection(Upstream):
            def answer(self, body: bytes) -> None:
                if not holder.holds:
                    self.send((WHOLE,), 0)
                    return
                holder.waiting.append(self)
                holder._changed.set()

        return Connection()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests are held."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                while len(self.waiting) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ConfigError(
                f"{len(self.waiting)} of {count} requests reached the worker within "
                f"{LONGEST_WAIT_SECONDS:g} s; let a process open more files (ulimit -n)"
            ) from error


async def memory_in_flight(load: Load, count: int, directory: Path) -> dict[str, int]:
    """Return a process's memory before, and with that many requests in flight."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two connections for each run
    upstream = HoldingUpstream()
    loop = asyncio.get_running_loop()
    async with await loop.create_server(upstream.connect, "127.0.0.1", 0, backlog=4096) as server:
        port = server.sockets[0].getsockname()[1]
        async with run_servers(ServerGroup("one process"), port, directory) as servers:

            async def ask() -> None:
                call = Call(servers.servers[0].port, load.model)
                async with connect(call.port) as connection:
                    await connection.whole(call.request(stream=False))

            await asyncio.gather(*(ask() for _ in range(IN_FLIGHT)))
            before, upstream.holds = servers.memory_bytes, True
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(ask())
                await upstream.wait_for_requests(count)
                held, upstream.holds = servers.memory_bytes, False
                for connection in upstream.waiting:
                    connection.send((WHOLE,), 0)
    per_run = round((held - before) / count)
    return {
        "idle_bytes": before,
        "in_flight": count,
        "held_bytes": held,
        "per_run_bytes": per_run,
    }


async def measure_capacity(
    size: CapacitySize, *, loads: Sequence[Load] = LOADS, on_progress: OnProgress
) -> dict[str, Any]:
    """Measure one process, a process for each core, one replica and several.

    Replicas need a Postgres on this machine and are left out without one.
    """
    async with AsyncExitStack() as stack:
        url = None
        if programs() is None:
            on_progress("this machine has no Postgres, so replicas over one are not measured")
        else:
            url = stack.enter_context(running_postgres(durable=True)).address()
        measuring = _measure(server_groups(url), loads, url, size, on_progress)
        return await asyncio.to_thread(run_on_fast_loop, measuring)


async def _measure(
    groups: Sequence[ServerGroup],
    loads: Sequence[Load],
    url: str | None,
    size: CapacitySize,
    on_progress: OnProgress,
) -> dict[str, Any]:
    load_before = os.getloadavg()[0]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        rows = []
        for group in groups:
            for load in loads:
                on_progress(f"{group.name}: {load.name} …")
                home = directory / f"{group.name}-{load.steps}".replace(" ", "-")
                rows.append(await _row(group, load, upstream, home, size))
        on_progress(f"{size.in_flight} runs in flight …")
        memory = await memory_in_flight(loads[-1], size.in_flight, directory / "held")
        commits = None
        if url is not None:
            on_progress("what Postgres itself can do …")
            commits = await commits_per_second(url, size.database_seconds)
    return {
        "rows": rows,
        "memory": memory,
        "commits_per_second": commits,
        **machine(),
        "load_average": round(load_before, 2),
        "quick": size == QUICK,
    }


async def _row(
    group: ServerGroup, load: Load, upstream: int, home: Path, size: CapacitySize
) -> dict[str, Any]:
    """Return requests a second and CPU milliseconds for each, and what one made Postgres do."""
    url = group.url
    before = None if url is None else await read_counters(url)
    async with run_servers(group, upstream, home) as servers:
        first = await servers.run_load(load, size.warmup_seconds)
        await wait_until_idle(lambda: servers.cpu_seconds)
        cpu, theirs = servers.cpu_seconds, await _database_cpu(url)
        flooded = await servers.run_load(load, size.seconds)
        open_connections = 0 if url is None else await count_connections(url)
        cpu = await wait_until_idle(lambda: servers.cpu_seconds) - cpu
        theirs = await _database_cpu(url) - theirs
    made = None
    if url is not None and before is not None:
        await wait_until_unused(url)
        after, requests = await read_counters(url), first.requests + flooded.requests
        commits, rows, wal = ((a - b) / requests for a, b in zip(after, before, strict=True))
        made = {
            "commits": round(commits, 2),
            "rows": round(rows, 2),
            "wal_bytes": round(wal),
            "cpu_ms": round(theirs / flooded.requests * 1000, 3),
            "connections": open_connections,
        }
    return {
        "group": group.name,
        "load": load.name,
        "steps": load.steps,
        "replicas": group.replicas,
        "processes": group.processes,
        "in_flight": IN_FLIGHT * group.processes,
        "per_second": round(flooded.per_second, 1),
        "cpu_ms": round(cpu / flooded.requests * 1000, 3),
        "database": made,
    }


async def _database_cpu(url: str | None) -> float:
    return 0.0 if url is None else tree_cpu_seconds(await postmaster(url))


RATES: Final = (10, 100, 1000)
"""Requests a second of the deployments that the model sizes."""

BUSY: Final = 0.6
"""The share of a core that a process uses; the rest is for bursts and for the loss of a replica."""

ANSWER_SECONDS: Final = 10
"""Assumed duration of a run over real models: it decides how many are in flight."""

HEADINGS: Final = (
    *("", "load", "processes", "requests/s", "CPU ms"),
    *("commits", "rows", "WAL KiB", "its CPU ms", "connections"),
)
DERIVED: Final = ("for each second", *(f"{rate:,} requests" for rate in RATES))


def as_text(document: Document) -> str:
    measured = markdown(HEADINGS, [_cells(row) for row in document["rows"]])
    return "\n".join((measured, "", *_sentences(document)))


def _cells(row: Document) -> list[str]:
    cells = [
        *(row["group"], row["load"], str(row["processes"])),
        *(f"{row['per_second']:,.0f}", f"{row['cpu_ms']:.2f}"),
    ]
    base = row["database"]
    if base is None:
        return cells + [""] * 5
    counts = (base["commits"], base["rows"], base["wal_bytes"] / 1024)
    return [
        *cells,
        *(f"{count:.1f}" for count in counts),
        f"{base['cpu_ms']:.2f}",
        str(base["connections"]),
    ]


def _sentences(document: Document) -> Iterator[str]:
    memory, commits = document["memory"], document["commits_per_second"]
    yield (
        f"A process holds {memory['idle_bytes'] / 2**20:.0f} MiB with nothing to do, and "
        f"{memory['per_run_bytes'] / 1024:.0f} KiB more for each run in flight "
        f"({memory['in_flight']:,} of them were)."
    )
    if commits is not None:
        yield (
            f"The same Postgres by itself, asked by `pgbench`, takes {commits:,.0f} rows of 4 KiB "
            f"a second, each committed and on the disk."
        )
    yield (
        f"{'A short look' if document['quick'] else 'Measured'} on {document['cpus']} cores, "
        f"Python {document['python']}, at a load average of {document['load_average']:.1f}; "
        f"clients, upstream and Postgres shared them."
    )


def size_deployments(document: Document) -> str:
    """Calculate deployments from one replica over Postgres; empty where that was not measured."""
    rows = [row for row in document["rows"] if row["group"] == ONE_REPLICA]
    if not rows:
        return ""
    lines = [markdown(DERIVED, [line for row in rows for line in _sizes(row, document["memory"])])]
    for row in rows:
        if row["steps"] and (commits := row["database"]["commits"]):
            carried = document["commits_per_second"] / commits
            lines.append(
                f"\n{row['load'].capitalize()}: one Postgres like this takes the commits of "
                f"{_round(carried)} a second, which is what {_round(carried / _rate(row))} "
                f"processes carry."
            )
    return "\n".join(lines)


def _sizes(row: Document, memory: Document) -> Iterator[Sequence[str]]:
    """Yield the size of a deployment for each of `RATES`."""
    base, load = row["database"], row["load"]
    processes = [max(2, ceil(rate / _rate(row) / BUSY)) for rate in RATES]  # one may die
    yield f"{load}: processes, a core each", *map(str, processes)
    yield f"{load}: connections at most", *(f"{n * CONNECTIONS:,}" for n in processes)
    per_run = memory["per_run_bytes"] * ANSWER_SECONDS
    sizes = (n * memory["idle_bytes"] + r * per_run for n, r in zip(processes, RATES, strict=True))
    yield f"{load}: MiB of memory", *(_round(size / 2**20) for size in sizes)
    if row["steps"]:
        yield f"{load}: rows written", *(_round(rate * base["rows"]) for rate in RATES)
        wal = (rate * base["wal_bytes"] / 2**20 for rate in RATES)
        yield f"{load}: MiB of WAL", *map(_round, wal)
        busy = (rate * base["cpu_ms"] / 1000 for rate in RATES)
        yield f"{load}: cores of Postgres", *map(_round, busy)


def _rate(row: Document) -> float:
    """Return the requests a second of a process with a core of its own."""
    return 1000 / float(row["cpu_ms"])


def _round(value: float) -> str:
    if value < 10:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"
