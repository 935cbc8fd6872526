"""The clock of a store that several machines share: that of the database, for theirs need not
agree, and leases are counted by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.run import timestamp


def _now() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    """Tells the time as the database has it, once it was `set_by` that; asking costs nothing.

    It goes by the seconds that pass here, and not by this machine's own time: where that is set
    right meanwhile, nobody's lease is over.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = _now,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._start = now() - timedelta(seconds=seconds())

    def __call__(self) -> str:
        """Now, as it is stored."""
        return timestamp(self._start + timedelta(seconds=self._seconds()))

    async def set_by(self, connection: AsyncConnection) -> None:
        """Find out what time the database has."""
        before = self._seconds()
        theirs: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        self._start = theirs - timedelta(seconds=(before + self._seconds()) / 2)
