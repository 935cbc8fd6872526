"""Tools of Podium's own: what a worker calls inside its step, and gets an answer to at once."""

from __future__ import annotations

from typing import Protocol

from podium.request import Tool, ToolCall, ToolResult


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
