"""What a question demands of workers, and a workflow fitted to it.

Terms and images need capabilities: a schema needs a worker that writes JSON to order, an image one
that can see. Where a plan gives its final step to a worker that lacks what is needed, another
takes the step over, and the round says so. What no worker of the pool can do is refused before
anything is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from podium.core.errors import PlanError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Capability, Pool, WorkerProfile
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, TOOL_CHOICES, Image, ResponseOptions
from podium.core.workflow import Workflow

Capabilities = frozenset[Capability]

_WORDS: Final[dict[Capability, str]] = {
    "vision": "see images",
    "tools": "call tools",
    "json": "write JSON to a schema",
    "sampling": "be told temperature, top_p or seed",
}


def answer_capabilities(response_options: ResponseOptions) -> Capabilities:
    """What whoever gives the answer must be able to do.

    A temperature or top_p of 1 is how every model samples that is not told otherwise.
    """
    needs: set[Capability] = set()
    if response_options.schema is not None:
        needs.add("json")
    told = {response_options.temperature, response_options.top_p} - {
        None,
        1,
    } or response_options.seed is not None
    if told:
        needs.add("sampling")
    if _forces_a_tool(response_options):
        needs.add("tools")
    return frozenset(needs)


def sole_worker_capabilities(
    response_options: ResponseOptions, images: tuple[Image, ...]
) -> Capabilities:
    """What a worker must be able to do that answers all alone."""
    needs = set(answer_capabilities(response_options))
    if has_callable_tools(response_options):
        needs.add("tools")
    if images:
        needs.add("vision")
    return frozenset(needs)


def has_callable_tools(response_options: ResponseOptions) -> bool:
    """Whether the client's tools may be called."""
    return bool(response_options.tools) and response_options.tool_choice != "none"


def intermediate_options(response_options: ResponseOptions) -> ResponseOptions:
    """What of the terms holds for a step that does not give the answer."""
    if response_options is DEFAULT_RESPONSE_OPTIONS:
        return response_options
    return ResponseOptions(
        tools=response_options.tools if has_callable_tools(response_options) else (),
        effort=response_options.effort,
        parallel_tools=response_options.parallel_tools,
        cache_key=response_options.cache_key,
        cache_time=response_options.cache_time,
    )


def _forces_a_tool(response_options: ResponseOptions) -> bool:
    return bool(response_options.tools) and response_options.tool_choice not in ("", "auto", "none")


def describe_capabilities(needs: Capabilities) -> str:
    """What is needed, to stand after `cannot`."""
    return " or ".join(_WORDS[need] for need in sorted(needs))


def is_capable(worker: WorkerProfile, needs: Capabilities, pool: Pool) -> bool:
    """Whether the worker has all that is needed. A conductor can do what a worker can whom it
    may lead."""
    if worker.provider == CONDUCTOR_PROVIDER:
        return any(
            needs <= other.capabilities for other in pool if other.provider != CONDUCTOR_PROVIDER
        )
    return needs <= worker.capabilities


def check_response_options(response_options: ResponseOptions) -> None:
    """Raise `UsageError` for terms that contradict themselves."""
    names = [tool.name for tool in response_options.tools]
    for name in names:
        if not name or name in TOOL_CHOICES:
            raise UsageError(f"a tool is named {name!r}, which is no name for a tool; rename it")
        if names.count(name) > 1:
            raise UsageError(f"two tools are named {name!r}; names must differ")
    if response_options.tool_choice not in (*TOOL_CHOICES, *names):
        there_is = ", ".join(names) or "none"
        raise UsageError(
            f"tool_choice is {response_options.tool_choice!r}; it is auto, none, required or the "
            f"name of a "
            f"tool, and of these there is {there_is}"
        )
    if response_options.tool_choice not in ("", "auto", "none") and not names:
        raise UsageError(f"tool_choice is {response_options.tool_choice!r}, but there are no tools")
    if response_options.max_tokens is not None and response_options.max_tokens < 1:
        raise UsageError(f"max_tokens is {response_options.max_tokens}; it must be at least 1")


def check_pool(pool: Pool, response_options: ResponseOptions, images: tuple[Image, ...]) -> None:
    """Raise `UsageError` where no worker of the pool can do what is needed."""
    for need in sorted(sole_worker_capabilities(response_options, images)):
        if not any(need in worker.capabilities for worker in pool):
            raise UsageError(
                f"no worker of the pool can {_WORDS[need]}, which this question needs; it has "
                f"{', '.join(pool.names)}"
            )


def fit_workflow(
    workflow: Workflow, pool: Pool, response_options: ResponseOptions, images: tuple[Image, ...]
) -> tuple[Workflow, tuple[str, ...]]:
    """The workflow, with its final step given to a worker that can do what is needed, and what
    was changed in words.

    The final worker must be able to do what the answer needs; that somebody sees the images, and
    that somebody can call the tools, is enough. `PlanError` where no one worker can do it all.
    """
    workers = [pool[step.worker] for step in workflow.steps]
    needs = set(answer_capabilities(response_options))
    for need, is_there in (
        ("vision", bool(images)),
        ("tools", has_callable_tools(response_options)),
    ):
        wanted: Capabilities = frozenset((need,))  # type: ignore[arg-type]
        if is_there and not any(is_capable(worker, wanted, pool) for worker in workers):
            needs |= wanted
    final = workers[-1]
    if not needs or is_capable(final, frozenset(needs), pool):
        return workflow, ()
    missing = describe_capabilities(
        frozenset(need for need in needs if not is_capable(final, frozenset((need,)), pool))
    )
    substitute = _substitute(final, frozenset(needs), pool)
    if substitute is None:
        raise PlanError(
            f"{final.name} gives the answer but cannot {missing or 'do all that is needed'}, and "
            f"no worker of the pool can do that and all else that the answer needs"
        )
    last = replace(workflow.steps[-1], worker=substitute.name)
    said = f"{final.name} cannot {missing}, so {substitute.name} answers in its place"
    return Workflow((*workflow.steps[:-1], last)), (said,)


def _substitute(worker: WorkerProfile, needs: Capabilities, pool: Pool) -> WorkerProfile | None:
    """Who takes over: the first of the worker's named substitutes that can, else the best one."""
    tried = [worker.name]
    while worker.fallback is not None and worker.fallback not in tried:
        worker = pool[worker.fallback]
        tried.append(worker.name)
        if is_capable(worker, needs, pool):
            return worker
    able = tuple(
        replace(other, fallback=None)
        for other in pool
        if other.provider != CONDUCTOR_PROVIDER and is_capable(other, needs, pool)
    )
    return pool[Pool(able).best.name] if able else None
