"""The pool: the ordered workers that a conductor may call, as data.

A profile is all that a conductor may read and an engine must respect about a worker. How to reach
a worker is `podium.workers`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from podium.core.errors import ConfigError, UnknownWorker, UsageError
from podium.core.request import Price

Capability = Literal[
    "vision", "pdf", "tools", "json", "long_context", "reasoning", "sampling", "prefill"
]
"""`pdf`: it reads PDFs. `sampling`: it accepts temperature, top_p and seed. `prefill`: it continues
a given reply."""

CAPABILITIES: Final[tuple[Capability, ...]] = get_args(Capability)

CONDUCTOR_PROVIDER: Final = "podium"
"""The provider of a worker that is a conductor: its steps are nested runs."""

PYTHON_PROVIDER: Final = "python"
"""The provider of a worker that runs the program of an earlier step, and answers no question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a worker; None is unknown or none.

    Args:
        concurrency: The most calls at once.
        requests_per_minute: The most calls in a minute.
        tokens_per_minute: The most tokens in a minute.
        timeout_seconds: The most seconds of one call.
        context_window: The most tokens of a prompt with its reply.
        max_output_tokens: The most tokens of a reply.

    """

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout_seconds: float = 300.0
    context_window: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProfile:
    """A worker as data.

    Args:
        name: Its name, unique in the pool.
        description: The line by which a conductor chooses.
        provider: What connects it, such as `"openai"`.
        model: The provider's name of the model.
        price: US dollars per million tokens; None is unknown.
        limits: Concurrency, rates, timeout, context window.
        capabilities: What it can do: `"tools"`, `"json"`, `"vision"` and others.
        fallback: The worker that takes over a step when this one fails.

    """

    name: str
    description: str = ""
    provider: str = ""
    model: str = ""
    price: Price | None = None
    limits: Limits = Limits()
    capabilities: frozenset[Capability] = frozenset()
    fallback: str | None = None

    @property
    def is_model(self) -> bool:
        """True if it answers questions by itself: neither a conductor nor a tool."""
        return self.provider not in (CONDUCTOR_PROVIDER, PYTHON_PROVIDER)


@dataclass(frozen=True, slots=True)
class Pool:
    """Profiles in order; a worker's id in a plan is its index here.

    Args:
        workers: The profiles; their names differ.
        share_question: If False, workers see only their subtask, not the question (for small
            specialists).
        mask_names: Hide names from the conductor, as in the paper.

    Raises:
        ConfigError: The pool is empty, names repeat, or a fallback is not in it.

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
        """Return the worker's id in plans."""
        return self.workers.index(self[name])

    def without(self, excluded: Collection[str]) -> Pool:
        """Return this pool without workers whose name or provider is excluded.

        Fallbacks to them are dropped too, so that an exclusion holds for every call.
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
        """The worker for a whole question without a plan: the most expensive one.

        Price is the only measure of strength that every pool has; then the pool's order decides.
        """
        return max(
            self._answering, key=lambda worker: worker.price.output if worker.price else -1.0
        )

    @property
    def cheapest(self) -> WorkerProfile:
        """The worker with the lowest price; unknown prices come last."""
        return min(
            self._answering,
            key=lambda worker: worker.price.output if worker.price else float("inf"),
        )

    @property
    def sole_model(self) -> WorkerProfile | None:
        """The only worker that answers questions by itself; None where there are several."""
        models = [worker for worker in self.workers if worker.is_model]
        return models[0] if len(models) == 1 else None

    @property
    def _answering(self) -> Sequence[WorkerProfile]:
        return [worker for worker in self.workers if worker.is_model] or self.workers


MCP_PREFIX: Final = "mcp:"
"""Prefix of MCP servers in exclusions."""


def excludable_names(
    profiles: Iterable[WorkerProfile], servers: Iterable[str] = ()
) -> frozenset[str]:
    """Return every name that a run can exclude: workers, providers and MCP servers."""
    names = {name for profile in profiles for name in (profile.name, profile.provider)}
    return frozenset(names - {""}) | {f"{MCP_PREFIX}{server}" for server in servers}


def check_excluded(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """Return the names; raise `ConfigError` for an unknown one."""
    for name in sorted(names - known):
        raise ConfigError(
            f"cannot exclude {name[:80]!r}: no worker, provider or MCP server has that name; "
            f"there is {', '.join(sorted(known))}"
        )
    return names
