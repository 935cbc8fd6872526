"""The table `hedge` of a worker: when another is asked beside it.

What comes of that is `podium.engine.hedging`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from podium.catalogue.entries import Table
from podium.config.values import Name, Seconds
from podium.engine.retry import Hedge


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
