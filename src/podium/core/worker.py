"""The worker protocol: anything that takes a request and returns a reply.

A worker is a plain class with a profile and two methods; nothing has to be inherited:

    class Shouter(Worker):
        profile = WorkerProfile(name="shouter", description="repeats you, loudly")

        async def reply(self, request: Request) -> Reply:
            return Reply(request.messages[-1].text.upper())

A class that has only `reply` may inherit from `Worker`, as above, to get a `stream` that hands
the whole reply over at once. Workers raise `WorkerError` and nothing else. Retries, limits,
time-outs and budgets are the engine's business, never a worker's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import Protocol, runtime_checkable

from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, Tool, ToolCall, ToolResult


class Toolbox(Protocol):
    """Tools that are carried out inside a step, within the budget's calls and seconds.

    They are offered to every worker that can call tools, beside the tools of the client.
    """

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What there is."""
        ...

    async def call(self, call: ToolCall) -> ToolResult:
        """Carry a call to one of the tools out. What it raises becomes a result that says so."""
        ...


@runtime_checkable
class McpToolbox(Toolbox, Protocol):
    """A toolbox whose tools are those of servers, which a run may exclude by `mcp:` and name."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        ...

    def excluding(self, names: Collection[str]) -> Toolbox:
        """The tools of the servers that are not excluded. Those are told which names are: what
        must not see a run must not see it through them either."""
        ...


def mcp_servers(toolbox: Toolbox | None) -> tuple[str, ...]:
    """The servers that can be excluded from a toolbox."""
    return toolbox.servers if isinstance(toolbox, McpToolbox) else ()


def exclude_servers(toolbox: Toolbox | None, names: Collection[str]) -> Toolbox | None:
    """The toolbox as a run may use it that excludes these names."""
    if names and isinstance(toolbox, McpToolbox):
        return toolbox.excluding(names)
    return toolbox


@runtime_checkable
class Worker(Protocol):
    """Takes a request and returns a reply."""

    profile: WorkerProfile
    """Who this worker is: what a conductor reads and an engine respects."""

    async def reply(self, request: Request) -> Reply:
        """Answer the request as a whole."""
        ...

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Answer piece by piece: any number of deltas, then the whole reply, last."""
        reply = await self.reply(request)
        if reply.text:
            yield Delta(reply.text)
        yield reply


class Caller(Protocol):
    """Calls a worker on behalf of a run: within its budget, with limits, retries and a record.

    Conductors that need a model to plan are handed one of these and never call a worker
    directly, so that planning is metered like everything else.
    """

    async def __call__(self, worker: Worker, request: Request) -> Reply:
        """Call the worker; raises `WorkerError` or `BudgetExhausted`."""
        ...
