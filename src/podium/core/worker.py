"""The worker protocol: anything that takes a request and returns a reply.

A worker is a plain class with a profile and two methods:

    class Shouter(Worker):
        profile = WorkerProfile(name="shouter", description="repeats you, loudly")

        async def reply(self, request: Request) -> Reply:
            return Reply(request.messages[-1].text.upper())

Inheriting from `Worker`, as above, adds a `stream` that yields the whole reply at once; it is not
required. Workers raise `WorkerError` and nothing else. Retries, limits, timeouts and budgets are
the engine's task. A `Toolbox` holds Podium's own tools, which workers call inside a step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from typing import Protocol, runtime_checkable

from podium.core.errors import WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, Tool, ToolCall, ToolResult


class Toolbox(Protocol):
    """Podium's own tools, called inside a step, within the budget's calls and seconds.

    They are offered to every worker that can call tools, besides the client's tools.
    """

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools."""

    async def call(self, call: ToolCall) -> ToolResult:
        """Call a tool. An exception becomes an error result."""


@runtime_checkable
class McpToolbox(Toolbox, Protocol):
    """A toolbox of MCP servers, which a run may exclude as `mcp:NAME`."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers' names."""

    def exclude(self, names: Collection[str]) -> Toolbox:
        """Return the tools of the other servers, which get the excluded names passed on."""


def mcp_servers(toolbox: Toolbox | None) -> tuple[str, ...]:
    """Return the servers that can be excluded from a toolbox."""
    return toolbox.servers if isinstance(toolbox, McpToolbox) else ()


def exclude_servers(toolbox: Toolbox | None, names: Collection[str]) -> Toolbox | None:
    """Return the toolbox without the excluded servers."""
    if names and isinstance(toolbox, McpToolbox):
        return toolbox.exclude(names)
    return toolbox


@runtime_checkable
class Worker(Protocol):
    """Takes a request and returns a reply."""

    profile: WorkerProfile
    """The description that conductors read and the limits that the engine enforces."""

    async def reply(self, request: Request) -> Reply:
        """Return the whole reply."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Yield any number of deltas, then the whole reply."""
        reply = await self.reply(request)
        if reply.text:
            yield Delta(reply.text)
        yield reply


OnDelta = Callable[[Delta], None]
OnRetry = Callable[[str, WorkerError, float], Request]
"""Called with worker, error and wait before a retry; returns the request to send."""


class Caller(Protocol):
    """Calls a worker within a run's budget, with limits, retries and a record.

    Conductors get one, and never call a worker directly, so that planning is metered too.
    """

    async def __call__(
        self,
        worker: Worker,
        request: Request,
        on_delta: OnDelta | None = None,
        on_retry: OnRetry | None = None,
    ) -> Reply:
        """Call the worker, streaming if `on_delta` is given.

        Raises `WorkerError` or `BudgetExhausted`.
        """
