"""The tables of the store, as queries see them.

`migrations` makes them; the two are held together by a test. A run is a row of `runs`, its
rounds and steps are rows of their own so that each can be written the moment it is known.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

METADATA: Final = MetaData()

SCHEMA_VERSION: Final = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, nullable=False),
)

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
    Index("runs_by_age", "created_at", "id"),
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
