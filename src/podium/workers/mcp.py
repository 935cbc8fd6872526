"""Tools of MCP servers, as the engine's toolbox.

Nothing that a server does can end a run. A server that does not start is left out and tried again
later. A call that fails, takes too long or returns too much becomes the tool result that the
worker reads. A program that has exited is started again by the next call to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import UsageError, install_command
from podium.core.json_schema import check_schema
from podium.core.pool import MCP_PREFIX
from podium.core.request import Tool, ToolCall, ToolResult
from podium.workers.fields import Document, MalformedReply, get_object, get_objects, get_text

if TYPE_CHECKING:  # needs the extra `mcp`
    from podium.workers.mcp_connection import McpConnection

log = logging.getLogger("podium.mcp")

DEFAULT_SECONDS: Final = 30.0
"""Seconds that a server may take to start, and to answer a call."""

EXCLUDED: Final = "podium/exclude"
"""The `_meta` key of a call that names workers and providers that must not see it."""

MAX_TOOLS: Final = 256
"""Tools of one server; each is sent to every worker that can call tools."""

LONGEST_NAME: Final = 64
"""Characters of a tool name that every vendor accepts."""

LONGEST_DESCRIPTION: Final = 4_000
LONGEST_RESULT: Final = 100_000
"""Characters of a tool result; the rest is cut and the result says so."""

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Seconds before a server that did not start is tried again; each wait doubles."""

_MAX_PAGES: Final = 32
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One MCP server: `command` starts it as a program, or `url` reaches it.

    `env` and `key_env` name environment variables. `tools` None allows all of its tools.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    key_env: str = ""
    tools: tuple[str, ...] | None = None
    seconds: float = DEFAULT_SECONDS


class McpServerError(Exception):
    """An MCP server cannot be reached or breaks the protocol; `str` is one line."""


class McpSessionExpired(McpServerError):
    """The server no longer knows the session; the request was not carried out."""


class McpSelection:
    """The tools of some servers, for a run that excludes these workers and providers."""

    def __init__(self, servers: tuple[_Server, ...], excluded: tuple[str, ...] = ()) -> None:
        self._servers = servers
        self._excluded = excluded

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for server in self._servers for tool in server.tools)

    async def call(self, call: ToolCall) -> ToolResult:
        """Call a tool; every failure is a result that describes it."""
        for server in self._servers:
            if call.name in server.own_names:
                return await server.call(call, self._excluded)
        return ToolResult(call.id, f"tool not found: {call.name!r}", is_error=True)


class McpServers(McpSelection):
    """The tools of several MCP servers, each named `SERVER__TOOL`. Open it, and close it."""

    def __init__(self, servers: Sequence[McpSettings], environment: Mapping[str, str]) -> None:
        super().__init__(tuple(_Server(settings, environment) for settings in servers))
        self._retries: set[asyncio.Task[None]] = set()

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(server.name for server in self._servers)

    async def open(self) -> None:
        """Start all servers at once; retry in the background those that fail."""
        problems = await asyncio.gather(*(server.start() for server in self._servers))
        for server, problem in zip(self._servers, problems, strict=True):
            if problem is not None:
                log.warning("MCP server not available: %s", problem)
                retry = asyncio.create_task(server.keep_starting())
                self._retries.add(retry)
                retry.add_done_callback(self._retries.discard)

    def exclude(self, names: Collection[str]) -> McpSelection:
        kept = tuple(s for s in self._servers if f"{MCP_PREFIX}{s.name}" not in names)
        return McpSelection(kept, tuple(sorted(n for n in names if not n.startswith(MCP_PREFIX))))

    async def close(self) -> None:
        retries = tuple(self._retries)
        for task in retries:
            task.cancel()
        await asyncio.gather(*retries, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers))


@dataclass(frozen=True, slots=True)
class McpCheck:
    """The tools that a server offered when it was reached once, or the problem."""

    tools: tuple[str, ...] = ()
    problem: str | None = None


async def check_server(settings: McpSettings, environment: Mapping[str, str]) -> McpCheck:
    """Start or reach a server, list its tools and disconnect."""
    server = _Server(settings, environment)
    try:
        problem = await server.start()
        return McpCheck(tuple(tool.name for tool in server.tools), problem)
    finally:
        await server.close()


