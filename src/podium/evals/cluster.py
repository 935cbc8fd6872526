"""An evaluation spread over a Ray cluster: the same samples, performed on other machines.

    async with spread("auto", opening, replies) as cluster:
        evaluation = Evaluation(..., perform=cluster, concurrency=cluster.seats * 8)

What must be measured, what is written and what it comes to stays in this process. The cluster has
*seats*, a process for each CPU, each with workers of its own; a seat that is lost with its
machine loses nothing, since what it had not handed over is given to another. Kept replies are on
this machine, and every seat asks for them here before it asks a worker.

Limits of a worker hold for each seat by itself. How a cluster is joined, and what its machines
need, is `podium.cluster`.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from podium.config import Settings, WorkerSettings
from podium.evals.ensemble import Ensemble, opened
from podium.evals.evaluation import Performed, Performer
from podium.evals.sample import Case
from podium.tasks.cluster import BorrowedReplies, Replies, Seats, taken

WHAT_IS_LEFT: Final = (
    "what was measured is kept: start the cluster again and run the same command to go on"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What it takes to open the same ensemble elsewhere."""

    settings: Settings
    seed: int
    oracle: bool = False
    untrained: WorkerSettings | None = None
    flaky: float = 0.0


class HandedOver(NamedTuple):
    """What a seat has done, and the calls that it made since it last said so, by worker."""

    performed: Performed
    asked: Counter[str]


class Seat:
    """A process on some machine of the cluster. Its workers are connected with the first task."""

    def __init__(self, opening: Opening, library: Any) -> None:
        self._opening = opening
        self._library = library
        self._stack = AsyncExitStack()
        self._opened: asyncio.Task[tuple[Ensemble, Performer]] | None = None
        self._told = Counter[str]()

    async def perform(self, name: str, case: Case, repeat: int) -> HandedOver:
        """Have the strategy answer the task, and grade it."""
        if self._opened is None:
            self._opened = asyncio.create_task(self._open())
        ensemble, performer = await asyncio.shield(self._opened)
        performed = await performer(name, case, repeat)
        asked = ensemble.asked - self._told
        self._told = ensemble.asked.copy()
        return HandedOver(performed, asked)

    async def _open(self) -> tuple[Ensemble, Performer]:
        opening = self._opening
        ensemble = await self._stack.enter_async_context(
            opened(
                opening.settings,
                os.environ,
                cache=BorrowedReplies(self._library),
                oracle=opening.oracle,
                untrained=opening.untrained,
            )
        )
        if opening.flaky:
            ensemble = ensemble.made_flaky(opening.flaky, opening.seed)
        return ensemble, Performer(ensemble, seed=opening.seed)


class SpreadPerformer:
    """Performs on the seats of a cluster. `asked` counts the calls that all of them made."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self.asked = Counter[str]()

    @property
    def seats(self) -> int:
        """How many there are."""
        return len(self._seats)

    async def __call__(self, name: str, case: Case, repeat: int) -> Performed:
        """Have some seat do it."""
        done: HandedOver = await self._seats.perform(name, case, repeat)
        self.asked += done.asked
        return done.performed


@asynccontextmanager
async def spread(
    address: str, opening: Opening, replies: Replies, *, seats: int | None = None
) -> AsyncIterator[SpreadPerformer]:
    """Take seats in the cluster at that address, one for each of its CPUs or GPUs, or as many as
    are wanted, and leave them at the end."""
    workers = opening.settings.workers
    on_cards = any(worker.profile.provider == "transformers" for worker in workers)
    with taken(
        address, Seat, opening, replies, on_cards=on_cards, lost=WHAT_IS_LEFT, wanted=seats
    ) as found:
        yield SpreadPerformer(found)
