"""Routers that come with Podium, by name: `embedded/etude-router` chooses among the workers of the
embedded pool. What each was trained by stands in its file, as `source`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from podium.errors import ConfigError

DIRECTORY: Final = Path(__file__).with_name("routers")


def shipped_router(name: str) -> Path:
    """The file of the router of that name, without the prefix that says that it is shipped."""
    known = {file.stem: file for file in sorted(DIRECTORY.glob("*.json"))}
    if name not in known:
        raise ConfigError(
            f"Podium ships no router called {name!r}; it ships {', '.join(known) or 'none'}"
        )
    return known[name]
