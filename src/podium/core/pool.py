"""The pool: the ordered workers that a conductor may call, as data.

A profile says everything that a conductor may read and an engine must respect about a worker.
How to reach the worker is `podium.providers`; this module only describes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from podium.core.errors import ConfigError, UnknownWorker, UsageError
from podium.core.usage import Price

Capability = Literal["vision", "tools", "json", "long_context", "reasoning", "sampling", "prefill"]
"""What a worker can do. `sampling` means that it accepts temperature and the like, and
`prefill` that it continues a reply which Podium began."""

CAPABILITIES: Final[tuple[Capability, ...]] = (
    "vision",
    "tools",
    "json",
    "long_context",
    "reasoning",
    "sampling",
    "prefill",
)

CONDUCTOR_PROVIDER: Final = "podium"
"""The provider of a worker that is a conductor itself: its steps are nested runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker can take. None means no limit that we know of."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout_seconds: float = 300.0
    context_window: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProfile:
    """Who a worker is.

    `description` is the one line by which a conductor chooses; `fallback` names the worker
    that takes over a step when this one fails.
    """

    name: str
    description: str = ""
    provider: str = ""
    model: str = ""
    price: Price | None = None
    limits: Limits = Limits()
    capabilities: frozenset[Capability] = frozenset()
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Profiles in order; a worker's id in a plan is its place here.

    `share_question` is False when workers see only what their subtask says, never the question
    itself (small specialists need that). `mask_names` hides names from the conductor, which
    then chooses by description alone, as in the paper.
    """

    workers: tuple[WorkerProfile, ...]
    share_question: bool = True
    mask_names: bool = False

    def __post_init__(self) -> None:
        if not self.workers:
            raise ConfigError("the pool is empty; name at least one worker")
        names = self.names
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two workers are named {name!r}; names must differ")
        for worker in self.workers:
            if worker.fallback is not None and worker.fallback not in names:
                raise ConfigError(
                    f"worker {worker.name!r} falls back to {worker.fallback!r}, "
                    f"which is not in the pool; it has {', '.join(names)}"
                )
            if worker.fallback == worker.name:
                raise ConfigError(
                    f"worker {worker.name!r} falls back to itself; name another or none"
                )

    def __len__(self) -> int:
        return len(self.workers)

    def __iter__(self) -> Iterator[WorkerProfile]:
        return iter(self.workers)

    def __getitem__(self, name: str) -> WorkerProfile:
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise UnknownWorker(name, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names in order."""
        return tuple(worker.name for worker in self.workers)

    def index(self, name: str) -> int:
        """The id by which plans call that worker."""
        return self.workers.index(self[name])

    def without(self, excluded: Collection[str]) -> Pool:
        """This pool less the workers whose name or provider is excluded.

        A fallback onto an excluded worker is dropped with it, so that an exclusion holds for
        every call of a run.
        """
        kept = [
            worker
            for worker in self.workers
            if worker.name not in excluded and worker.provider not in excluded
        ]
        if not kept:
            raise UsageError(f"excluding {', '.join(sorted(excluded))} leaves no worker")
        names = {worker.name for worker in kept}
        return replace(
            self,
            workers=tuple(
                worker if worker.fallback in names else replace(worker, fallback=None)
                for worker in kept
            ),
        )

    @property
    def best(self) -> WorkerProfile:
        """The worker to trust with a whole question when there is no plan.

        Price is the only measure of strength that every pool carries; among equals, and where
        prices are unknown, the pool's order decides.
        """
        candidates = [worker for worker in self.workers if worker.provider != CONDUCTOR_PROVIDER]
        return max(
            candidates or self.workers,
            key=lambda worker: worker.price.output if worker.price else -1.0,
        )

    @property
    def cheapest(self) -> WorkerProfile:
        """The worker that answers for the least money; unknown prices come last."""
        candidates = [worker for worker in self.workers if worker.provider != CONDUCTOR_PROVIDER]
        return min(
            candidates or self.workers,
            key=lambda worker: worker.price.output if worker.price else float("inf"),
        )


MCP_PREFIX: Final = "mcp:"
"""What the name of a server of tools begins with."""


def excludable_names(
    profiles: Iterable[WorkerProfile], servers: Iterable[str] = ()
) -> frozenset[str]:
    """Every name that can be excluded, where these may work and those have tools."""
    names = {name for profile in profiles for name in (profile.name, profile.provider)}
    return frozenset(names - {""}) | {f"{MCP_PREFIX}{server}" for server in servers}


def check_excluded(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The names; raises `ConfigError` for one that nobody has."""
    for name in sorted(names - known):
        raise ConfigError(
            f"{name[:80]!r} is to be excluded, but no worker, provider or server of tools is "
            f"called so; there is {', '.join(sorted(known))}"
        )
    return names
