"""The tables `[mcp.NAME]`: servers whose tools workers may use inside their steps.

How a server is started and spoken to is `podium.mcp`. No secret stands in a table: variables of
the environment are named, and read when the server is started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from podium.catalogue.entries import Table
from podium.config.values import VariableName
from podium.errors import ConfigError

SECONDS: Final = 30.0
"""How long a server may take to start, and to answer."""

Text = Annotated[str, Field(min_length=1)]

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")


class McpTable(Table):
    """A server of tools (Model Context Protocol); workers call them `NAME__TOOL`."""

    command: Text | None = Field(
        default=None,
        description="the program to start; with a slash in it, relative to this file",
    )
    args: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="with `command`: its arguments"
    )
    env: Annotated[tuple[VariableName, ...], Field(strict=False)] = Field(
        default=(),
        description="with `command`: the environment variables that it gets from Podium's own, "
        "besides `PATH`, `HOME` and the like",
    )
    url: Text | None = Field(
        default=None, description="the address of a server that listens (streamable HTTP)"
    )
    key_env: VariableName | None = Field(
        default=None,
        description="with `url`: the environment variable that holds the key, which is sent as a "
        "bearer token",
    )
    tools: Annotated[tuple[Text, ...], Field(strict=False)] | None = Field(
        default=None,
        description="the tools that workers may use, as the server names them; when left out, all",
    )
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=SECONDS, description="how long it may take to start, and to answer a call"
    )

    def anchored(self, directory: Path) -> McpTable:
        """This table with its program counted from that directory, where it is a path."""
        if self.command is None or "/" not in self.command:
            return self
        return self.model_copy(update={"command": str(directory / Path(self.command).expanduser())})


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One server of tools, as its table describes it. One of `command` and `url` is empty;
    `tools` is None where all are allowed."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    key_env: str = ""
    tools: tuple[str, ...] | None = None
    seconds: float = SECONDS


def mcp_settings(tables: Mapping[str, McpTable]) -> tuple[McpSettings, ...]:
    """What the tables mean; raises `ConfigError` for one that cannot be."""
    return tuple(_settings(name, table) for name, table in tables.items())


def _settings(name: str, table: McpTable) -> McpSettings:
    where = f"mcp.{name}"
    if not _NAME.fullmatch(name) or "__" in name:
        raise ConfigError(
            f"{where}: expected a name of at most 32 lower-case letters, digits, - and single _, "
            f"as in [mcp.web-search]"
        )
    if (table.command is None) == (table.url is None):
        raise ConfigError(
            f"{where}: expected one of command (a program to start) and url (a server that "
            f"listens), got {'none' if table.url is None else 'both'}"
        )
    for key, wanted in (("args", "command"), ("env", "command"), ("key_env", "url")):
        if key in table.model_fields_set and getattr(table, wanted) is None:
            raise ConfigError(f"{where}.{key} has no effect without {wanted}; drop it")
    if table.url is not None:
        _check_address(table.url, f"{where}.url")
    return McpSettings(
        name=name,
        command=table.command or "",
        args=table.args,
        env=table.env,
        url=table.url or "",
        key_env=table.key_env or "",
        tools=table.tools,
        seconds=table.seconds,
    )


def _check_address(address: str, where: str) -> None:
    """An address is shown and logged, so nothing may stand in it that lets someone in."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{where}: expected an address, such as https://example.com/mcp")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: expected an address without @, ? and #; a key goes into an environment "
            f'variable, named with key_env = "…"'
        )
