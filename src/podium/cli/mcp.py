"""`podium mcp`: ask and plan as tools of an MCP client, over standard input and output.

The official `mcp` SDK (extra `mcp`) speaks the protocol. It is imported when the command runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from podium._version import __version__
from podium.cli import options
from podium.cli.options import (
    BudgetOptions,
    Omit,
    PlanningOptions,
    PoolOptions,
    with_option_groups,
)
from podium.cli.session import Session
from podium.client.client import AsyncPodium
from podium.client.documents import plan_document
from podium.client.run_options import RunOptions
from podium.core.errors import ConfigError, PodiumError, UsageError, install_command
from podium.core.events import Event, describe_progress
from podium.core.json_schema import find_mismatch
from podium.core.run import Round, Run, Tier
from podium.engine.runner import Options
from podium.workers.mcp import EXCLUDED

if TYPE_CHECKING:  # needs the extra `mcp`
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
    )

app = typer.Typer(rich_markup_mode=None, add_completion=False)

log = logging.getLogger("podium")

MAX_AT_ONCE: Final = 32
"""Calls that run at the same time; more are refused."""

SERVER_BUSY: Final = -32000

INSTRUCTIONS: Final = (
    "Podium answers questions with several language models. Use ask for an answer, plan to see "
    "beforehand which model would do what."
)


@app.command()
@with_option_groups
def mcp(
    pool: PoolOptions,
    planning: Annotated[PlanningOptions, Omit(("quality_bias",))],
    budget: BudgetOptions,
    no_store: options.NoStore = False,
) -> None:
    """Offer ask and plan to an MCP client.

    The client starts this command and talks to it over standard input and output. The budget
    applies to each call. Errors go to standard error.
    """
    with Session(pool, planning, budget, store_runs=not no_store) as session:
        session.wait_for(serve_stdio(session.podium, session.options))


Progress = Callable[[str], None]
"""Takes a line that says what is being done."""

_QUESTION: Final = {"type": "string", "minLength": 1, "description": "the whole question"}
_TIER: Final = {
    "type": "string",
    "enum": list(get_args(Tier)),
    "description": "how much conducting: mini asks one model, ultra plans several steps, podium "
    "chooses between them",
}
_MAX_STEPS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "the most steps of a plan; it can only lower the configured limit",
}
_ROUNDS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "how often the conductor may plan, having seen the answer so far; it can only "
    "lower the configured limit",
}
_QUALITY_BIAS: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": "how much quality counts over cost where a learned router chooses, from 0, the "
    "cheapest, to 1, the best; for the tiers mini and podium",
}
_USD: Final = {
    "type": "number",
    "minimum": 0,
    "description": "the most that this call may cost, in US dollars; it can only lower the "
    "configured cap",
}


def _input_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"question": _QUESTION, **properties},
        "required": ["question"],
        "additionalProperties": False,
    }


TOOLS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": "ask",
        "title": "Ask a pool of models",
        "description": "Answers a question with several language models, led by a conductor that "
        "plans which does what. Worth its time and cost for hard questions and for a second "
        "opinion. It sees nothing but the question: include what it needs.",
        "inputSchema": _input_schema(
            tier=_TIER,
            max_steps=_MAX_STEPS,
            rounds=_ROUNDS,
            quality_bias=_QUALITY_BIAS,
            budget_usd=_USD,
        ),
        "outputSchema": {
            "type": "object",
            "properties": {
                "run_id": {"type": "string", "description": "for podium runs show"},
                "status": {"type": "string"},
                "answer": {"type": ["string", "null"]},
                "error": {"type": ["string", "null"]},
                "workers": {"type": "array", "items": {"type": "string"}},
                "total_tokens": {"type": ["integer", "null"]},
                "cost_usd": {"type": ["number", "null"], "description": "null: not known"},
            },
            "required": ["run_id", "status", "answer"],
        },
        "annotations": {"openWorldHint": True, "destructiveHint": False},
    },
    {
        "name": "plan",
        "title": "Plan without executing",
        "description": "Returns the steps that a question would take: which model does what, and "
        "which results it reads. Nothing is executed.",
        "inputSchema": _input_schema(
            tier=_TIER, max_steps=_MAX_STEPS, quality_bias=_QUALITY_BIAS, budget_usd=_USD
        ),
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
)

_SCHEMAS: Final = {tool["name"]: tool["inputSchema"] for tool in TOOLS}


async def call_tool(
    podium: AsyncPodium,
    defaults: RunOptions,
    tool: str,
    arguments: Mapping[str, Any],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the result of a tool, errors included; `defaults` caps limits and budget."""
    problem = find_mismatch(json.dumps(arguments), _SCHEMAS[tool])
    if problem is not None:
        return _error_result(f"invalid arguments: {problem}")
    question = arguments["question"]
    try:
        run_options = _run_options(defaults, (await podium.open()).options, arguments)
        if tool == "plan":
            return _plan_result(question, await podium.plan(question, **run_options))

        def report(event: Event) -> None:
            if progress is not None and (line := describe_progress(event)) is not None:
                progress(line)

        run_options["emit"] = report
        return _run_result(await podium.ask(question, **run_options))
    except PodiumError as error:
        return _error_result(str(error))


