"""The tables of the store, the version of their schema, and runs as rows.

A run is a row of `runs`; each round and step is a row of its own, written as soon as it is known.
`run_workers` and the indexes serve the filters of lists. `claim_number` counts how often a run was
claimed, `takeovers` how often since its last finished step. `run_charges` remembers what each run
was charged and outlives the run. `reservations` holds what each request in flight takes of a key's
caps while its process renews its lease, `rate_buckets` what is left of a key's rates.

A run is split into one JSON document for itself, one per round and one per step. Documents are
pure ASCII, so that a NUL or a lone surrogate in a reply survives as an escape. The question and the
answer are stored a second time as plain columns for search; those hold U+FFFD in such places.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Executable,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from podium.core.errors import StoreError, UnreadableRun
from podium.core.run import Round, Run, StepRecord, dump, load

SCHEMA_VERSION: Final = 8

_INSERT: Final[dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def dialect_insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Build an insert that supports ON CONFLICT."""
    return _INSERT[dialect](table)


@cache
def upsert(dialect: str, table: Table, kept: frozenset[str] = frozenset()) -> Executable:
    """Insert rows, or replace those with the same key except for the columns `kept`."""
    statement = dialect_insert(dialect, table)
    values = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key and column.name not in kept
    }
    return statement.on_conflict_do_update(index_elements=table.primary_key, set_=values)


@cache
def insert_missing(dialect: str, table: Table) -> Executable:
    """Insert rows; those whose key exists stay as they are."""
    return dialect_insert(dialect, table).on_conflict_do_nothing(index_elements=table.primary_key)


METADATA: Final = MetaData()

VERSIONS: Final = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, nullable=False),
)

HAS_EXPIRY: Final = text("expires_at IS NOT NULL")

IS_RUNNING: Final = text("status = 'running'")

CLAIM_COLUMNS: Final = frozenset({"claim_number", "takeovers"})
"""Columns of a run that only claims change."""


