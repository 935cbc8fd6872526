"""What the doctor looks for around Podium: servers of tools, the mini tier's router, and where
traces go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from podium.assembly import lacking_router, mini_of
from podium.cli.text import counted, one_line
from podium.config import McpSettings, Settings
from podium.errors import installing
from podium.local.addresses import shown

if TYPE_CHECKING:
    from podium.mcp.client.toolbox import Reached

OTLP: Final = "http://localhost:4318"
"""Where OpenTelemetry sends what nobody has told it where to send."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """An MCP server, and what came of reaching it."""

    settings: McpSettings
    reached: Reached

    @property
    def line(self) -> str:
        """How it is, for a person."""
        server, reached = self.settings, self.reached
        where = shown(server.url) if server.url else server.command
        if reached.problem is not None:
            state = f"cannot be used: {reached.problem}"
        else:
            state = f"{counted(len(reached.tools), 'tool')}: {', '.join(reached.tools) or 'none'}"
        return one_line(f"tools of {server.name} ({where}): {state}")


async def tool_servers(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[ToolServer, ...]:
    """Reach every MCP server of the settings once, all at the same time."""
    if not settings.mcp:
        return ()
    from podium.mcp.client.toolbox import reach

    found = await asyncio.gather(*(reach(server, environment) for server in settings.mcp))
    return tuple(map(ToolServer, settings.mcp, found))


def mini_lines(settings: Settings) -> tuple[str, ...]:
    """How the mini tier is served, and what is to be known of it; raises `ConfigError` where its
    router cannot be used."""
    wanted = settings.mini
    if wanted is None:
        return ()
    mini = mini_of(settings)
    if mini is None:
        return (f"mini tier: the cheapest worker; to have it routed: {lacking_router(wanted)}",)
    sure = f"below a confidence of {mini.confidence:g} the conductor plans"
    line = f"mini tier: routed by {wanted.router} ({mini.named}), dial {mini.dial:g}"
    return (f"{line}; {sure}", *(f"note: {warning}" for warning in mini.warnings))


def traces_go_to(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The address that traces are sent to; None where none are."""
    if not settings.server.traces:
        return None
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    shared = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or OTLP
    return shown(own or f"{shared.rstrip('/')}/v1/traces")


def traces_line(address: str | None) -> str:
    """Where traces go, for a person."""
    if address is None:
        return "traces: none are sent; traces = true in [server] has podium serve send them"
    if find_spec("opentelemetry") is None:
        return f"traces: podium serve needs the extra otel to send them: {installing('otel')}"
    return f"traces: podium serve sends them to {address}"
