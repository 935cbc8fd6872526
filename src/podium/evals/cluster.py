"""An evaluation spread over a Ray cluster: the same samples, performed on other machines.

    async with spread("auto", opening, replies) as cluster:
        evaluation = Evaluation(..., perform=cluster, concurrency=cluster.seats * 8)

What must be measured, what is written and what it comes to stays in this process. The cluster has
*seats*, a process for each CPU, each with workers of its own; a seat that is lost with its
machine loses nothing, since what it had not handed over is given to another. Kept replies are on
this machine, and every seat asks for them here before it asks a worker.

This machine is one of the cluster. Each needs the same Podium, the same paths to local models, and
the keys of hosted workers in its own environment: no key is sent anywhere. Limits of a worker hold
for each seat by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium.config import Settings, WorkerSettings
from podium.errors import ConfigError, PodiumError, StoreError, UsageError, installing
from podium.evals.case import Case
from podium.evals.ensemble import Ensemble, opened
from podium.evals.performing import Performed, Performer
from podium.providers.cached import ReplyCache
from podium.request import Reply

SEAT_BYTES: Final = 64 * 1024 * 1024
"""What a seat remembers by itself of the replies that it has seen."""

MOST_SEATS: Final = 1024
CLIENT: Final = "ray://"
"""Addresses of Ray's own client, whose program runs on another machine than its files are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What it takes to open the same ensemble elsewhere."""

    settings: Settings
    seed: int
    oracle: bool = False
    untrained: WorkerSettings | None = None
    flaky: float = 0.0


class Replies(NamedTuple):
    """Where kept replies are on this machine, None for in memory, and how many bytes at most."""

    path: Path | None
    max_bytes: int


class HandedOver(NamedTuple):
    """What a seat has done, and the calls that it made since it last said so, by worker."""

    performed: Performed
    asked: Counter[str]


class Library:
    """Keeps the replies for all seats, on the machine where the evaluation was begun."""

    def __init__(self, replies: Replies) -> None:
        self._cache = ReplyCache(replies.path, replies.max_bytes)

    def get(self, key: bytes) -> Reply | None:
        """The reply that is kept under that key, if there is one."""
        return self._cache.get(key)

    def put(self, key: bytes, reply: Reply) -> None:
        """Keep the reply."""
        self._cache.put(key, reply)


class BorrowedReplies(ReplyCache):
    """The replies of a library elsewhere; what was borrowed once is remembered here."""

    def __init__(self, library: Any) -> None:
        super().__init__(None, SEAT_BYTES)
        self._library = library

    async def fetch(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply under that key, from here, from the library, or from who is asked."""
        return await super().fetch(key, lambda: self._borrowed(key, ask))

    async def _borrowed(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        kept: Reply | None = await self._library.get.remote(key)
        if kept is not None:
            return kept
        reply = await ask()
        await self._library.put.remote(key, reply)  # before anyone uses it, so it is not lost
        return reply


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
    """Performs on the seats of a cluster, always on the one with least to do. `asked` counts the
    calls that all of them made."""

    def __init__(self, seats: list[Any], exceptions: Any) -> None:
        self._busy = dict.fromkeys(seats, 0)
        self._lost = exceptions.RayActorError
        self._raised = exceptions.RayTaskError  # Ray's own wrapping of what a seat raised
        self.asked = Counter[str]()

    @property
    def seats(self) -> int:
        """How many there are."""
        return len(self._busy)

    async def __call__(self, name: str, case: Case, repeat: int) -> Performed:
        """Have some seat do it; one that is lost meanwhile is not given anything again."""
        while True:
            if not self._busy:
                raise StoreError(
                    "the Ray cluster has lost every machine; what was measured is kept: start the "
                    "cluster again and run the same command to go on"
                )
            seat = min(self._busy, key=self._busy.__getitem__)
            self._busy[seat] += 1
            try:
                done: HandedOver = await seat.perform.remote(name, case, repeat)
            except self._lost:
                self._busy.pop(seat, None)
                continue
            except self._raised as error:
                raise error.cause if isinstance(error.cause, PodiumError) else error from None
            finally:
                if seat in self._busy:
                    self._busy[seat] -= 1
            self.asked += done.asked
            return done.performed


@asynccontextmanager
async def spread(
    address: str, opening: Opening, replies: Replies, *, seats: int | None = None
) -> AsyncIterator[SpreadPerformer]:
    """Take seats in the cluster at that address, one for each of its CPUs or GPUs, or as many as
    are wanted, and leave them at the end."""
    ray = _ray()
    was_there = ray.is_initialized()
    if not was_there:
        _connect(ray, address)
    actors: list[Any] = []
    try:
        library = (
            ray.remote(Library)
            .options(num_cpus=0, scheduling_strategy=_on_this_machine(ray))
            .remote(replies)
        )
        actors.append(library)
        needs = _needs(ray, opening.settings)
        seat = ray.remote(Seat).options(scheduling_strategy="SPREAD", **needs)
        count = min(seats or _places(ray, needs), MOST_SEATS)
        found = [seat.remote(opening, library) for _ in range(count)]
        actors.extend(found)
        yield SpreadPerformer(found, ray.exceptions)
    finally:
        for actor in actors:
            ray.kill(actor)
        if not was_there:
            ray.shutdown()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry, ever
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(
            f"spreading an evaluation needs the package ray: {installing('ray')}"
        ) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    if address.startswith(CLIENT):
        raise UsageError(
            f"{address} is reached from outside of the cluster, and kept replies must be inside: "
            f"join it here with: ray start --address=HOST:6379, and use --ray auto"
        )
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address!r}: {error}; start one with: ray start --head"
        ) from error


def _on_this_machine(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    return NodeAffinitySchedulingStrategy(node_id=here, soft=False)


def _needs(ray: Any, settings: Settings) -> dict[str, float]:
    """What a seat takes of a machine: a CPU, or a GPU where models run on one."""
    on_cards = any(worker.profile.provider == "transformers" for worker in settings.workers)
    if on_cards and ray.cluster_resources().get("GPU", 0):
        return {"num_cpus": 0, "num_gpus": 1}
    return {"num_cpus": 1}


def _places(ray: Any, needs: dict[str, float]) -> int:
    kind = "GPU" if "num_gpus" in needs else "CPU"
    return max(1, int(ray.cluster_resources().get(kind, 1)))
