"""All parts of `benchmarks chaos`: which are wanted, how much each does, and what they found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from benchmarks.chaos.part import PARTS, Extent, Order, Part, Rows, in_process
from benchmarks.chaos.row import ChaosFigures
from benchmarks.environment import Say
from podium.core.errors import ConfigError

USUAL: Final = Extent(
    faults=5_000,
    kills=200,
    replica_seconds=120.0,
    soak=200_000,
    plans=2_000_000,
    bodies=100_000,
    requests=5_000,
    processes=os.cpu_count() or 1,
)
QUICK: Final = Extent(
    faults=500,
    kills=20,
    replica_seconds=12.0,
    soak=20_000,
    plans=200_000,
    bodies=10_000,
    requests=500,
    processes=USUAL.processes,
)


LONGEST_FIRST: Final[tuple[Part, ...]] = ("fuzz", "soak", "replicas", "peer", "kills", "faults")


def parts_named(names: str) -> tuple[Part, ...]:
    """The parts in a list such as `faults,kills`, in their usual order."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(wanted - set(PARTS))
    if unknown or not wanted:
        raise ConfigError(
            f"expected parts of the chaos bench, one or several of {','.join(PARTS)}; "
            f"got {', '.join(unknown) or 'none'}"
        )
    return tuple(part for part in PARTS if part in wanted)


async def measure_chaos(
    parts: Sequence[Part], order: Order, say: Say, *, at_once: int = 1
) -> ChaosFigures:
    """Do those parts, so many of them at once: one, where their times are to be quoted. The rows
    come in the order of the parts; what takes longest begins first."""
    places = asyncio.Semaphore(at_once)

    async def perform(part: Part) -> Rows:
        async with places:
            say(f"{part} …")
            return await in_process(part, order)

    async with asyncio.TaskGroup() as group:
        wanted = [part for part in LONGEST_FIRST if part in parts]
        begun = {part: group.create_task(perform(part)) for part in wanted}
    found = [begun[part].result() for part in parts]
    return ChaosFigures(
        parts=tuple(row for rows in found for row in rows.own),
        peers=tuple(row for rows in found for row in rows.peers),
        seed=order.seed,
        quick=order.quick,
    )