def _columns(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    *_columns(Integer, "version"),
    *_columns(Text, "created_at", "updated_at", "status", "question"),
    Column("answer", Text),
    *_columns(Text, "conductor", "tier"),
    Column("cost_usd", Double),
    Column("total_tokens", BigInteger),
    Column("calls", BigInteger),
    Column("seconds", Double),
    *_columns(Text, "document", "owner"),
    Column("expires_at", Text),
    *_columns(Text, "process"),
    Column("claim_number", Integer, nullable=False, server_default="0"),
    Column("takeovers", Integer, nullable=False, server_default="0"),
    Index("runs_by_age", "created_at", "id", "status", "tier", "cost_usd"),
    Index("runs_by_owner", "owner", "created_at", "id"),
    Index("runs_by_expiry", "expires_at", sqlite_where=HAS_EXPIRY, postgresql_where=HAS_EXPIRY),
    Index("runs_running", "updated_at", sqlite_where=IS_RUNNING, postgresql_where=IS_RUNNING),
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

RUN_WORKERS: Final = Table(
    "run_workers",
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
    *_columns(Text, "name", "digest", "created_at"),
    Column("expires_at", Text),
    Column("revoked_at", Text),
    *_columns(Text, "rules"),
)


def _usage_columns() -> list[Column[Any]]:
    tokens = (
        "input_tokens",
        "output_tokens",
        "orchestration_input_tokens",
        "orchestration_output_tokens",
        "unknown_usage_count",
        "unknown_cost_count",
        "assumed_tokens",
    )
    return [*_columns(BigInteger, *tokens), *_columns(Double, "cost_usd", "assumed_usd")]


KEY_USAGE: Final = Table(
    "key_usage",
    METADATA,
    Column("key_id", Text, ForeignKey("keys.id"), primary_key=True),
    Column("day", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("used_at", Double, nullable=False),
    *_usage_columns(),
)

RUN_CHARGES: Final = Table(
    "run_charges",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    *_usage_columns(),
    Index("run_charges_by_day", "day"),
)

RESERVED_AMOUNTS: Final = ("used", "withheld_from_requests", "withheld_from_calls")

RESERVATIONS: Final = Table(
    "reservations",
    METADATA,
    Column("id", Text, primary_key=True),
    *_columns(Text, "key_id", "model", "run_id", "process"),
    *_columns(Double, *(f"{name}_usd" for name in RESERVED_AMOUNTS)),
    *_columns(BigInteger, *(f"{name}_tokens" for name in RESERVED_AMOUNTS), "calls"),
    Index("reservations_by_key", "key_id"),
    Index("reservations_by_run", "run_id"),
)

RATE_BUCKETS: Final = Table(
    "rate_buckets",
    METADATA,
    Column("key_id", Text, primary_key=True),
    *_columns(Double, "requests", "tokens", "filled_at"),
)

PROCESS_LEASES: Final = Table(
    "process_leases",
    METADATA,
    Column("process", Text, primary_key=True),
    *_columns(Double, "expires_at"),
)

AUDIT: Final = Table(
    "audit",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    *_columns(Text, "at", "action", "actor", "actor_name"),
    *_columns(Text, "subject", "origin", "details", "digest"),
)

FEEDBACK: Final = Table(
    "feedback",
    METADATA,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    *_columns(Double, "score"),
    *_columns(Text, "comment", "given_at", "grader", "task"),
)

IDEMPOTENT_REQUESTS: Final = Table(
    "idempotent_requests",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    *_columns(Text, "digest", "run_id", "process", "created_at"),
    Index("idempotent_requests_by_age", "created_at"),
)

DISABLED_WORKERS: Final = Table(
    "disabled_workers",
    METADATA,
    Column("worker", Text, primary_key=True),
    *_columns(Text, "disabled_at"),
)

CHATS: Final = Table(
    "chats",
    METADATA,
    Column("id", Text, primary_key=True),
    *_columns(Text, "owner", "title", "search_text", "created_at", "updated_at"),
    Column("share_token", Text, unique=True),
    *_columns(Text, "document"),
    Index("chats_by_owner", "owner", "updated_at"),
)


_APPEND_ONLY: Final = {
    "sqlite": tuple(
        f"CREATE TRIGGER audit_no_{verb} BEFORE {verb} ON audit "
        f"BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        for verb in ("update", "delete")
    ),
    "postgresql": (
        "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
    ),
}

_SCHEMA_LOCKS: Final = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(7063488611)",  # any number, the same everywhere
}


def prepare_schema(connection: Connection, location: str) -> None:
    """Create the tables in an empty database; raises `StoreError` if it has another schema.

    The lock lets two processes open a new database at the same time.
    """
    version = _version(connection)
    if version is None:
        connection.exec_driver_sql(_SCHEMA_LOCKS[connection.dialect.name])
        version = _version(connection)
        if version is None:
            METADATA.create_all(connection)
            for statement in _APPEND_ONLY[connection.dialect.name]:
                connection.exec_driver_sql(statement)
            connection.execute(insert(VERSIONS).values(version=SCHEMA_VERSION))
            version = SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        if connection.dialect.name == "sqlite":
            remedy = f"move it aside (mv {location} {location}.old) and Podium creates a new one"
        else:
            remedy = "name another database under [store] in podium.toml"
        raise StoreError(
            f"{location} has schema {version or 'unknown'}, expected {SCHEMA_VERSION}; {remedy}"
        )


def _version(connection: Connection) -> int | None:
    """Read the schema version: None for an empty database, 0 for tables without a version."""
    tables = set(inspect(connection).get_table_names())
    if VERSIONS.name in tables:
        version: int = connection.execute(select(VERSIONS.c.version)).scalar_one()
        return version
    return 0 if tables & set(METADATA.tables) else None


Row = dict[str, Any]

MAX_INTEGER: Final = 2**63 - 1
"""The most that a column can hold; a larger token count stays in the document only."""

NO_INDEX: Final = -1
"""Stands for the round and step of a run's own document, and for the step of a round's."""


class StoredDocument(NamedTuple):
    """A stored document and its place in the run."""

    round: int
    step: int
    document: str


Content = Run | Round | StepRecord
"""New content of a run: the run as it begins, a planned round, or a finished step."""


async def write_content(
    connection: AsyncConnection, updates: Sequence[tuple[str, Content]]
) -> None:
    """Write the rounds, steps and workers of runs, named by their ids.

    The steps of a planned round are written as they end.
    """
    dialect = connection.dialect.name
    rounds: list[Row] = []
    steps: list[Row] = []
    workers: list[Row] = []
    for run_id, content in updates:
        ended: tuple[StepRecord, ...] = ()
        if isinstance(content, Run):
            rounds += [round_row(run_id, round_) for round_ in content.rounds]
            ended = tuple(step for round_ in content.rounds for step in round_.steps)
        elif isinstance(content, Round):
            rounds.append(round_row(run_id, content))
        else:
            ended = (content,)
        steps += [step_row(run_id, step) for step in ended]
        workers += worker_rows(run_id, ended)
    for statement, rows in (
        (upsert(dialect, ROUNDS), rounds),
        (upsert(dialect, STEPS), steps),
        (insert_missing(dialect, RUN_WORKERS), workers),
    ):
        if rows:
            await connection.execute(statement, rows)


async def replace_runs(
    connection: AsyncConnection, runs: Sequence[Run], now: str, expires_at: str | None
) -> None:
    """Write runs, replacing all that was written of them but their claims."""
    ids = [run.id for run in runs]
    await connection.execute(delete(ROUNDS).where(ROUNDS.c.run_id.in_(ids)))
    if runs:
        rows = [run_row(run, now, expires_at) for run in runs]
        await connection.execute(upsert(connection.dialect.name, RUNS, CLAIM_COLUMNS), rows)
        await write_content(connection, [(run.id, run) for run in runs])


def run_row(run: Run, now: str, expires_at: str | None = None) -> Row:
    """Build the row of the run itself. Totals stay unknown while it is running."""
    ended = run.status != "running"
    totals = run.totals if ended else None
    return {
        "id": run.id,
        "version": run.version,
        "created_at": run.created_at,
        "updated_at": now,
        "status": run.status,
        "question": storable_text(run.question),
        "answer": None if run.answer is None else storable_text(run.answer),
        "conductor": storable_text(run.conductor),
        "tier": storable_text(run.tier),
        "cost_usd": totals.cost_usd if totals is not None else None,
        "total_tokens": _storable_count(totals.total_tokens) if totals is not None else None,
        "calls": _storable_count(run.spent.calls) if ended else None,
        "seconds": run.spent.seconds if ended else None,
        "document": _document(run, without="rounds"),
        "owner": storable_text(run.owner),
        "expires_at": expires_at,
        "process": storable_text(run.process),
    }


def round_row(run_id: str, round_: Round) -> Row:
    """Build the row of a round, without its steps."""
    document = _document(round_, without="steps")
    return {"run_id": run_id, "round": round_.index, "document": document}


def step_row(run_id: str, step: StepRecord) -> Row:
    """Build the row of a step, including its nested runs."""
    key_columns = {"run_id": run_id, "round": step.round, "step": step.index}
    return {**key_columns, "document": _document(step)}


def worker_rows(run_id: str, steps: Iterable[StepRecord]) -> list[Row]:
    """Build a row for each worker that the steps used, sorted and without duplicates."""
    used = {(step.round, storable_text(worker)) for step in steps for worker in _workers_of(step)}
    return [
        {"run_id": run_id, "round": round_, "worker": worker} for round_, worker in sorted(used)
    ]


def _workers_of(step: StepRecord) -> Iterator[str]:
    if step.status == "skipped":
        return
    yield step.worker
    yield from (attempt.worker for attempt in step.attempts)
    for nested in step.nested:
        for item in nested.steps:
            yield from _workers_of(item)


def build_run(documents: Iterable[StoredDocument]) -> Run:
    """Build a run from its documents, sorted by round and step."""
    run: Row = {}
    rounds: dict[int, Row] = {}
    for piece in documents:
        document = _decode(piece.document)
        if piece.round == NO_INDEX:
            run = document
        elif piece.step == NO_INDEX:
            rounds[piece.round] = document | {"steps": []}
        elif piece.round not in rounds:
            raise UnreadableRun(
                f"cannot read this run: round {piece.round} of its steps is missing"
            )
        else:
            rounds[piece.round]["steps"].append(document)
    return load(run | {"rounds": list(rounds.values())})


def storable_text(text: str) -> str:
    """Replace what a text column cannot hold: NUL and lone surrogates."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def _storable_count(number: int | None) -> int | None:
    return None if number is None or number > MAX_INTEGER else number


def _document(content: Content, without: str = "") -> str:
    return json.dumps(dump(content, without), ensure_ascii=True, separators=(",", ":"))


def _decode(document: str) -> Row:
    try:
        decoded = json.loads(document)
    except ValueError as error:
        raise UnreadableRun(f"cannot read this run: its document is damaged ({error})") from error
    if not isinstance(decoded, dict):
        raise UnreadableRun("cannot read this run: its document is damaged (not an object)")
    return decoded
