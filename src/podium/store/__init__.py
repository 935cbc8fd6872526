"""The store: where runs are kept.

    store = await open_store("runs.db")          # or a postgresql:// address, or the default
    journal = Journal(store)                     # writes each event of a run as it happens
    run = await store.load("last")

`base` says what a store is, `journal` turns a run's events into writes, `pulse` says which runs are
being performed, and `sql` is the one implementation, for SQLite and Postgres alike. The keys to a
server are kept beside the runs: `keys` says what they are, and `keys_in` gives them. Importing
this package is cheap: SQLAlchemy is loaded when a store is opened, and not before.
"""

from __future__ import annotations

from pathlib import Path

from podium.core.errors import ConfigError
from podium.store.audit import AuditLog
from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    Feedback,
    FeedbackStore,
    IdempotencyStore,
    IdempotentRequest,
    NullStore,
    RunFilter,
    RunList,
    RunStatistics,
    RunStore,
    RunSummary,
    correction_task,
)
from podium.store.journal import BEATS_PER_LEASE, Heartbeat, Journal
from podium.store.keys import KeyStore

__all__ = [
    "BEATS_PER_LEASE",
    "EVERY_RUN",
    "LEASE_SECONDS",
    "AbandonedRun",
    "AuditLog",
    "Feedback",
    "FeedbackStore",
    "Heartbeat",
    "IdempotencyStore",
    "IdempotentRequest",
    "Journal",
    "KeyStore",
    "NullStore",
    "RunFilter",
    "RunList",
    "RunStatistics",
    "RunStore",
    "RunSummary",
    "audit_in",
    "correction_task",
    "default_url",
    "feedback_in",
    "idempotency_in",
    "keys_in",
    "open_store",
    "statistics_in",
]


def default_url() -> str:
    """The file `podium.db` in the user's data directory."""
    from podium._util.files import data_dir

    return f"sqlite+aiosqlite:///{data_dir() / 'podium.db'}"


async def open_store(
    where: str | Path | None = None,
    *,
    to_read: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> RunStore:
    """Open a store and bring its schema up to date; without a place, the default one.

    `where` is a file, `sqlite:///FILE`, or `postgresql://USER@HOST/NAME`. Raises `ConfigError`
    when it is none of these, and `StoreError` when it cannot be used. With `to_read`
    a file that can only be read is opened as it is. `lease_seconds` is how long a run counts as
    being performed after its process last said so. Close the store after use.
    """
    from podium.store.sql.run_store import SqlRunStore

    where = default_url() if where is None else where
    return await SqlRunStore.open(where, to_read=to_read, lease_seconds=lease_seconds)


def keys_in(store: RunStore) -> KeyStore:
    """The keys to a server that are kept in that store; raises `ConfigError` where there is no
    place for any."""
    keys: KeyStore | None = getattr(store, "keys", None)
    if keys is None:
        raise ConfigError(
            "there is nowhere to keep keys, for runs are not kept in a database; name one under "
            "[store] in podium.toml"
        )
    return keys


def audit_in(store: RunStore) -> AuditLog:
    """The audit log that is kept in that store; raises `ConfigError` where there is no place for
    one."""
    audit: AuditLog | None = getattr(store, "audit", None)
    if audit is None:
        raise ConfigError(
            "there is nowhere to keep an audit log, for runs are not kept in a database; name one "
            "under [store] in podium.toml"
        )
    return audit


def statistics_in(store: RunStore) -> RunStatistics:
    """What the runs that are kept in that store came to; raises `ConfigError` where none are."""
    statistics: RunStatistics | None = getattr(store, "statistics", None)
    if statistics is None:
        raise ConfigError(
            "there is nothing to add up, for runs are not kept in a database; name one under "
            "[store] in podium.toml"
        )
    return statistics


def idempotency_in(store: RunStore) -> IdempotencyStore:
    """The names of requests that are kept in that store; raises `ConfigError` where there is no
    place for any."""
    idempotency: IdempotencyStore | None = getattr(store, "idempotency", None)
    if idempotency is None:
        raise ConfigError(
            "there is nowhere to keep the names of requests, for runs are not kept in a database; "
            "name one under [store] in podium.toml"
        )
    return idempotency


def feedback_in(store: RunStore) -> FeedbackStore:
    """What was thought of the runs that are kept in that store; raises `ConfigError` where there
    is no place for it."""
    feedback: FeedbackStore | None = getattr(store, "feedback", None)
    if feedback is None:
        raise ConfigError(
            "there is nowhere to keep what was thought of runs, for they are not kept in a "
            "database; name one under [store] in podium.toml"
        )
    return feedback
