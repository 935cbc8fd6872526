"""The pool: the ordered workers that a conductor may call, and what a question needs of them.

A profile is all that a conductor may read and an engine must respect about a worker. How to reach
a worker is `podium.workers`.

A schema needs a worker that writes JSON to order, an image one with vision, a PDF one that reads
PDFs. Where a plan gives its final step to a worker that lacks a capability, another takes it over,
with a warning. What no worker of the pool can do is rejected before any call; of images in tool
results a note remains, so that a conversation does not end because a tool returned one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from podium.core.errors import ConfigError, RequestRefused, UnknownWorker, UsageError
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    TOOL_CHOICES,
    Image,
    Price,
    ResponseOptions,
)
from podium.core.workflow import Workflow

Capability = Literal[
    "vision", "pdf", "tools", "json", "long_context", "reasoning", "sampling", "prefill"
]
"""`pdf`: it reads PDFs. `sampling`: it accepts temperature, top_p and seed. `prefill`: it continues
a given reply."""

CAPABILITIES: Final[tuple[Capability, ...]] = get_args(Capability)

Capabilities = frozenset[Capability]

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
    def most_expensive(self) -> WorkerProfile:
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


_WORDS: Final[dict[Capability, str]] = {
    "vision": "see images",
    "pdf": "read PDFs",
    "tools": "call tools",
    "json": "write JSON to a schema",
    "sampling": "accept temperature, top_p or seed",
}


def answer_capabilities(options: ResponseOptions) -> Capabilities:
    """Return what the final step's worker must be able to do.

    A temperature or top_p of 1 is every model's default, and needs nothing.
    """
    needed: set[Capability] = set()
    if options.schema is not None:
        needed.add("json")
    sampling = {options.temperature, options.top_p} - {None, 1}
    if sampling or options.seed is not None:
        needed.add("sampling")
    if options.tools and options.tool_choice != "none":
        needed.add("tools")
    return frozenset(needed)


def sole_worker_capabilities(options: ResponseOptions, images: tuple[Image, ...]) -> Capabilities:
    """Return what a worker must be able to do that answers alone."""
    return answer_capabilities(options) | image_capabilities(images)


def image_capabilities(images: Iterable[Image]) -> Capabilities:
    """Return what a worker must be able to do to see them all."""
    return frozenset("pdf" if image.is_pdf else "vision" for image in images)


def can_see(worker: WorkerProfile, image: Image) -> bool:
    """True if the worker can see the image, or read it if it is a PDF."""
    return image_capabilities((image,)) <= worker.capabilities


def intermediate_options(options: ResponseOptions) -> ResponseOptions:
    """Return the options that also apply to steps before the final one."""
    if options is DEFAULT_RESPONSE_OPTIONS:
        return options
    return ResponseOptions(
        effort=options.effort,
        cache_key=options.cache_key,
        cache_ttl=options.cache_ttl,
    )


def describe_capabilities(needed: Capabilities) -> str:
    """Describe capabilities, to follow "cannot"."""
    return " or ".join(_WORDS[need] for need in sorted(needed))


def is_capable(worker: WorkerProfile, needed: Capabilities, pool: Pool) -> bool:
    """True if the worker has the capabilities; a conductor has those of any of its workers."""
    if worker.provider == CONDUCTOR_PROVIDER:
        return any(needed <= other.capabilities for other in pool if other.is_model)
    return needed <= worker.capabilities


def check_response_options(options: ResponseOptions) -> None:
    """Raise `UsageError` for options that contradict themselves."""
    names = [tool.name for tool in options.tools]
    for name in names:
        if not name or name in TOOL_CHOICES:
            raise UsageError(f"a tool is named {name!r}, which is reserved or empty; rename it")
        if names.count(name) > 1:
            raise UsageError(f"two tools are named {name!r}; names must differ")
    if options.tool_choice not in (*TOOL_CHOICES, *names):
        there_is = ", ".join(names) or "none"
        raise UsageError(
            f"tool_choice is {options.tool_choice!r}; expected auto, none, required or the "
            f"name of a tool ({there_is})"
        )
    if options.tool_choice not in ("", "auto", "none") and not names:
        raise UsageError(f"tool_choice is {options.tool_choice!r}, but there are no tools")
    if options.max_tokens is not None and options.max_tokens < 1:
        raise UsageError(f"max_tokens is {options.max_tokens}; it must be at least 1")


def check_demands(pool: Pool, options: ResponseOptions, images: tuple[Image, ...]) -> None:
    """Raise `UsageError` for contradictory options, and for what no worker of the pool can do."""
    check_response_options(options)
    for need in sorted(sole_worker_capabilities(options, images)):
        if not any(need in worker.capabilities for worker in pool):
            raise UsageError(
                f"no worker of the pool can {_WORDS[need]}, which this question needs; it has "
                f"{', '.join(pool.names)}; where one can, add {need!r} to its capabilities"
            )


def fit_workflow(
    workflow: Workflow,
    pool: Pool,
    options: ResponseOptions,
    images: Iterable[Image],
    shown: Iterable[Image] = (),
) -> tuple[Workflow, tuple[str, ...]]:
    """Return the workflow with capable workers for its final steps, and warnings if changed.

    For images one capable worker in the workflow is enough; those that tools have `shown` need
    none where no worker can see them. Raises `RequestRefused` if no worker can do all that the
    answer needs.
    """
    workers = [pool[step.worker] for step in workflow.steps]

    def unseen(images: Iterable[Image]) -> Capabilities:
        return frozenset(
            need
            for need in image_capabilities(images)
            if not any(is_capable(worker, frozenset((need,)), pool) for worker in workers)
        )

    needed = answer_capabilities(options) | unseen(images)
    wanted = needed | unseen(shown)
    if any(worker.is_model and is_capable(worker, wanted, pool) for worker in pool):
        needed = wanted
    if not needed:
        return workflow, ()
    steps, warnings = list(workflow.steps), list[str]()
    for index in range(workflow.earliest_answer_step, len(steps)):
        substitute, warning = _fit_worker(workers[index], needed, pool)
        steps[index] = replace(steps[index], worker=substitute.name)
        warnings += warning
    return Workflow(tuple(steps)), tuple(warnings)


def _fit_worker(
    final: WorkerProfile, needed: Capabilities, pool: Pool
) -> tuple[WorkerProfile, tuple[str, ...]]:
    """Return the worker if it is capable, else a capable one and a warning."""
    if is_capable(final, needed, pool):
        return final, ()
    missing = describe_capabilities(
        frozenset(need for need in needed if not is_capable(final, frozenset((need,)), pool))
    )
    substitute = _substitute(final, needed, pool)
    if substitute is None:
        raise RequestRefused(
            f"{final.name} gives the answer but cannot {missing or 'do all that is needed'}, and "
            f"no worker of the pool can do that and all else that the answer needs"
        )
    warning = f"{final.name} cannot {missing}, so {substitute.name} answers in its place"
    return substitute, (warning,)


def _substitute(worker: WorkerProfile, needed: Capabilities, pool: Pool) -> WorkerProfile | None:
    """Return the worker's first capable fallback, else the best capable worker."""
    tried = [worker.name]
    while worker.fallback is not None and worker.fallback not in tried:
        worker = pool[worker.fallback]
        tried.append(worker.name)
        if is_capable(worker, needed, pool):
            return worker
    able = tuple(
        replace(other, fallback=None)
        for other in pool
        if other.is_model and is_capable(other, needed, pool)
    )
    return pool[Pool(able).most_expensive.name] if able else None
