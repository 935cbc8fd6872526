"""Work spread over a Ray cluster, whatever the work is.

    with taken("auto", Seat, opening, replies, on_cards=False, lost="…") as seats:
        done = await seats.perform(...)

A *seat* is a process on some machine of the cluster that does one kind of work; what it does is
for those who spread something (`podium.evals.cluster`, `podium.train.cluster`). Here is what all
of them share: how a cluster is joined and seats are taken (`joining`), who gets what, and what
happens when a seat is lost (`seats`), and where replies are kept (`replies`).

Ray is imported when a cluster is joined, and not before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium.core.errors import ConfigError, PodiumError, StoreError, UsageError, install_command
from podium.core.request import Reply
from podium.workers.cached import ReplyCache

MOST_SEATS_LOST: Final = 3
"""How many seats one piece of work may be lost with. More are no accident: the work kills them, and
would leave none for the rest."""


class Seats:
    """The seats that were taken in a cluster. `lost` tells, in words, what is left of the work
    and how to go on when every one of them is gone."""

    def __init__(self, seats: Sequence[Any], exceptions: Any, *, lost: str) -> None:
        self._busy = dict.fromkeys(seats, 0)
        self._told = lost
        self._raised = exceptions.RayTaskError  # Ray's own wrapping of what a seat raised
        self._gone = (exceptions.RayActorError, exceptions.ObjectLostError)

    def __len__(self) -> int:
        return len(self._busy)

    async def perform(self, *work: Any) -> Any:
        """Have the seat with least to do perform it. A seat that is lost meanwhile, with its
        machine or by itself, is not given anything again, and another one performs it instead.
        Work that was lost with several is given to no more."""
        lost = 0
        while self._busy and lost < MOST_SEATS_LOST:
            seat = min(self._busy, key=self._busy.__getitem__)
            self._busy[seat] += 1
            try:
                return await seat.perform.remote(*work)
            except self._raised as error:
                raise error.cause if isinstance(error.cause, PodiumError) else error from None
            except self._gone as error:
                self._busy.pop(seat, None)
                lost, cause = lost + 1, error
            finally:
                if seat in self._busy:
                    self._busy[seat] -= 1
        if self._busy:
            raise StoreError(
                f"{lost} seats of the Ray cluster were lost at the same piece of work, the last by "
                f"{type(cause).__name__}: {cause}; see why in Ray's logs (often it is memory); "
                f"{self._told}"
            ) from cause
        raise StoreError(f"the Ray cluster has lost every machine; {self._told}")


SEAT_BYTES: Final = 64 * 1024 * 1024
"""What a seat remembers by itself of the replies that it has seen."""


class Replies(NamedTuple):
    """Where kept replies are on this machine, None for in memory, and how many bytes at most."""

    path: Path | None
    max_bytes: int


class Library:
    """Keeps the replies for all seats, on the machine where the work was begun."""

    def __init__(self, replies: Replies) -> None:
        self._cache = ReplyCache(replies.path, replies.max_bytes)

    def get(self, key: bytes) -> Reply | None:
        """The reply that is kept under that key, if there is one."""
        return self._cache.get(key)

    def keep(self, key: bytes, reply: Reply) -> Reply:
        """Keep the reply, and hand out the one that counts: where two seats asked the same thing
        at the same time, the first to come back, for both."""
        kept = self._cache.get(key)
        if kept is not None:
            return kept
        self._cache.put(key, reply)
        return reply


class BorrowedReplies(ReplyCache):
    """The replies of a library elsewhere; what was borrowed once is remembered here, and is a hit
    like any other."""

    def __init__(self, library: Any) -> None:
        super().__init__(None, SEAT_BYTES)
        self._library = library

    async def fetch(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply under that key, from here, from the library, or from who is asked."""
        return await super().fetch(key, lambda: self._borrowed(key, ask))

    async def _borrowed(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        kept: Reply | None = await self._library.get.remote(key)
        if kept is not None:
            self.misses -= 1  # it was counted as one when it was not found here
            self.hits += 1
            return kept
        reply = await ask()
        counts: Reply = await self._library.keep.remote(key, reply)  # before anyone uses it
        return counts


MOST_SEATS: Final = 1024
CLIENT: Final = "ray://"
"""Addresses of Ray's own client, whose program runs on another machine than its files are."""

LONGEST_ARRIVAL_SECONDS: Final = 120.0
"""How long seats may take to be there; one that has no place until then is done without."""


@contextmanager
def taken(
    address: str,
    seat: Callable[..., Any],
    opening: object,
    replies: Replies,
    *,
    on_cards: bool,
    lost: str,
    wanted: int | None = None,
    sharers: int = 1,
) -> Iterator[Seats]:
    """Take seats in the cluster at that address: as many as are wanted, or one for each CPU, or
    each GPU where the work is done `on_cards` and the cluster has any. So many `sharers` do the
    same at this moment, and each takes its part.

    A seat is made as `seat(opening, library)`, both of which are sent there; its method `perform`
    is what `Seats.perform` calls. `lost` is said when every seat is gone.
    """
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
        needs = _needs(ray, on_cards=on_cards)
        remote = ray.remote(seat).options(scheduling_strategy="SPREAD", **needs)
        count = min(wanted or _places(ray, needs, sharers), MOST_SEATS)
        found = [remote.remote(opening, library) for _ in range(count)]
        actors.extend(found)
        yield Seats(_arrived(ray, found), ray.exceptions, lost=lost)
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
            f"spreading work over machines needs the package ray: {install_command('ray')}"
        ) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    if address.startswith(CLIENT):
        raise UsageError(
            f"{address} is reached from outside of the cluster, and kept replies must be inside: "
            f"join it here with: ray start --address=HOST:6379, and use auto instead"
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


def _needs(ray: Any, *, on_cards: bool) -> dict[str, float]:
    """What a seat takes of a machine: a CPU, or a GPU where models run on one."""
    if on_cards and ray.cluster_resources().get("GPU", 0):
        return {"num_cpus": 0, "num_gpus": 1}
    return {"num_cpus": 1}


def _places(ray: Any, needs: dict[str, float], sharers: int) -> int:
    """How many seats are this sharer's."""
    kind = "GPU" if "num_gpus" in needs else "CPU"
    places = int(ray.cluster_resources().get(kind, 1)) // sharers
    if places < 1:
        raise UsageError(
            f"{sharers} processes share the Ray cluster, and it has fewer {kind}s than that; "
            f"let more machines join it, or start fewer processes"
        )
    return places


def _arrived(ray: Any, seats: list[Any]) -> list[Any]:
    """The seats that are there; others are given up. One that waits for a place that somebody
    else has would keep whatever it is given waiting as well."""
    arrivals = {seat.__ray_ready__.remote(): seat for seat in seats}
    arrived, _ = ray.wait(
        list(arrivals), num_returns=len(arrivals), timeout=LONGEST_ARRIVAL_SECONDS
    )
    there = [arrivals.pop(arrival) for arrival in arrived]
    for late in arrivals.values():
        ray.kill(late)
    if not there:
        raise UsageError(
            f"the Ray cluster had no place for us in {LONGEST_ARRIVAL_SECONDS:g} s; "
            f"see with: ray status, who has them"
        )
    return there


__all__ = ["BorrowedReplies", "Replies", "Seats", "taken"]
