"""A Ray cluster is joined, seats are taken in it, and left at the end.

This machine is one of the cluster. Each needs the same Podium, the same paths to local models, and
the keys of hosted workers in its own environment: no key is sent anywhere. What Ray sends between
machines it pickles, so a cluster is one of machines that trust each other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from podium.cluster.replies import Library, Replies
from podium.cluster.seats import Seats
from podium.errors import ConfigError, UsageError, installing

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
            f"spreading work over machines needs the package ray: {installing('ray')}"
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
