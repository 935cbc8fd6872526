"""The store: runs, keys, feedback and the audit log, in SQLite or Postgres.

    store = await open_store("runs.db")          # or a postgresql:// URL, or the default file
    journal = Journal(store)                     # writes the events of a run as they happen
    run = await store.load("last")

Importing this package is cheap: SQLAlchemy is imported when a store is opened.
"""

from __future__ import annotations

from pathlib import Path

from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    Feedback,
    IdempotentRequest,
    RunFilter,
    RunList,
    RunStore,
    RunSummary,
    correction_task,
)
from podium.store.journal import HEARTBEATS_PER_LEASE, Heartbeat

__all__ = [
    "EVERY_RUN",
    "HEARTBEATS_PER_LEASE",
    "LEASE_SECONDS",
    "AbandonedRun",
    "Feedback",
    "Heartbeat",
    "IdempotentRequest",
    "RunFilter",
    "RunList",
    "RunStore",
    "RunSummary",
    "correction_task",
    "default_url",
    "open_store",
]


def default_url() -> str:
    """Return the URL of `podium.db` in the user's data directory."""
    from podium._util.files import data_dir

    return f"sqlite+aiosqlite:///{data_dir() / 'podium.db'}"


async def open_store(
    where: str | Path | None = None, *, lease_seconds: float = LEASE_SECONDS
) -> RunStore:
    """Open a store, creating its tables if it is new. Close it after use.

    Args:
        where: a file, `sqlite:///FILE` or `postgresql://USER@HOST/NAME`; the default file if None.
        lease_seconds: a process that misses its heartbeat for so long loses its runs.

    Raises:
        ConfigError: `where` is not a store's location.
        StoreError: the database cannot be used, or has another schema.

    """
    from podium.store.sql.run_store import SqlRunStore

    where = default_url() if where is None else where
    return await SqlRunStore.open(where, lease_seconds=lease_seconds)
