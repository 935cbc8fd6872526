"""Run the parts of `benchmarks chaos`, one after another."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, get_args

from benchmarks.chaos.faults import measure_faults
from benchmarks.chaos.fuzz import measure_fuzz
from benchmarks.chaos.replicas import measure_replicas
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.soak import measure_soak
from benchmarks.postgres import programs
from benchmarks.processes import run_on_fast_loop
from podium.core.errors import ConfigError, PodiumError, install_command

Part = Literal["faults", "overlap", "replicas", "soak", "fuzz"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
PROCESS_MEMORY: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSize:
    """The size of each part, in runs or seconds; `bodies` are of each dialect."""

    faults: int
    replica_seconds: float
    soak: int
    bodies: int


USUAL: Final = ChaosSize(faults=5_000, replica_seconds=120.0, soak=200_000, bodies=100_000)
QUICK: Final = replace(USUAL, faults=500, replica_seconds=12.0, soak=20_000, bodies=10_000)


def run_part(part: Part, size: ChaosSize, seed: int) -> ChaosRow:
    """Run a part; one that cannot run or fails gives a row that says why."""
    if missing := missing_for(part):
        return ChaosRow(name=part, runs=0, not_tried=missing)
    work: Coroutine[Any, Any, ChaosRow]
    match part:
        case "fuzz":
            work = measure_fuzz(size.bodies, seed)
        case "faults" | "overlap":
            work = measure_faults(size.faults, seed, overlap=part == "overlap")
        case "replicas":
            work = measure_replicas(size.replica_seconds, seed)
        case "soak":
            work = measure_soak(size.soak)
    try:
        return run_on_fast_loop(work)
    except PodiumError as error:
        return ChaosRow(name=part, runs=0, broken=(str(error),))


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


def parse_parts(names: str) -> tuple[Part, ...]:
    """Parse a list such as `faults,soak` into parts, in their usual order."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(wanted - set(PARTS))
    if unknown or not wanted:
        raise ConfigError(
            f"expected parts of the chaos bench, one or several of {','.join(PARTS)}; "
            f"got {', '.join(unknown) or 'none'}"
        )
    return tuple(part for part in PARTS if part in wanted)
