"""What Podium asks a server of tools: the handshake, its list of tools, and calls to them.

A result is text, as workers read it: pictures and sounds are named in it and left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from podium._version import __version__
from podium.core.errors import UsageError
from podium.core.request import Tool
from podium.core.structured_output import require_sound
from podium.workers.mcp.rpc import EXCLUDED, VERSIONS, Connection, McpFault, understood
from podium.workers.wire import Document, Malformed, member, members, text

MOST_TOOLS: Final = 256
"""Tools of one server; every one of them is told to every worker that can use tools."""

_MOST_PAGES: Final = 32

LONGEST_DESCRIPTION: Final = 4_000
LONGEST_RESULT: Final = 100_000
"""Characters of a result that a worker gets to read; the rest is left out, and that is said."""


async def shake_hands(connection: Connection, server: str) -> None:
    """Agree on a revision of the protocol."""
    result = await connection.request(
        "initialize",
        {
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "podium", "version": __version__},
        },
    )
    with understood(server):
        version = text(result, "protocolVersion")
    if version not in VERSIONS:
        raise McpFault(
            f"{server} speaks the protocol of {version[:20] or 'no date'}; Podium speaks those of "
            f"{', '.join(VERSIONS)}"
        )
    connection.version = version
    await connection.notify("notifications/initialized")


async def tools_of(connection: Connection, server: str) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools that the server has, and what is wrong with those that are left out."""
    listed: list[Document] = []
    cursor = ""
    for _ in range(_MOST_PAGES):
        page = await connection.request("tools/list", {"cursor": cursor} if cursor else {})
        with understood(server):
            listed += members(page, "tools")
            cursor = text(page, "nextCursor")
        if not cursor or len(listed) > MOST_TOOLS:
            break
    tools, problems = [], []
    if cursor or len(listed) > MOST_TOOLS:
        problems.append(f"{server} has more than {MOST_TOOLS} tools; the rest is left out")
    for document in listed[:MOST_TOOLS]:
        try:
            tools.append(_tool(document))
        except (Malformed, UsageError) as error:
            problems.append(f"{server}: a tool is left out: {error}")
    return tuple(tools), tuple(problems)


async def call_tool(
    connection: Connection,
    server: str,
    tool: str,
    arguments: Mapping[str, Any],
    excluded: Sequence[str] = (),
) -> tuple[str, bool]:
    """What the tool answers, and whether that is an error. The server is told who must see nothing
    of this, for it may ask models itself."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if excluded:
        params["_meta"] = {EXCLUDED: list(excluded)}
    result = await connection.request("tools/call", params)
    with understood(server):
        said = _said(result)
    if len(said) > LONGEST_RESULT:
        left_out = len(said) - LONGEST_RESULT
        said = f"{said[:LONGEST_RESULT]}\n[{left_out} more characters are left out]"
    return said, result.get("isError") is True


def _tool(document: Document) -> Tool:
    name = text(document, "name")
    if not name:
        raise Malformed("it has no name")
    parameters = member(document, "inputSchema") or {"type": "object"}
    if parameters.get("type") != "object":
        raise Malformed(f"the schema of {name[:64]!r} is not that of an object")
    require_sound(parameters)
    description = text(document, "description") or text(document, "title")
    return Tool(name, description[:LONGEST_DESCRIPTION], parameters)


def _said(result: Document) -> str:
    parts = [_part(content) for content in members(result, "content")]
    if not any(parts) and result.get("structuredContent") is not None:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(parts)


def _part(content: Document) -> str:
    match text(content, "type"):
        case "text":
            return text(content, "text")
        case "resource":
            resource = member(content, "resource")
            return text(resource, "text") or f"[{text(resource, 'uri')}: not text, left out]"
        case "resource_link":
            return f"[{text(content, 'name')}: {text(content, 'uri')}]"
        case kind:
            return f"[{text(content, 'mimeType') or kind}: not text, left out]"
