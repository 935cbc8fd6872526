"""Tools of Podium's own: what a worker calls inside its step, and gets an answer to at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from podium.core.request import Tool, ToolCall, ToolResult


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
class ServersToolbox(Toolbox, Protocol):
    """A toolbox whose tools are those of servers, which a run may exclude by `mcp:` and name."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        ...

    def excluding(self, names: Collection[str]) -> Toolbox:
        """The tools of the servers that are not excluded. Those are told which names are: what
        must not see a run must not see it through them either."""
        ...


def servers_of(toolbox: Toolbox | None) -> tuple[str, ...]:
    """The servers that can be excluded from a toolbox."""
    return toolbox.servers if isinstance(toolbox, ServersToolbox) else ()


def toolbox_excluding(toolbox: Toolbox | None, names: Collection[str]) -> Toolbox | None:
    """The toolbox as a run may use it that excludes these names."""
    if names and isinstance(toolbox, ServersToolbox):
        return toolbox.excluding(names)
    return toolbox
