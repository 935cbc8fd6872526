"""The tools `ask` and `plan` on the official `mcp` SDK, which the extra `mcp` installs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from podium._version import __version__
from podium.client.client import AsyncPodium
from podium.client.documents import plan_document
from podium.client.run_options import RunOptions
from podium.core.errors import PodiumError, Unavailable
from podium.core.events import Event, describe_progress
from podium.core.run import Run, Tier
from podium.workers.mcp import EXCLUDED

LIMITS: Final = ("max_steps", "rounds", "budget")
MAX_CALLS: Final = 32

Question = Annotated[str, Field(min_length=1, description="the whole question")]
TierChoice = Annotated[
    Tier | None,
    Field(
        description="how much conducting: mini asks one model, ultra plans several steps, podium "
        "chooses between them"
    ),
]
MaxSteps = Annotated[
    int | None,
    Field(
        ge=1,
        le=100,
        description="the most steps of a plan; it can only lower the configured limit",
    ),
]
Rounds = Annotated[
    int | None,
    Field(
        ge=1,
        le=100,
        description="how often the conductor may plan, having seen the answer so far; it can only "
        "lower the configured limit",
    ),
]
BudgetUsd = Annotated[
    float | None,
    Field(
        ge=0,
        description="the most that this call may cost, in US dollars; it can only lower the "
        "configured cap",
    ),
]


@dataclass(frozen=True, slots=True)
class AskResult:
    """A run; `podium runs show` takes its id. The cost is null where it is not known."""

    run_id: str
    status: str
    answer: str | None
    error: str | None
    workers: tuple[str, ...]
    total_tokens: int | None
    cost_usd: float | None


def create_server(
    podium: AsyncPodium, defaults: RunOptions | None = None, *, max_calls: int = MAX_CALLS
) -> MCPServer[Any]:
    """Return a server of the tools; `defaults` are the options of every run.

    More than `max_calls` at once are refused.
    """
    slots = asyncio.Semaphore(max_calls)

    async def ask(
        context: Context,
        question: Question,
        tier: TierChoice = None,
        max_steps: MaxSteps = None,
        rounds: Rounds = None,
        budget_usd: BudgetUsd = None,
    ) -> Annotated[CallToolResult, AskResult]:
        """Answers a question with several language models, led by a conductor that plans which does
        what. Worth its time and cost for hard questions and for a second opinion. It sees nothing
        but the question: include what it needs."""
        sending: list[asyncio.Task[None]] = []

        def report(event: Event) -> None:
            if line := describe_progress(event):
                progress = context.report_progress(len(sending) + 1, message=line)
                sending.append(asyncio.create_task(progress))

        try:
            options = await _run_options(
                podium, defaults, context, tier, max_steps, rounds, budget_usd
            )
            options["emit"] = report
            async with _slot(slots):
                run = await podium.ask(question, **options)
        except PodiumError as error:
            return _error(error)
        finally:
            await asyncio.gather(*sending, return_exceptions=True)
        return _run_result(run)

    async def plan(
        context: Context,
        question: Question,
        tier: TierChoice = None,
        max_steps: MaxSteps = None,
        budget_usd: BudgetUsd = None,
    ) -> CallToolResult:
        """Returns the steps that a question would take: which model does what, and which results it
        reads. Nothing is executed."""
        try:
            options = await _run_options(
                podium, defaults, context, tier, max_steps, None, budget_usd
            )
            async with _slot(slots):
                document = plan_document(question, await podium.plan(question, **options))
        except PodiumError as error:
            return _error(error)
        lines = [
            f"{index} {step['worker']}: {step['subtask']} (reads {_describe_access(step)})"
            for index, step in enumerate(document["steps"])
        ]
        return CallToolResult(content=_text("\n".join(lines)), structured_content=document)

    ask_hints = ToolAnnotations(open_world_hint=True, destructive_hint=False)
    plan_hints = ToolAnnotations(read_only_hint=True, open_world_hint=True)
    return MCPServer(
        "podium",
        title="Podium",
        version=__version__,
        instructions="Podium answers questions with several language models. Use ask for an "
        "answer, plan to see beforehand which model would do what.",
        tools=[
            _strict_tool(ask, "Ask a pool of models", ask_hints),
            _strict_tool(plan, "Plan without executing", plan_hints),
        ],
        log_level="WARNING",
    )


def _strict_tool(function: Callable[..., Any], title: str, hints: ToolAnnotations) -> Tool:
    """Return a tool that refuses unknown arguments: a misspelt cap would not count."""
    tool = Tool.from_function(function, title=title, annotations=hints)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(by_alias=True)
    return tool


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore) -> AsyncIterator[None]:
    if slots.locked():
        raise Unavailable("too many calls are running; retry later")
    async with slots:
        yield


async def _run_options(
    podium: AsyncPodium,
    defaults: RunOptions | None,
    context: Context,
    tier: Tier | None,
    max_steps: int | None,
    rounds: int | None,
    budget_usd: float | None,
) -> RunOptions:
    """Return the defaults, lowered to what the call asks for.

    The client may be another Podium, which names the workers and providers that its run excludes.
    Its pool may be another one, so names that this pool does not have are ignored.
    """
    options, runtime = RunOptions(**(defaults or {})), await podium.open()
    if tier is not None:
        options["tier"] = tier
    limits: dict[str, Any] = {name: options.get(name) for name in LIMITS if name in options}
    allowed = replace(runtime.options, **limits).narrow(
        max_steps=max_steps, rounds=rounds, caps={"usd": budget_usd}
    )
    options["max_steps"], options["rounds"] = allowed.max_steps, allowed.rounds
    options["budget"] = allowed.budget
    meta: Mapping[str, Any] = context.request_context.meta or {}
    named = meta.get(EXCLUDED)
    excluded = {name for name in named if isinstance(name, str)} if isinstance(named, list) else ()
    options["exclude"] = options.get("exclude", frozenset()) | (
        runtime.excludable_names.intersection(excluded)
    )
    return options


def _run_result(run: Run) -> CallToolResult:
    found = {
        "run_id": run.id,
        "status": run.status,
        "answer": run.answer,
        "error": run.error,
        "workers": list(dict.fromkeys(step.answered_by or step.worker for step in run.steps)),
        "total_tokens": run.usage.total_tokens,
        "cost_usd": run.cost_usd,
    }
    text = run.answer if run.answer is not None else f"{run.status}: {run.error}"
    is_error = run.answer is None
    return CallToolResult(content=_text(text), structured_content=found, is_error=is_error)


def _error(error: PodiumError) -> CallToolResult:
    return CallToolResult(content=_text(str(error)), is_error=True)


def _text(text: str) -> list[Any]:
    return [TextContent(type="text", text=text)]


def _describe_access(step: Mapping[str, Any]) -> str:
    if step["access"] == "all":
        return "all before it"
    return ", ".join(map(str, step["access"])) or "nothing"
