"""Time contestants fairly: interleaved, in many short blocks.

Contestants alternate, so that a disturbance hits all of them. Blocks are short, so that many of
them pass undisturbed; the fastest block is what the work costs.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

Chain = Callable[[], Awaitable[object]]

CHAINS_A_BLOCK: Final = 20
"""A block takes one or two milliseconds, less than a scheduler's usual time slice."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Freeze the heap, so that the measured code pays for its own garbage only."""
    is_spared = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not is_spared:
            gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one chain: the fastest block and the median."""

    best: float
    median: float


async def time_block(chain: Chain, chains: int = CHAINS_A_BLOCK) -> float:
    """Return the microseconds of a chain; the first one is not timed, as caches are cold."""
    await chain()
    started = perf_counter()
    for _ in range(chains):
        await chain()
    return (perf_counter() - started) / chains * 1e6


async def time_interleaved(contestants: Mapping[str, Chain], repeat: int) -> dict[str, Timing]:
    """Time `repeat` blocks of each contestant, in turns."""
    blocks: dict[str, list[float]] = {name: [] for name in contestants}
    order = deque(contestants)
    with settled_heap():
        for _ in range(repeat):
            for name in order:
                blocks[name].append(await time_block(contestants[name]))
            order.rotate()  # or the same one would always sit at the end of our time slice
    return {name: Timing(min(times), median(times)) for name, times in blocks.items()}
