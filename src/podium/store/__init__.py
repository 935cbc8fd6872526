"""The store: runs, keys, feedback and the audit log, in SQLite or Postgres.

    store = await open_store("runs.db")          # or a postgresql:// URL, or the default file
    journal = Journal(store)                     # writes the events of a run as they happen
    run = await store.load("last")

Importing this package is cheap: SQLAlchemy is imported when a store is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import ConfigError
from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    Feedback,
    IdempotentRequest,
    NullStore,
    RunFilter,
    RunList,
    RunStore,
    RunSummary,
    correction_task,
)
from podium.store.journal import HEARTBEATS_PER_LEASE, Heartbeat, Journal

if TYPE_CHECKING:  # these load SQLAlchemy
    from podium.store.sql.chats import ChatStore
    from podium.store.sql.keys import KeyStore
    from podium.store.sql.queries import RunStatistics
    from podium.store.sql.records import (
        AuditLog,
        DisabledWorkerStore,
        FeedbackStore,
        IdempotencyStore,
    )

__all__ = [
    "EVERY_RUN",
    "HEARTBEATS_PER_LEASE",
    "LEASE_SECONDS",
    "AbandonedRun",
    "Feedback",
    "Heartbeat",
    "IdempotentRequest",
    "Journal",
    "NullStore",
    "RunFilter",
    "RunList",
    "RunStore",
    "RunSummary",
    "audit_in",
    "chats_in",
    "correction_task",
    "default_url",
    "disabled_workers_in",
    "feedback_in",
    "idempotency_in",
    "keys_in",
    "open_store",
    "statistics_in",
]


def default_url() -> str:
    """Return the URL of `podium.db` in the user's data directory."""
    from podium._util.files import data_dir

    return f"sqlite+aiosqlite:///{data_dir() / 'podium.db'}"


async def open_store(
    where: str | Path | None = None,
    *,
    to_read: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> RunStore:
    """Open a store, creating its tables if it is new. Close it after use.

    Args:
        where: a file, `sqlite:///FILE` or `postgresql://USER@HOST/NAME`; the default file if None.
        to_read: open a read-only file as it is.
        lease_seconds: a process that misses its heartbeat for so long loses its runs.

    Raises:
        ConfigError: `where` is not a store's location.
        StoreError: the database cannot be used, or has another schema.

    """
    from podium.store.sql.run_store import SqlRunStore

    where = default_url() if where is None else where
    return await SqlRunStore.open(where, to_read=to_read, lease_seconds=lease_seconds)


def keys_in(store: RunStore) -> KeyStore:
    """Return the API keys of the store; raises `ConfigError` if it has no database."""
    keys: KeyStore = _part(store, "keys", "API keys")
    return keys


def chats_in(store: RunStore) -> ChatStore:
    """Return the conversations of the store; raises `ConfigError` if it has no database."""
    chats: ChatStore = _part(store, "chats", "conversations")
    return chats


def disabled_workers_in(store: RunStore) -> DisabledWorkerStore:
    """Return the disabled workers of the store; raises `ConfigError` if it has no database."""
    disabled: DisabledWorkerStore = _part(store, "disabled_workers", "disabled workers")
    return disabled


def audit_in(store: RunStore) -> AuditLog:
    """Return the audit log of the store; raises `ConfigError` if it has no database."""
    audit: AuditLog = _part(store, "audit", "an audit log")
    return audit


def statistics_in(store: RunStore) -> RunStatistics:
    """Return the statistics of the store; raises `ConfigError` if it has no database."""
    statistics: RunStatistics = _part(store, "statistics", "statistics of runs")
    return statistics


def idempotency_in(store: RunStore) -> IdempotencyStore:
    """Return the idempotent requests of the store; raises `ConfigError` if it has no database."""
    idempotency: IdempotencyStore = _part(store, "idempotency", "idempotency keys")
    return idempotency


def feedback_in(store: RunStore) -> FeedbackStore:
    """Return the feedback of the store; raises `ConfigError` if it has no database."""
    feedback: FeedbackStore = _part(store, "feedback", "feedback")
    return feedback


def _part(store: RunStore, name: str, content: str) -> Any:
    part = getattr(store, name, None)
    if part is None:
        raise ConfigError(
            f"no database for {content}: runs are not stored; name one under [store] in podium.toml"
        )
    return part
