"""Time contestants fairly: interleaved, in many short blocks.

Contestants alternate, so that a disturbance hits all of them. Blocks are short, so that many of
them pass undisturbed; the fastest block is what the work costs.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final, Protocol


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


CHAINS_A_BLOCK: Final = 20
"""A block takes one or two milliseconds, less than a scheduler's usual time slice."""


class Contestant(Protocol):
    """An implementation of the five-step chain."""

    name: str

    async def block(self) -> float:
        """Run a short block of chains and return the microseconds of one."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one chain: the fastest block and the median."""

    best: float
    median: float


class Chains:
    """A contestant in this process."""

    def __init__(
        self,
        name: str,
        carry_out: Callable[[], Awaitable[object]],
        chains_a_block: int = CHAINS_A_BLOCK,
    ) -> None:
        self.name = name
        self._carry_out = carry_out
        self.chains_a_block = chains_a_block

    async def block(self) -> float:
        """Run one block; its first chain is not timed, as caches are cold."""
        await self._carry_out()
        started = perf_counter()
        for _ in range(self.chains_a_block):
            await self._carry_out()
        return (perf_counter() - started) / self.chains_a_block * 1e6


async def run_interleaved(contestants: Sequence[Contestant], repeat: int) -> dict[str, Timing]:
    """Run `repeat` blocks of each contestant, interleaved; return timings by name."""
    blocks: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    order = deque(contestants)
    with settled_heap():
        for _ in range(repeat):
            for contestant in order:
                blocks[contestant.name].append(await contestant.block())
            order.rotate()  # or the same one would always sit at the end of our time slice
    return {name: Timing(min(times), median(times)) for name, times in blocks.items()}
