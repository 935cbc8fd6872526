"""The tools of all servers that `podium.toml` names, as the engine's toolbox.

Nothing that a server does can end a run: one that does not start is left out and tried again
later, and whatever goes wrong in a call (no answer in time, nonsense, far too much) is the result
that the worker gets. A program that has ended is started again by the next call to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.config import McpSettings
from podium.core.exclusion import SERVER
from podium.core.request import Tool, ToolCall, ToolResult
from podium.workers.mcp.program import Program
from podium.workers.mcp.remote import Remote
from podium.workers.mcp.rpc import Connection, McpFault, SessionGone
from podium.workers.mcp.session import call_tool, shake_hands, tools_of

log = logging.getLogger("podium.mcp")

LONGEST_NAME: Final = 64
"""Characters of a tool's name that every vendor takes."""

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Seconds before a server that did not start is tried again; each wait doubles."""

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class McpToolbox:
    """The tools of several servers, each named `SERVER__TOOL`. It must be opened, and closed:
    what it has started ends with it."""

    def __init__(self, servers: Sequence[McpSettings], environment: Mapping[str, str]) -> None:
        self._servers = tuple(_Server(settings, environment) for settings in servers)
        self._later: set[asyncio.Task[None]] = set()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the servers that are there."""
        return Selection(self._servers).tools

    async def open(self) -> None:
        """Start all servers at once. Those that do not start are tried again from time to time."""
        for server, problem in zip(
            self._servers,
            await asyncio.gather(*(server.problem_of_starting() for server in self._servers)),
            strict=True,
        ):
            if problem is not None:
                log.warning("the tools of an MCP server are missing: %s", problem)
                later = asyncio.create_task(server.start_later())
                self._later.add(later)
                later.add_done_callback(self._later.discard)

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(server.name for server in self._servers)

    def excluding(self, names: Collection[str]) -> Selection:
        """The tools of the servers that are not excluded, which are told of whoever else is."""
        kept = tuple(s for s in self._servers if f"{SERVER}{s.name}" not in names)
        return Selection(kept, tuple(sorted(n for n in names if not n.startswith(SERVER))))

    async def call(self, call: ToolCall) -> ToolResult:
        """Carry a call out. Whatever goes wrong is a result that says so."""
        return await Selection(self._servers).call(call)

    async def close(self) -> None:
        """Stop what was started, and leave the others."""
        later = tuple(self._later)
        for task in later:
            task.cancel()
        await asyncio.gather(*later, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers))


@dataclass(frozen=True, slots=True)
class Selection:
    """The tools of some of the servers, for a run that excludes these names."""

    servers: tuple[_Server, ...]
    excluded: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of those that are there."""
        return tuple(tool for server in self.servers for tool in server.tools)

    async def call(self, call: ToolCall) -> ToolResult:
        """Carry a call out. Whatever goes wrong is a result that says so."""
        for server in self.servers:
            if call.name in server.own_names:
                return await server.call(call, self.excluded)
        return ToolResult(call.id, f"there is no tool named {call.name!r}", is_error=True)


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of reaching a server once: its tools, as workers would call them, or the problem
    in words."""

    tools: tuple[str, ...] = ()
    problem: str | None = None


async def reach(settings: McpSettings, environment: Mapping[str, str]) -> Reached:
    """Start the server, or call on it, look which tools it has, and leave it."""
    server = _Server(settings, environment)
    try:
        problem = await server.problem_of_starting()
        return Reached(tuple(tool.name for tool in server.tools), problem)
    finally:
        await server.close()


class _Server:
    """One server: `tools` as workers know them, `own_names` by the names that workers use."""

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self.name = settings.name
        self.tools: tuple[Tool, ...] = ()
        self.own_names: dict[str, str] = {}
        self._settings = settings
        self._environment = environment
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def problem_of_starting(self) -> str | None:
        """Start the server; None where its tools are known now."""
        name, seconds = self._settings.name, self._settings.seconds
        try:
            async with asyncio.timeout(seconds):
                await self._connected()
        except McpFault as fault:
            return str(fault)
        except TimeoutError:
            return f"{name} was not ready within {seconds:g} s; give it more seconds"
        return None

    async def start_later(self) -> None:
        """Try until the server starts."""
        wait = FIRST_WAIT
        while True:
            await asyncio.sleep(wait)
            if await self.problem_of_starting() is None:
                log.info("the MCP server %s is there now", self._settings.name)
                return
            wait = min(2 * wait, LONGEST_WAIT)

    async def call(self, call: ToolCall, excluded: Sequence[str]) -> ToolResult:
        """What the tool answers, within the server's seconds."""
        seconds = self._settings.seconds
        try:
            arguments = _arguments(call)
            async with asyncio.timeout(seconds):
                tool = self.own_names[call.name]
                said, is_error = await self._answer(tool, arguments, excluded)
        except McpFault as fault:
            return ToolResult(call.id, str(fault), is_error=True)
        except TimeoutError:
            problem = f"{self._settings.name} did not answer within {seconds:g} s"
            return ToolResult(call.id, problem, is_error=True)
        return ToolResult(call.id, said, is_error)

    async def close(self) -> None:
        """Stop the server, or leave it."""
        async with self._connecting:
            await self._disconnect()

    async def _answer(
        self, tool: str, arguments: Mapping[str, Any], excluded: Sequence[str]
    ) -> tuple[str, bool]:
        """What the tool answers. A session that was forgotten is begun anew."""
        name = self._settings.name
        try:
            return await call_tool(await self._connected(), name, tool, arguments, excluded)
        except SessionGone:
            return await call_tool(await self._connected(), name, tool, arguments, excluded)

    async def _connected(self) -> Connection:
        """The connection, made where there is none that lives."""
        async with self._connecting:
            if self._connection is not None and not self._connection.ended:
                return self._connection
            await self._disconnect()
            connection = await self._opened()
            try:
                await shake_hands(connection, self._settings.name)
                await self._learn_tools(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            return connection

    async def _opened(self) -> Connection:
        if self._settings.command:
            return await Program.start(self._settings, self._environment)
        return Remote(self._settings, self._environment)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _learn_tools(self, connection: Connection) -> None:
        """Take the tools that are allowed, under names that no other server has."""
        server = self._settings.name
        listed, problems = await tools_of(connection, server)
        allowed = self._settings.tools
        if allowed is not None:
            known = ", ".join(tool.name for tool in listed)
            missing = sorted(set(allowed) - {tool.name for tool in listed})
            problems += tuple(f"{server} has no tool {name!r}; it has {known}" for name in missing)
            listed = tuple(tool for tool in listed if tool.name in allowed)
        for problem in problems:
            log.warning("%s", problem)
        by_name = {name_for_workers(server, tool.name): tool for tool in listed}
        self.tools = tuple(replace(tool, name=name) for name, tool in by_name.items())
        self.own_names = {name: tool.name for name, tool in by_name.items()}


def name_for_workers(server: str, tool: str) -> str:
    """The name that workers use: of letters that every vendor takes, and short enough. Where that
    changes it, a few letters of a hash keep it apart from others."""
    whole = f"{server}__{tool}"
    plain = _NOT_IN_A_NAME.sub("_", whole)
    if plain == whole and len(plain) <= LONGEST_NAME:
        return plain
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{plain[: LONGEST_NAME - 9]}_{mark}"


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    """The arguments that the worker wrote; raises `McpFault` where they are none."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise McpFault(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise McpFault("the arguments are not a JSON object")
    return arguments
