"""The capabilities that a question needs, and workflows fitted to them.

A schema needs a worker that writes JSON to order, an image one with vision, a PDF one that reads
PDFs. Where a plan gives its final step to a worker that lacks a capability, another takes it over,
with a warning. What no worker of the pool can do is rejected before any call; of images in tool
results a note remains, so that a conversation does not end because a tool returned one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from podium.core.errors import RequestRefused, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Capability, Pool, WorkerProfile
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, TOOL_CHOICES, Image, ResponseOptions
from podium.core.workflow import Workflow

Capabilities = frozenset[Capability]

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
    if has_callable_tools(options):
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


def has_callable_tools(options: ResponseOptions) -> bool:
    """True if the client's tools may be called."""
    return bool(options.tools) and options.tool_choice != "none"


def intermediate_options(options: ResponseOptions) -> ResponseOptions:
    """Return the options that also apply to steps before the final one."""
    if options is DEFAULT_RESPONSE_OPTIONS:
        return options
    return ResponseOptions(
        effort=options.effort,
        cache_key=options.cache_key,
        cache_time=options.cache_time,
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
            raise UsageError(f"a tool is named {name!r}, which is no name for a tool; rename it")
        if names.count(name) > 1:
            raise UsageError(f"two tools are named {name!r}; names must differ")
    if options.tool_choice not in (*TOOL_CHOICES, *names):
        there_is = ", ".join(names) or "none"
        raise UsageError(
            f"tool_choice is {options.tool_choice!r}; it is auto, none, required or the "
            f"name of a tool, and of these there is {there_is}"
        )
    if options.tool_choice not in ("", "auto", "none") and not names:
        raise UsageError(f"tool_choice is {options.tool_choice!r}, but there are no tools")
    if options.max_tokens is not None and options.max_tokens < 1:
        raise UsageError(f"max_tokens is {options.max_tokens}; it must be at least 1")


def check_pool(pool: Pool, options: ResponseOptions, images: tuple[Image, ...]) -> None:
    """Raise `UsageError` where no worker of the pool can do what is needed."""
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
    for index in range(workflow.main, len(steps)):
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
    return pool[Pool(able).best.name] if able else None
