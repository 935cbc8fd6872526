"""All stations under all loads, one after another, each started anew."""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.capacity import database
from benchmarks.capacity.figures import Capacity, Database, Row
from benchmarks.capacity.holding import memory_in_flight
from benchmarks.capacity.processes import family_cpu_seconds
from benchmarks.capacity.stations import LOADS, Load, Running, Station, running
from benchmarks.environment import Say
from benchmarks.postgres import programs, running_postgres
from benchmarks.server import once_idle
from benchmarks.server_client import Call, Flood, flood
from benchmarks.server_loop import run_on_fast_loop
from benchmarks.server_processes import upstream_process

IN_FLIGHT: Final = 32
"""Requests in flight for each process that answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured: seconds of each load, and before it; runs in flight at once; seconds
    in which Postgres shows what it can do."""

    seconds: float
    first_seconds: float
    held: int
    database_seconds: int


USUAL: Final = Extent(seconds=8.0, first_seconds=2.0, held=1000, database_seconds=10)
QUICK: Final = Extent(seconds=0.4, first_seconds=0.1, held=40, database_seconds=1)


async def measure_capacity(
    extent: Extent, *, workers: int, replicas: int, loads: Sequence[Load] = LOADS, say: Say
) -> Capacity:
    """Measure one process, `workers` processes of one server, and one and `replicas` replicas over
    a Postgres that is started for it; without the latter where this machine has none."""
    async with AsyncExitStack() as stack:
        url = None
        if programs() is None:
            say("this machine has no Postgres, so replicas over one are not measured")
        else:
            url = stack.enter_context(running_postgres(durable=True)).address()
        measuring = _measured(stations(workers, replicas, url), loads, url, extent, say)
        return await asyncio.to_thread(run_on_fast_loop, measuring)


async def _measured(
    places: Sequence[Station], loads: Sequence[Load], url: str | None, extent: Extent, say: Say
) -> Capacity:
    """On an event loop of its own, which is quick."""
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
    """What is measured, in order."""
    found = [Station("one process"), Station("one machine", workers=workers)]
    if url is not None:
        found.append(Station("one replica over Postgres", url=url))
        found.append(Station("replicas over Postgres", replicas=replicas, url=url))
    return found


async def _row(station: Station, load: Load, upstream: int, home: Path, extent: Extent) -> Row:
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
    """Keep every process busy for so long, all servers at once."""
    floods = await asyncio.gather(
        *(
            flood(Call(port, load.model), in_flight=IN_FLIGHT * station.workers, seconds=seconds)
            for port in servers.ports
        )
    )
    return Flood(sum(one.requests for one in floods), max(one.seconds for one in floods))
