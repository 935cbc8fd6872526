"""Names that a run can exclude: workers, providers and MCP servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile

SERVER: Final = "mcp:"
"""What the name of a server of tools begins with."""


def excludable(profiles: Iterable[WorkerProfile], servers: Iterable[str] = ()) -> frozenset[str]:
    """Every name that can be excluded, where these may work and those have tools."""
    names = {name for profile in profiles for name in (profile.name, profile.provider)}
    return frozenset(names - {""}) | {f"{SERVER}{server}" for server in servers}


def check_excluded(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The names; raises `ConfigError` for one that nobody has."""
    for name in sorted(names - known):
        raise ConfigError(
            f"{name[:80]!r} is to be excluded, but no worker, provider or server of tools is "
            f"called so; there is {', '.join(sorted(known))}"
        )
    return names
