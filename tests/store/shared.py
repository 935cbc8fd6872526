"""Two processes over one database, and the clock that both go by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from podium.core.run import timestamp
from podium.store.sql.run_store import SqlRunStore

ELSEWHERE = "another-machine:1"


def at(second: float) -> str:
    return timestamp(datetime(2026, 1, 2, 3, tzinfo=UTC) + timedelta(seconds=second))


class Clock:
    """A clock that stands where it is set."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> str:
        return at(self.second)


Two = tuple[SqlRunStore, SqlRunStore, Clock]
