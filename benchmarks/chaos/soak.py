"""Ask the server's application very many questions in this process: does anything grow?

One in twenty calls a worker by name, half of the others are one step and half are three; half of
all stream. The worker is scripted, the store is SQLite, and old runs are deleted on the way.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.workload import application_in_process, read_data, run_concurrently
from benchmarks.timing import settled_heap
from podium.core.run import timestamp

MIB: Final = 1024**2
SLOPE_RUNS: Final = 10_000
MAX_BYTES: Final = MIB // 2
"""The largest slope of memory over `SLOPE_RUNS` runs: 52 bytes a run, less than an object."""

MAX_OBJECTS: Final = 100
MIN_GROWTH_BYTES: Final = 4 * MIB
MIN_GROWTH_OBJECTS: Final = 1_000
"""Less than that in all is no growth, whatever its slope."""

STEADY: Final = ("files", "tasks", "threads")
"""Counts that must not be larger at the end than at the beginning."""


class ResourceReading(NamedTuple):
    """The resources of the process after so many runs. `files` are open files and connections."""

    runs: int
    bytes: int
    objects: int
    files: int
    tasks: int
    threads: int


def read_resources(runs: int) -> ResourceReading:
    """Read all counts now, on the event loop."""
    gc.collect()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return ResourceReading(
        runs=runs,
        bytes=pages * os.sysconf("SC_PAGESIZE"),
        objects=len(gc.get_objects()),
        files=len(os.listdir("/proc/self/fd")),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
    )


def slope(readings: Sequence[ResourceReading], name: str) -> float:
    """Return the growth over `SLOPE_RUNS` runs: the median over all pairs of readings."""
    slopes = [
        (getattr(later, name) - getattr(sooner, name)) / (later.runs - sooner.runs)
        for sooner, later in combinations(readings, 2)
    ]
    return SLOPE_RUNS * median(slopes) if slopes else 0.0


def find_growth(readings: Sequence[ResourceReading]) -> tuple[str, ...]:
    """Name what grows from the first reading to the last."""
    if len(readings) < 3:
        return ()
    found = []
    span = (readings[-1].runs - readings[0].runs) / SLOPE_RUNS
    for name, most, least in (
        ("bytes", MAX_BYTES, MIN_GROWTH_BYTES),
        ("objects", MAX_OBJECTS, MIN_GROWTH_OBJECTS),
    ):
        steepness = slope(readings, name)
        if steepness > most and steepness * span > least:
            found.append(f"{name} grow by {steepness:,.0f} in {SLOPE_RUNS:,} runs")
    third = len(readings) // 3
    for name in STEADY:
        before = max(getattr(reading, name) for reading in readings[:third])
        after = min(getattr(reading, name) for reading in readings[-third:])
        if after > before:
            found.append(f"{name} grew from {before:,} to {after:,}")
    return tuple(found)


IN_FLIGHT: Final = 16
SLICES: Final = 20
WARM_SHARE: Final = 0.25
"""Growth is judged after this share of the runs."""

ANSWER: Final = "It holds."
PATH: Final = "/v1/chat/completions"

CONFIGURATION: Final = read_data("soak.toml")


async def measure_soak(runs: int, slices: int = SLICES) -> ChaosRow:
    """Run `runs` questions; after each slice of them, delete its runs and take a reading."""
    started, seconds, lost, readings = time.perf_counter(), 0.0, 0, list[ResourceReading]()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as name:
        directory = Path(name)
        (directory / "workflow.json").write_text(read_data("soak_workflow.json"), "utf-8")

        async def ask(number: int) -> None:
            nonlocal lost
            model = "solo" if number % 20 == 0 else ("podium-mini", "podium-ultra")[number // 2 % 2]
            lost += await ask_app(client, model, stream=number % 2 == 1) != ANSWER

        async with application_in_process(directory, CONFIGURATION) as (app, client):
            with settled_heap():
                for _ in range(slices):
                    began = time.perf_counter()
                    await run_concurrently(runs // slices, IN_FLIGHT, ask)
                    seconds += time.perf_counter() - began
                    await app.state.holder().store.delete_before(timestamp())
                    readings.append(read_resources((len(readings) + 1) * (runs // slices)))
    return _row(readings, lost, seconds, time.perf_counter() - started)


async def ask_app(client: httpx.AsyncClient, model: str, *, stream: bool) -> str:
    """Return the application's answer to a plain question."""
    document = {"model": model, "messages": [{"role": "user", "content": "What holds?"}]}
    response = await client.post(PATH, json={**document, "stream": stream})
    if not stream:
        return str(response.json()["choices"][0]["message"]["content"])
    events = [line[6:] for line in response.text.split("\n") if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def _row(
    readings: list[ResourceReading], lost: int, busy_seconds: float, seconds: float
) -> ChaosRow:
    warm = readings[round(len(readings) * WARM_SHARE) :]
    first, last = warm[0], warm[-1]
    rate = last.runs / busy_seconds
    memory = slope(warm, "bytes") / MIB
    in_all = memory * (last.runs - first.runs) / SLOPE_RUNS
    return ChaosRow(
        name="soak",
        runs=last.runs,
        lost=lost,
        answered_share=1 - lost / last.runs,
        seconds=seconds,
        note=(
            f"{rate:,.0f} runs/s; memory {first.bytes / MIB:.1f} to {last.bytes / MIB:.1f} MiB, "
            f"{memory:+.2f} MiB in {SLOPE_RUNS:,} runs, {in_all:+.2f} MiB in all "
            f"(less than {MIN_GROWTH_BYTES // MIB} is no growth)"
        ),
        broken=find_growth(warm),
        figures={
            "runs_per_second": round(rate, 1),
            "mib_warm": round(first.bytes / MIB, 2),
            "mib_end": round(last.bytes / MIB, 2),
            "mib_per_10000_runs": round(memory, 4),
            "objects_per_10000_runs": round(slope(warm, "objects"), 1),
            **{
                f"{name}_{when}": getattr(reading, name)
                for name in STEADY
                for when, reading in (("warm", first), ("end", last))
            },
        },
    )
