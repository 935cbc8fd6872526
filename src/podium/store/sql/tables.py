"""The tables of the store, as queries see them.

`migrations` makes them; the two are held together by a test. A run is a row of `runs`, its
rounds and steps are rows of their own so that each can be written the moment it is known, and so
is every worker that a round used, to find runs by, for it goes with its round; whatever else runs
are found by is in the index that lists follow, beside their age. A run's
`owner` is the id of the key that it was asked with, or nothing. A run that nobody wants kept
is held for as long as it waits for tools, until `forget_after`. Its `process` performs it; its
`claims` count how often it was taken up, and `takeovers` how often that was after a process had
gone and no step was done since. A key's digest is all that is
kept of its token, and what was used with it is a row for each day and model; what each run was
charged of that is a row of `charges`, which outlives the run. Where processes share a key's caps,
`tabs` has what each request in flight takes of them, for as long as its process renews its lease,
and `buckets` what is left of a key's rates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Executable,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

_INSERT: Final[dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def inserting(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Insert rows, in a way that can say what to do where there are some already."""
    return _INSERT[dialect](table)


@cache
def replacing(dialect: str, table: Table, kept: frozenset[str] = frozenset()) -> Executable:
    """Insert rows, or put them in the place of those with the same key, of which the columns
    `kept` stay as they are."""
    insert = inserting(dialect, table)
    values = {
        column.name: insert.excluded[column.name]
        for column in table.columns
        if not column.primary_key and column.name not in kept
    }
    return insert.on_conflict_do_update(index_elements=table.primary_key, set_=values)


@cache
def noting(dialect: str, table: Table) -> Executable:
    """Insert rows, and leave those as they are that have the same key."""
    return inserting(dialect, table).on_conflict_do_nothing(index_elements=table.primary_key)


@cache
def adding(dialect: str, table: Table) -> Executable:
    """Insert rows of numbers, or add them to those with the same key."""
    insert = inserting(dialect, table)
    values = {
        column.name: column + insert.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    return insert.on_conflict_do_update(index_elements=table.primary_key, set_=values)


METADATA: Final = MetaData()

SCHEMA_VERSION: Final = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, nullable=False),
)

HELD: Final = text("forget_after IS NOT NULL")

GOING_ON: Final = text("status = 'running'")

CLAIM_COLUMNS: Final = frozenset({"claims", "takeovers"})
"""What stands on a run whoever writes it: `sql_claims` changes it."""

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text),
    Column("conductor", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("cost_usd", Double),
    Column("total_tokens", BigInteger),
    Column("calls", BigInteger),
    Column("seconds", Double),
    Column("document", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("forget_after", Text),
    Column("process", Text, nullable=False),
    Column("claims", Integer, nullable=False, server_default="0"),
    Column("takeovers", Integer, nullable=False, server_default="0"),
    Index("runs_by_age", "created_at", "id", "status", "tier", "cost_usd"),
    Index("runs_by_owner", "owner", "created_at", "id"),
    Index("runs_to_forget", "forget_after", sqlite_where=HELD, postgresql_where=HELD),
    Index("runs_going_on", "updated_at", sqlite_where=GOING_ON, postgresql_where=GOING_ON),
)

ROUNDS: Final = Table(
    "rounds",
    METADATA,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)

STEPS: Final = Table(
    "steps",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    ForeignKeyConstraint(
        ["run_id", "round"], ["rounds.run_id", "rounds.round"], ondelete="CASCADE"
    ),
)

WORKERS: Final = Table(
    "workers_used",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("worker", Text, primary_key=True),
    ForeignKeyConstraint(
        ["run_id", "round"], ["rounds.run_id", "rounds.round"], ondelete="CASCADE"
    ),
)

KEYS: Final = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("expires_at", Text),
    Column("revoked_at", Text),
    Column("rules", Text, nullable=False),
)

KEY_USAGE: Final = Table(
    "key_usage",
    METADATA,
    Column("key_id", Text, ForeignKey("keys.id"), primary_key=True),
    Column("day", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("orchestration_input_tokens", BigInteger, nullable=False),
    Column("orchestration_output_tokens", BigInteger, nullable=False),
    Column("cost_usd", Double, nullable=False),
    Column("unknown_tokens", BigInteger, nullable=False),
    Column("unknown_cost", BigInteger, nullable=False),
    Column("assumed_tokens", BigInteger, nullable=False),
    Column("assumed_usd", Double, nullable=False),
)

CHARGES: Final = Table(
    "charges",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("orchestration_input_tokens", BigInteger, nullable=False),
    Column("orchestration_output_tokens", BigInteger, nullable=False),
    Column("cost_usd", Double, nullable=False),
    Column("unknown_tokens", BigInteger, nullable=False),
    Column("unknown_cost", BigInteger, nullable=False),
    Column("assumed_tokens", BigInteger, nullable=False),
    Column("assumed_usd", Double, nullable=False),
    Index("charges_by_day", "day"),
)

TABS: Final = Table(
    "tabs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("used_usd", Double, nullable=False),
    Column("used_tokens", BigInteger, nullable=False),
    Column("claimed_usd", Double, nullable=False),
    Column("claimed_tokens", BigInteger, nullable=False),
    Column("taken_usd", Double, nullable=False),
    Column("taken_tokens", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Index("tabs_by_key", "key_id"),
    Index("tabs_by_run", "run_id"),
)

BUCKETS: Final = Table(
    "buckets",
    METADATA,
    Column("key_id", Text, primary_key=True),
    Column("requests", Double, nullable=False),
    Column("tokens", Double, nullable=False),
    Column("filled_at", Double, nullable=False),
)

LEASES: Final = Table(
    "leases",
    METADATA,
    Column("process", Text, primary_key=True),
    Column("expires_at", Double, nullable=False),
)

AUDIT: Final = Table(
    "audit",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("actor_name", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("digest", Text, nullable=False),
)

FEEDBACK: Final = Table(
    "feedback",
    METADATA,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("score", Double, nullable=False),
    Column("comment", Text, nullable=False),
    Column("given_at", Text, nullable=False),
    Column("grader", Text, nullable=False, server_default=""),
    Column("task", Text, nullable=False, server_default=""),
)

REQUESTS: Final = Table(
    "requests",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Index("requests_by_age", "created_at"),
)
