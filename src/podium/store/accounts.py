"""What runs came to, over a span of days: their sums, and the runs themselves in bulk.

For pages and reports about many runs at once. One run by itself is `base`, and what was used with
keys is `keys`. Days are those of UTC, and both ends of a span are included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podium.run import Run, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSums:
    """What the runs of one day, tier and owner came to, those that still go on left out.

    Money and tokens are sums over the runs of which they are known; `unknown_cost` and
    `unknown_tokens` count the others.
    """

    day: str
    tier: Tier
    owner: str
    runs: int
    tokens: int
    cost_usd: float
    unknown_tokens: int
    unknown_cost: int


@dataclass(frozen=True, slots=True)
class RunMark:
    """A run, and when it was last written: as long as that stands, so does all of it."""

    id: str
    updated_at: str


class Accounts(Protocol):
    """Reads many runs. Every method raises `StoreError` when the store cannot do its work. An
    `owner` of None stands for everybody, and an empty one for runs without a key."""

    async def sums(self, *, since: str, until: str, owner: str | None = None) -> list[RunSums]:
        """What the runs of these days came to, by day, tier and owner."""
        ...

    async def marks(
        self, *, since: str, until: str, limit: int, owner: str | None = None
    ) -> list[RunMark]:
        """The runs of these days that do not go on any more, the newest first."""
        ...

    async def load(self, ids: Sequence[str]) -> list[Run]:
        """These runs, whole, in no particular order; those that are gone, or that cannot be read
        any more, are left out."""
        ...