class _Server:
    """One server; `own_names` maps the names that workers use to the server's own."""

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self.name = settings.name
        self.tools: tuple[Tool, ...] = ()
        self.own_names: dict[str, str] = {}
        self._settings = settings
        self._environment = environment
        self._connection: McpConnection | None = None
        self._connecting = asyncio.Lock()

    async def start(self) -> str | None:
        """Connect and list the tools; return the problem, or None."""
        seconds = self._settings.seconds
        try:
            async with asyncio.timeout(seconds):
                await self._connect()
        except McpServerError as error:
            return str(error)
        except TimeoutError:
            return f"{self.name} was not ready within {seconds:g} s; raise its seconds"
        return None

    async def keep_starting(self) -> None:
        """Retry until the server starts."""
        wait = FIRST_WAIT
        while True:
            await asyncio.sleep(wait)
            if await self.start() is None:
                log.info("MCP server %s is available", self.name)
                return
            wait = min(2 * wait, LONGEST_WAIT)

    async def call(self, call: ToolCall, excluded: Sequence[str]) -> ToolResult:
        seconds = self._settings.seconds
        try:
            params: dict[str, Any] = {
                "name": self.own_names[call.name],
                "arguments": _parse_arguments(call),
            }
            if excluded:  # the server may ask models itself
                params["_meta"] = {EXCLUDED: list(excluded)}
            async with asyncio.timeout(seconds):
                result = await self._request_tool(params)
            return ToolResult(call.id, _result_text(result), result.get("isError") is True)
        except McpServerError as error:
            return ToolResult(call.id, str(error), is_error=True)
        except MalformedReply as error:
            return ToolResult(call.id, f"{self.name} sent an invalid result: {error}", True)
        except TimeoutError:
            problem = f"{self.name} did not answer within {seconds:g} s"
            return ToolResult(call.id, problem, is_error=True)

    async def close(self) -> None:
        async with self._connecting:
            await self._disconnect()

    async def _request_tool(self, params: Document) -> Document:
        connection = await self._connect()
        try:
            return await connection.request("tools/call", params)
        except McpSessionExpired:
            return await (await self._connect()).request("tools/call", params)

    async def _connect(self) -> McpConnection:
        """Return the live connection; open one and list the tools where there is none."""
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            await self._disconnect()
            connection = await _new_connection(self._settings, self._environment)
            try:
                await connection.open()
                await self._load_tools(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _load_tools(self, connection: McpConnection) -> None:
        """Take the allowed tools, under names that no other server uses."""
        try:
            listed, problems = await _list_tools(connection, self.name)
        except MalformedReply as error:
            raise McpServerError(f"{self.name} sent an invalid list of tools: {error}") from error
        allowed = self._settings.tools
        if allowed is not None:
            known = ", ".join(tool.name for tool in listed)
            missing = sorted(set(allowed) - {tool.name for tool in listed})
            problems += [f"{self.name} has no tool {name!r}; it has {known}" for name in missing]
            listed = [tool for tool in listed if tool.name in allowed]
        for problem in problems:
            log.warning("%s", problem)
        by_name = {tool_name(self.name, tool.name): tool for tool in listed}
        self.tools = tuple(replace(tool, name=name) for name, tool in by_name.items())
        self.own_names = {name: tool.name for name, tool in by_name.items()}


async def _new_connection(settings: McpSettings, environment: Mapping[str, str]) -> McpConnection:
    """Create a connection; the SDK is imported in a thread, for that takes most of a second."""
    try:
        connection = await asyncio.to_thread(_connection_class)
    except ModuleNotFoundError as error:
        raise McpServerError(
            f"{settings.name} needs the extra mcp; install it: {install_command('mcp')}"
        ) from error
    return connection(settings, environment)


def _connection_class() -> type[McpConnection]:
    from podium.workers.mcp_connection import McpConnection

    return McpConnection


async def _list_tools(connection: McpConnection, server: str) -> tuple[list[Tool], list[str]]:
    """Return the server's tools, and the problems of those that are left out."""
    listed: list[Document] = []
    cursor = ""
    for _ in range(_MAX_PAGES):
        page = await connection.request("tools/list", {"cursor": cursor} if cursor else {})
        listed += get_objects(page, "tools")
        cursor = get_text(page, "nextCursor")
        if not cursor or len(listed) > MAX_TOOLS:
            break
    tools, problems = [], []
    if cursor or len(listed) > MAX_TOOLS:
        problems.append(f"{server} has more than {MAX_TOOLS} tools; the rest is left out")
    for document in listed[:MAX_TOOLS]:
        try:
            tools.append(_parse_tool(document))
        except (MalformedReply, UsageError) as error:
            problems.append(f"{server}: a tool is left out: {error}")
    return tools, problems


def _parse_tool(document: Document) -> Tool:
    name = get_text(document, "name")
    if not name:
        raise MalformedReply("it has no name")
    parameters = get_object(document, "inputSchema") or {"type": "object"}
    if parameters.get("type") != "object":
        raise MalformedReply(f"the input schema of {name[:64]!r} is not of type object")
    check_schema(parameters)
    description = get_text(document, "description") or get_text(document, "title")
    return Tool(name, description[:LONGEST_DESCRIPTION], parameters)


def tool_name(server: str, tool: str) -> str:
    """Return a tool's name for workers: characters and a length that every vendor accepts.

    A name that has to be changed ends in part of a hash, so that no two become the same.
    """
    whole = f"{server}__{tool}"
    plain = _NOT_IN_A_NAME.sub("_", whole)
    if plain == whole and len(plain) <= LONGEST_NAME:
        return plain
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{plain[: LONGEST_NAME - 9]}_{mark}"


def _parse_arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise McpServerError(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise McpServerError("the arguments are not a JSON object")
    return arguments


def _result_text(result: Document) -> str:
    """Return a tool result as text; images and audio are named and left out."""
    parts = [_part_text(content) for content in get_objects(result, "content")]
    if not any(parts) and result.get("structuredContent") is not None:
        content = json.dumps(result["structuredContent"], ensure_ascii=False)
    else:
        content = "\n".join(parts)
    if len(content) > LONGEST_RESULT:
        cut = len(content) - LONGEST_RESULT
        content = f"{content[:LONGEST_RESULT]}\n[{cut} more characters are left out]"
    return content


def _part_text(content: Document) -> str:
    match get_text(content, "type"):
        case "text":
            return get_text(content, "text")
        case "resource":
            resource = get_object(content, "resource")
            return (
                get_text(resource, "text") or f"[{get_text(resource, 'uri')}: not text, left out]"
            )
        case "resource_link":
            return f"[{get_text(content, 'name')}: {get_text(content, 'uri')}]"
        case kind:
            return f"[{get_text(content, 'mimeType') or kind}: not text, left out]"
