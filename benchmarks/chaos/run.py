"""Run the parts of `benchmarks chaos`, each in a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.chaos.faults import measure_faults
from benchmarks.chaos.kills import measure_kills
from benchmarks.chaos.replicas import measure_replicas
from benchmarks.chaos.report import ChaosFigures, ChaosRow
from benchmarks.chaos.soak import measure_soak
from benchmarks.chaos.wire import measure_wire
from benchmarks.fuzz import FuzzRow, fuzz_bodies, fuzz_plans
from benchmarks.postgres import programs
from benchmarks.processes import run_on_fast_loop
from podium.core.errors import ConfigError, PodiumError, install_command

Part = Literal["faults", "overlap", "kills", "replicas", "soak", "fuzz", "peer"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
PROCESS_MEMORY: Final = Path("/proc/self/statm")
LONGEST_SECONDS: Final = 3600.0
LONGEST_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosExtent:
    """The size of each part, in runs or seconds.

    `bodies` are of each dialect, `requests` of each contestant, `processes` share the fuzzing.
    """

    faults: int
    kills: int
    replica_seconds: float
    soak: int
    plans: int
    bodies: int
    requests: int
    processes: int = 1


USUAL: Final = ChaosExtent(
    faults=5_000,
    kills=200,
    replica_seconds=120.0,
    soak=200_000,
    plans=2_000_000,
    bodies=100_000,
    requests=5_000,
    processes=os.cpu_count() or 1,
)
QUICK: Final = replace(
    USUAL,
    faults=500,
    kills=20,
    replica_seconds=12.0,
    soak=20_000,
    plans=200_000,
    bodies=10_000,
    requests=500,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Size and seed; with `quick`, no peer is installed."""

    extent: ChaosExtent
    seed: int
    quick: bool = False


def measure_fuzz(plans: int, bodies: int, seed: int, processes: int = 1) -> ChaosRow:
    """Parse `plans` mutated plans and send `bodies` mutated bodies of each dialect."""
    parsed = fuzz_plans(plans, LONGEST_SECONDS, seed, processes)
    sent = fuzz_bodies(bodies, seed, processes)
    broken = [str(finding)[:LONGEST_SHOWN] for row in (parsed, sent) for finding in row.findings]
    if parsed.inputs < plans:
        seconds = f"{parsed.seconds:.0f} s"
        broken.append(f"only {parsed.inputs:,} of {plans:,} plans were read in {seconds}")
    return ChaosRow(
        name="fuzz",
        runs=0,
        seconds=parsed.seconds + sent.seconds,
        note=f"{parsed.inputs:,} of {plans:,} plans, {sent.inputs:,} bodies",
        broken=tuple(broken),
        figures=_fuzz_figures("plans", parsed) | _fuzz_figures("bodies", sent),
    )


def _fuzz_figures(name: str, row: FuzzRow) -> dict[str, int | float | str | None]:
    growth = row.slowest_growth
    return {
        name: row.inputs,
        f"{name}_per_second": round(row.per_second, 1),
        f"{name}_findings": len(row.findings),
        f"{name}_corpus": row.corpus,
        f"{name}_slowest_growth": None if growth is None else round(growth, 2),
    }


async def _measure(part: Part, order: Order) -> Sequence[ChaosRow]:
    """Return the part's row, and after it those of peers."""
    extent, seed = order.extent, order.seed
    match part:
        case "faults" | "overlap":
            return [await measure_faults(extent.faults, seed, overlap=part == "overlap")]
        case "kills":
            return [await measure_kills(extent.kills, seed)]
        case "replicas":
            return [await measure_replicas(extent.replica_seconds, seed)]
        case "soak":
            return [await measure_soak(extent.soak)]
        case "fuzz":
            counts = (extent.plans, extent.bodies, seed, extent.processes)
            return [await asyncio.to_thread(measure_fuzz, *counts)]
        case "peer":
            return await measure_wire(extent.requests, seed, _say, is_quick=order.quick)


def run_part(part: Part, order: Order) -> Sequence[ChaosRow]:
    """Run a part in this process; an error becomes a row that says it."""
    try:
        return run_on_fast_loop(_measure(part, order))
    except PodiumError as error:
        return [ChaosRow(name=part, runs=0, broken=(str(error),))]


def missing_for(part: Part) -> str:
    """Say what a part needs that this machine lacks; empty if nothing."""
    lacks = []
    if part == "replicas" and programs() is None:
        lacks.append("Postgres (apt-get install postgresql)")
    if part == "replicas" and find_spec("asyncpg") is None:
        lacks.append(f"the extra postgres ({install_command('postgres')})")
    if part == "soak" and not PROCESS_MEMORY.exists():
        lacks.append(f"Linux, which reports the memory of a process in {PROCESS_MEMORY}")
    return f"needs {' and '.join(lacks)}" if lacks else ""


async def _run_in_process(part: Part, order: Order) -> Sequence[ChaosRow]:
    """Run a part in its own process. A part that fails or cannot run gives a row that says why."""
    if missing := missing_for(part):
        return [ChaosRow(name=part, runs=0, not_tried=missing)]
    loop, spawn = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        try:
            return await loop.run_in_executor(executor, run_part, part, order)
        except BrokenProcessPool:
            error = "the part's process died; its error is above"
            return [ChaosRow(name=part, runs=0, broken=(error,))]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def parts_named(names: str) -> tuple[Part, ...]:
    """Parse a list such as `faults,kills` into parts, in their usual order."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(wanted - set(PARTS))
    if unknown or not wanted:
        raise ConfigError(
            f"expected parts of the chaos bench, one or several of {','.join(PARTS)}; "
            f"got {', '.join(unknown) or 'none'}"
        )
    return tuple(part for part in PARTS if part in wanted)


async def measure_chaos(
    parts: Sequence[Part], order: Order, on_progress: Callable[[str], None], *, at_once: int = 1
) -> ChaosFigures:
    """Run the parts, `at_once` at a time."""
    slots = asyncio.Semaphore(at_once)

    async def perform(part: Part) -> Sequence[ChaosRow]:
        async with slots:
            on_progress(f"{part} …")
            return await _run_in_process(part, order)

    found = await asyncio.gather(*map(perform, parts))
    return ChaosFigures(
        parts=tuple(rows[0] for rows in found),
        peers=tuple(row for rows in found for row in rows[1:]),
        seed=order.seed,
        quick=order.quick,
    )
