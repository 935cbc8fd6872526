"""The table `[mini]`: which learned router serves the mini tier, and how it is followed.

The file is read, and held against the pool, when everything is put together (`podium.assembly`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from podium.config.values import Name, PoolChanged, Seconds, VariableName, anchored
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.retry import Hedge
from podium.workers.catalogue import Table
from podium.workers.faulty import Faults
from podium.workers.mcp import DEFAULT_SECONDS, McpSettings


class HedgeTable(Table):
    """When another call is made beside one that has not begun to answer. Both are paid for."""

    after_seconds: Seconds | None = Field(default=None, description="after so many seconds")
    after_percentile: Annotated[float, Field(gt=0, lt=100)] | None = Field(
        default=None,
        description="when it takes longer than this percentile of its latest calls; until there "
        "are 20 of them, `after_seconds`",
    )
    to: Name | None = Field(
        default=None,
        description="the worker that is asked; when left out, its `fallback`, or else itself again",
    )

    def hedge(self) -> Hedge:
        """The hedge that the table means."""
        return Hedge(**self.model_dump())


Share = Annotated[float, Field(ge=0, le=1)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FaultsTable(Table):
    """For tests and rehearsals alone: the share of calls, from 0 to 1, that each fault befalls."""

    latency: Share = Field(default=0.0, description="a delay, and then a good reply")
    rate_limited: Share = Field(default=0.0, description="HTTP 429")
    rate_limited_with_retry_after: Share = Field(
        default=0.0, description="HTTP 429 that says when to come back"
    )
    server_error: Share = Field(default=0.0, description="HTTP 500, 502, 503 or 529")
    reset: Share = Field(default=0.0, description="a connection that is lost before a reply")
    truncated_stream: Share = Field(
        default=0.0, description="a reply that breaks off in the middle"
    )
    malformed_json: Share = Field(default=0.0, description="a reply that cannot be parsed")
    wrong_usage: Share = Field(
        default=0.0, description="a good reply with impossible counts of tokens, or none"
    )
    endless: Share = Field(default=0.0, description="a reply that goes on until it is stopped")
    latency_seconds: Delay = Field(default=0.05, description="the average of the delays")
    retry_after_seconds: Delay = Field(
        default=0.05, description="the wait that a 429 asks for, where it does"
    )
    seed: int = Field(default=0, description="another seed, other calls that go wrong")

    def faults(self) -> Faults:
        """The faults that the table means."""
        return Faults(**self.model_dump(exclude={"seed"}))


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
        default=DEFAULT_SECONDS, description="how long it may take to start, and to answer a call"
    )

    def anchored(self, directory: Path) -> McpTable:
        """This table with its program counted from that directory, where it is a path."""
        if self.command is None or "/" not in self.command:
            return self
        return self.model_copy(update={"command": str(directory / Path(self.command).expanduser())})


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


SHIPPED: Final = "embedded/"
"""What the names of routers begin with that come with Podium."""


class RouterTable(Table):
    """How the mini tier chooses the one worker that answers."""

    router: Name | None = Field(
        default=None,
        description="the file of a learned router, as `podium train router` writes it, relative to "
        "this one, or `embedded/…`, one that Podium ships; when left out, the cheapest worker that "
        "can take the question answers",
    )
    confidence: Share = Field(
        default=0.5,
        description="with `router`: it chooses among the workers that it is at least this sure "
        "would be right, and where there is none, the question goes to the conductor, as those for "
        "`podium-ultra` do; 0: none does. At a quality bias of 0 it is not looked at",
    )
    quality_bias: Share = Field(
        default=0.5,
        description="with `router`: how much quality counts over cost where a question comes with "
        "no quality bias of its own, from 0, the cheapest, to 1, the best",
    )
    pool_changed: PoolChanged = Field(
        default="refuse",
        description="with `router`, where workers were added, removed or replaced since "
        "training: `refuse` to begin, or `narrow` the choice to the workers that both have, "
        "with a warning on every run",
    )

    def anchored(self, directory: Path) -> RouterTable:
        """This table with its router counted from that directory."""
        if self.router is None or self.router.startswith(SHIPPED):
            return self
        return self.model_copy(update={"router": anchored(self.router, directory)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """The router that serves the mini tier, as its table describes it. `trained_for` is the pool
    that it has to fit, where that is not the whole pool in force: some workers of it were left
    out on purpose. It is `optional` where nobody named it, but the embedded pool came with it: a
    machine that lacks what it needs goes without."""

    router: str
    confidence: float = 0.5
    quality_bias: float = 0.5
    pool_changed: PoolChanged = "refuse"
    trained_for: Pool | None = None
    optional: bool = False

    @property
    def shipped(self) -> str:
        """The name of the router where it comes with Podium; empty where it is a file."""
        return self.router.removeprefix(SHIPPED) if self.router.startswith(SHIPPED) else ""


def mini_settings(table: RouterTable) -> RouterSettings | None:
    """What the table means; None where no router is named."""
    if table.router is not None:
        return RouterSettings(**table.model_dump())
    for key in sorted(table.model_fields_set):
        raise ConfigError(f"mini.{key} has no effect without mini.router; drop it, or name one")
    return None
