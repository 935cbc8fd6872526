"""What several parts need: many things at once, so many of them at a time; every run of a store
without holding them all; and how long things took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from statistics import quantiles
from typing import Final

from podium.store import RunStore, RunSummary

PAGE: Final = 500


async def in_turns(count: int, in_flight: int, perform: Callable[[int], Awaitable[None]]) -> None:
    """Perform that many, with so many of them in flight at any time."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await perform(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(go_on())


async def every_run(store: RunStore) -> AsyncIterator[RunSummary]:
    """All runs of a store, the newest first, page by page."""
    before = None
    while page := await store.list(limit=PAGE, before=before):
        for summary in page:
            yield summary
        before = page[-1].id


def middle_and_tail(name: str, seconds: Sequence[float]) -> dict[str, int | float | str | None]:
    """The time in the middle and the one that a twentieth exceed, in milliseconds, by name."""
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=20)
    return {f"{name}_p50_ms": round(cuts[9] * 1000, 1), f"{name}_p95_ms": round(cuts[18] * 1000, 1)}
