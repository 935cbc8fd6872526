"""The clock of a store that several machines share: that of the database, for theirs need not
agree, and leases are counted by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.run import timestamp


def _now() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    """Tells the time as the database has it, once it was `set_by` that; asking costs nothing."""

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        self._now = now
        self._ahead = timedelta(0)

    def __call__(self) -> str:
        """Now, as it is stored."""
        return timestamp(self._now() + self._ahead)

    async def set_by(self, connection: AsyncConnection) -> None:
        """Find out how far the database's clock is ahead of this machine's."""
        before = self._now()
        theirs: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        self._ahead = theirs - before - (self._now() - before) / 2
