"""Contestants, and the fair way to time them: turn by turn, in many short blocks.

On a busy machine a single long measurement mostly measures the neighbours. Here the contestants
take turns (A B C A B C …), so that what disturbs one disturbs all alike; a block is so short
that many pass undisturbed, and the quickest block of each is what it costs to do the work.
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
    """Spare the collector what is there by now, as a server does: what is measured pays for its own
    garbage only. In a process that spares its collector by itself it stays so."""
    is_spared = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not is_spared:
            gc.unfreeze()


CHAINS_A_BLOCK: Final = 20
"""A block of ours takes one or two milliseconds, less than a scheduler's usual time slice."""


class Contestant(Protocol):
    """Something that carries out the chain in its own way."""

    name: str

    async def block(self) -> float:
        """Carry out a short block of chains and return the microseconds that one took."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a chain: in the quickest block, and in the block in the middle."""

    best: float
    median: float


class Chains:
    """A contestant in this process: it carries the chain out again and again."""

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
        """Carry out one block; its first chain is not timed, as it finds cold caches."""
        await self._carry_out()
        started = perf_counter()
        for _ in range(self.chains_a_block):
            await self._carry_out()
        return (perf_counter() - started) / self.chains_a_block * 1e6


async def take_turns(contestants: Sequence[Contestant], repeat: int) -> dict[str, Timing]:
    """Let each contestant carry out `repeat` blocks, in turns; the timings by name."""
    blocks: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    order = deque(contestants)
    with settled_heap():
        for _ in range(repeat):
            for contestant in order:
                blocks[contestant.name].append(await contestant.block())
            order.rotate()  # or the same one would always sit at the end of our time slice
    return {name: Timing(min(times), median(times)) for name, times in blocks.items()}