def _run_options(
    defaults: RunOptions, options: Options, arguments: Mapping[str, Any]
) -> RunOptions:
    run_options = defaults.copy()
    if "tier" in arguments:
        run_options["tier"] = arguments["tier"]
    if "quality_bias" in arguments:
        run_options["quality_bias"] = arguments["quality_bias"]
    most = replace(
        options,
        max_steps=defaults.get("max_steps", options.max_steps),
        rounds=defaults.get("rounds", options.rounds),
        budget=defaults.get("budget", options.budget),
    )
    allowed = most.narrow(
        max_steps=arguments.get("max_steps"),
        rounds=arguments.get("rounds"),
        caps={"usd": arguments.get("budget_usd")},
    )
    run_options["max_steps"], run_options["rounds"] = allowed.max_steps, allowed.rounds
    run_options["budget"] = allowed.budget
    return run_options


def _run_result(run: Run) -> dict[str, Any]:
    text = run.answer if run.answer is not None else f"{run.status}: {run.error}"
    return {
        "content": [_text(text)],
        "structuredContent": {
            "run_id": run.id,
            "status": run.status,
            "answer": run.answer,
            "error": run.error,
            "workers": list(dict.fromkeys(step.answered_by or step.worker for step in run.steps)),
            "total_tokens": run.usage.total_tokens,
            "cost_usd": run.cost_usd,
        },
        "isError": run.answer is None,
    }


def _plan_result(question: str, plan: Round) -> dict[str, Any]:
    document = plan_document(question, plan)
    lines = [
        f"{index} {step['worker']}: {step['subtask']} (reads {_reads(step['access'])})"
        for index, step in enumerate(document["steps"])
    ]
    return {
        "content": [_text("\n".join(lines))],
        "structuredContent": document,
        "isError": False,
    }


def _reads(access: str | list[int]) -> str:
    if access == "all":
        return "all before it"
    return ", ".join(map(str, access)) if access else "nothing"


def _error_result(problem: str) -> dict[str, Any]:
    return {"content": [_text(problem)], "isError": True}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


class McpTools:
    """The tools as one MCP client calls them; `defaults` are the options of every run."""

    def __init__(self, podium: AsyncPodium, defaults: RunOptions | None = None) -> None:
        self._podium = podium
        self._defaults = RunOptions() if defaults is None else defaults
        self._running = 0

    def server(self) -> Server[Any]:
        """Return the SDK's server of these tools."""
        try:
            from mcp.server.lowlevel import Server
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"podium mcp needs the extra mcp; install it: {install_command('mcp')}"
            ) from error
        return Server(
            "podium",
            title="Podium",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(
        self, _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        from mcp_types import ListToolsResult

        return ListToolsResult.model_validate({"tools": TOOLS})

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult

        if params.name not in _SCHEMAS:
            known = ", ".join(_SCHEMAS)
            raise MCPError(INVALID_PARAMS, f"tool not found: {params.name[:100]!r}; use {known}")
        if self._running >= MAX_AT_ONCE:
            raise MCPError(SERVER_BUSY, f"{MAX_AT_ONCE} calls are running; retry later")
        meta: Mapping[str, Any] = context.meta or {}
        defaults = await self._without(meta.get(EXCLUDED))
        self._running += 1
        try:
            async with _progress(context) as progress:
                result = await call_tool(
                    self._podium, defaults, params.name, params.arguments or {}, progress
                )
        except Exception as error:
            log.exception("tools/call failed")
            raise MCPError(INTERNAL_ERROR, f"Podium failed: {type(error).__name__}") from error
        finally:
            self._running -= 1
        return CallToolResult.model_validate(result)

    async def _without(self, excluded: object) -> RunOptions:
        """Return the default options without the workers and providers that a call excludes.

        The client's pool may be another one, so names that this pool does not have are ignored.
        """
        named = excluded if isinstance(excluded, list) else []
        names = frozenset(name for name in named if isinstance(name, str))
        known = names & (await self._podium.open()).excludable_names if names else names
        if not known:
            return self._defaults
        return {**self._defaults, "exclude": self._defaults.get("exclude", frozenset()) | known}


@asynccontextmanager
async def _progress(context: ServerRequestContext[Any]) -> AsyncIterator[Progress]:
    """Send lines of progress in their order; all are sent before the result."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    async def send() -> None:
        count = 0
        while (line := await lines.get()) is not None:
            count += 1
            await context.session.report_progress(count, message=line)

    sending = asyncio.create_task(send())
    try:
        yield lines.put_nowait
        lines.put_nowait(None)
        await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def serve_stdio(podium: AsyncPodium, defaults: RunOptions) -> None:
    """Serve the client at standard input and output; what else is printed goes to stderr."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "standard input is a terminal; podium mcp is started by an MCP client, see "
            "docs/reference/mcp.md"
        )
    server = McpTools(podium, defaults).server()
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
