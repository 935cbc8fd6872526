"""The table `[mini]`: which learned router serves the mini tier, and how it is followed.

The file is read, and held against the pool, when everything is put together (`podium.assembly`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from podium.catalogue.entries import Table
from podium.config.anchoring import anchored
from podium.config.values import Name, PoolChanged
from podium.errors import ConfigError
from podium.pool import Pool

Share = Annotated[float, Field(ge=0, le=1)]

SHIPPED: Final = "embedded/"
"""What the names of routers begin with that come with Podium."""


class MiniTable(Table):
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
        "`podium-ultra` do; 0: none does. At a dial of 0 it is not looked at",
    )
    dial: Share = Field(
        default=0.5,
        description="with `router`: how much quality counts over cost where a question comes with "
        "no dial of its own, from 0, the cheapest, to 1, the best",
    )
    pool_changed: PoolChanged = Field(
        default="refuse",
        description="with `router`, where workers were added, removed or replaced since "
        "training: `refuse` to begin, or `narrow` the choice to the workers that both have, "
        "with a warning on every run",
    )

    def anchored(self, directory: Path) -> MiniTable:
        """This table with its router counted from that directory."""
        if self.router is None or self.router.startswith(SHIPPED):
            return self
        return self.model_copy(update={"router": anchored(self.router, directory)})


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniSettings:
    """The router that serves the mini tier, as its table describes it. `trained_for` is the pool
    that it has to fit, where that is not the whole pool in force: some workers of it were left
    out on purpose. It is `optional` where nobody named it, but the embedded pool came with it: a
    machine that lacks what it needs goes without."""

    router: str
    confidence: float = 0.5
    dial: float = 0.5
    pool_changed: PoolChanged = "refuse"
    trained_for: Pool | None = None
    optional: bool = False

    @property
    def shipped(self) -> str:
        """The name of the router where it comes with Podium; empty where it is a file."""
        return self.router.removeprefix(SHIPPED) if self.router.startswith(SHIPPED) else ""


def mini_settings(table: MiniTable) -> MiniSettings | None:
    """What the table means; None where no router is named."""
    if table.router is not None:
        return MiniSettings(**table.model_dump())
    for key in sorted(table.model_fields_set):
        raise ConfigError(f"mini.{key} has no effect without mini.router; drop it, or name one")
    return None
