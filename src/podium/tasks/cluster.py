"""Spread work over the actors of a Ray cluster.

    with start_actors("auto", EvalActor, spec, replies, on_gpus=False, hint="…") as pool:
        result = await pool.perform(...)

`podium.evals.evaluation` and `podium.train.worker_set` define the actors. Here they are started,
given work, and replaced when they are lost; one actor shares cached replies. Ray is imported on
use.
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

MAX_ACTORS: Final = 1024
MAX_LOST_ACTORS: Final = 3
"""Actors that one piece of work may lose. More are no accident: the work kills them."""

ACTOR_CACHE_BYTES: Final = 64 * 1024 * 1024
START_SECONDS: Final = 120.0
"""Time for actors to start; those that have no slot until then are given up."""

CLIENT_SCHEME: Final = "ray://"
"""Addresses of Ray's client, which runs on another machine than the files."""


class ActorPool:
    """The actors in use. `hint` says how to resume when all of them are lost."""

    def __init__(self, actors: Sequence[Any], exceptions: Any, *, hint: str) -> None:
        self._in_flight = dict.fromkeys(actors, 0)
        self._hint = hint
        self._task_error = exceptions.RayTaskError  # Ray's wrapper of what an actor raised
        self._lost_errors = (exceptions.RayActorError, exceptions.ObjectLostError)

    def __len__(self) -> int:
        return len(self._in_flight)

    async def perform(self, *work: Any) -> Any:
        """Run work on the least busy actor; if that is lost, on another one, a few times."""
        lost = 0
        while self._in_flight and lost < MAX_LOST_ACTORS:
            actor = min(self._in_flight, key=self._in_flight.__getitem__)
            self._in_flight[actor] += 1
            try:
                return await actor.perform.remote(*work)
            except self._task_error as error:
                raise error.cause if isinstance(error.cause, PodiumError) else error from None
            except self._lost_errors as error:
                self._in_flight.pop(actor, None)
                lost, cause = lost + 1, error
            finally:
                if actor in self._in_flight:
                    self._in_flight[actor] -= 1
        if self._in_flight:
            raise StoreError(
                f"{lost} actors of the Ray cluster were lost at the same work, the last by "
                f"{type(cause).__name__}: {cause}; see Ray's logs (often memory runs out); "
                f"{self._hint}"
            ) from cause
        raise StoreError(f"the Ray cluster has lost all actors; {self._hint}")


class ReplyCacheSpec(NamedTuple):
    """The file of the reply cache on this machine, None for memory, and its size limit."""

    path: Path | None
    max_bytes: int


class ReplyCacheActor:
    """The reply cache of all actors, on the machine where the work was started."""

    def __init__(self, spec: ReplyCacheSpec) -> None:
        self._cache = ReplyCache(spec.path, spec.max_bytes)

    def get(self, key: bytes) -> Reply | None:
        return self._cache.get(key)

    def put(self, key: bytes, reply: Reply) -> Reply:
        """Cache a reply; return the first one if two actors called at the same time."""
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        self._cache.put(key, reply)
        return reply


class RemoteReplyCache(ReplyCache):
    """A reply cache in front of a `ReplyCacheActor`."""

    def __init__(self, actor: Any) -> None:
        super().__init__(None, ACTOR_CACHE_BYTES)
        self._actor = actor

    async def fetch(self, key: bytes, call: Callable[[], Awaitable[Reply]]) -> Reply:
        return await super().fetch(key, lambda: self._fetch_remote(key, call))

    async def _fetch_remote(self, key: bytes, call: Callable[[], Awaitable[Reply]]) -> Reply:
        cached: Reply | None = await self._actor.get.remote(key)
        if cached is not None:
            self.misses -= 1  # the local cache counted a miss
            self.hits += 1
            return cached
        reply = await call()
        stored: Reply = await self._actor.put.remote(key, reply)
        return stored


@contextmanager
def start_actors(
    address: str,
    actor: Callable[..., Any],
    spec: object,
    replies: ReplyCacheSpec,
    *,
    on_gpus: bool,
    hint: str,
    count: int | None = None,
    process_count: int = 1,
) -> Iterator[ActorPool]:
    """Start actors in the cluster at that address, and stop them at the end.

    By default there is one per CPU, or per GPU with `on_gpus` if the cluster has any;
    `process_count` processes divide them. Each is made as `actor(spec, cache)` and has a method
    `perform`.
    """
    ray = _import_ray()
    was_connected = ray.is_initialized()
    if not was_connected:
        _connect(ray, address)
    actors: list[Any] = []
    try:
        cache = (
            ray.remote(ReplyCacheActor)
            .options(num_cpus=0, scheduling_strategy=_on_this_machine(ray))
            .remote(replies)
        )
        actors.append(cache)
        resources = _resources(ray, on_gpus=on_gpus)
        remote = ray.remote(actor).options(scheduling_strategy="SPREAD", **resources)
        wanted = min(count or _slots(ray, resources, process_count), MAX_ACTORS)
        started = [remote.remote(spec, cache) for _ in range(wanted)]
        actors.extend(started)
        yield ActorPool(_wait_for(ray, started), ray.exceptions, hint=hint)
    finally:
        for started_actor in actors:
            ray.kill(started_actor)
        if not was_connected:
            ray.shutdown()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry, ever
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(
            f"running on a cluster needs the package ray: {install_command('ray')}"
        ) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    if address.startswith(CLIENT_SCHEME):
        raise UsageError(
            f"{address} is reached from outside of the cluster, and the reply cache must be "
            f"inside: join it with: ray start --address=HOST:6379, and use auto instead"
        )
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address!r}: {error}; start one with: ray start --head"
        ) from error


def _on_this_machine(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = ray.get_runtime_context().get_node_id()
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def _resources(ray: Any, *, on_gpus: bool) -> dict[str, float]:
    if on_gpus and ray.cluster_resources().get("GPU", 0):
        return {"num_cpus": 0, "num_gpus": 1}
    return {"num_cpus": 1}


def _slots(ray: Any, resources: dict[str, float], process_count: int) -> int:
    kind = "GPU" if "num_gpus" in resources else "CPU"
    slots = int(ray.cluster_resources().get(kind, 1)) // process_count
    if slots < 1:
        raise UsageError(
            f"{process_count} processes share the Ray cluster, and it has fewer {kind}s than that; "
            f"add machines, or start fewer processes"
        )
    return slots


def _wait_for(ray: Any, actors: list[Any]) -> list[Any]:
    """Return the actors that started in time; the others would keep their work waiting."""
    pending = {actor.__ray_ready__.remote(): actor for actor in actors}
    ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=START_SECONDS)
    started = [pending.pop(done) for done in ready]
    for late in pending.values():
        ray.kill(late)
    if not started:
        raise UsageError(
            f"the Ray cluster started no actor in {START_SECONDS:g} s; see with: ray status, "
            f"what uses its resources"
        )
    return started
