"""How the tables came to be: ordered changes, each of which brings the schema one version on.

A migration is a plain function and is never edited once released, for databases in the wild have
been through it. It speaks SQL that SQLite and Postgres share. All that are missing run in one
transaction, behind a lock, so that two processes may open a new database at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, delete, insert, inspect, select, text

from podium._version import __version__
from podium.core.errors import StoreError
from podium.core.run import timestamp
from podium.store.audit import AuditDetails, local_event
from podium.store.sql.audit import append
from podium.store.sql.rows import plain
from podium.store.sql.tables import AUDIT, SCHEMA_VERSION

Migration = Callable[[Connection], None]

_LOCKS: Final = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(7063488611)",  # any number, the same everywhere
}


def migrate(
    connection: Connection, migrations: Sequence[Migration], where: str, *, read_only: bool = False
) -> int:
    """Bring the schema up to date, or refuse a database made by a newer Podium.

    Gives the version that the schema has now. One that can only be read is left as it is, and
    whoever reads runs must do with the first schema.
    """
    newest = len(migrations)
    found = _version(connection)
    if found < newest and not read_only:
        connection.exec_driver_sql(_LOCKS[connection.dialect.name])
        found = _version(connection)  # another process may have been here meanwhile
        for migration in migrations[found:]:
            migration(connection)
        if found < newest:
            connection.execute(delete(SCHEMA_VERSION))
            connection.execute(insert(SCHEMA_VERSION).values(version=newest))
            if found:
                _note(connection, found, newest)
    if found > newest:
        raise StoreError(
            f"{where} was made by a newer Podium (its schema is {found}, and this one knows "
            f"up to {newest}); upgrade Podium to use it"
        )
    return found if read_only else newest


def _note(connection: Connection, found: int, newest: int) -> None:
    """Enter in the audit log, where there is one by now, that a database was changed."""
    if inspect(connection).has_table(AUDIT.name):
        details: AuditDetails = {"from": found, "to": newest, "podium": __version__}
        append(connection, local_event("schema migrated", details=details), timestamp())


def _version(connection: Connection) -> int:
    """How many migrations the database has been through; a new one through none."""
    if not inspect(connection).has_table(SCHEMA_VERSION.name):
        return 0
    version: int = connection.execute(select(SCHEMA_VERSION.c.version)).scalar_one()
    return version


def _runs_rounds_and_steps(connection: Connection) -> None:
    for statement in (
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        """
        CREATE TABLE runs (
            id TEXT NOT NULL PRIMARY KEY,
            version INTEGER NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            status TEXT NOT NULL,
            question TEXT NOT NULL,
            answer TEXT,
            conductor TEXT NOT NULL,
            tier TEXT NOT NULL,
            cost_usd DOUBLE PRECISION,
            total_tokens BIGINT,
            calls BIGINT,
            seconds DOUBLE PRECISION,
            document TEXT NOT NULL
        )
        """,
        "CREATE INDEX runs_by_age ON runs (created_at, id)",
        """
        CREATE TABLE rounds (
            run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            round INTEGER NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (run_id, round)
        )
        """,
        """
        CREATE TABLE steps (
            run_id TEXT NOT NULL,
            round INTEGER NOT NULL,
            step INTEGER NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (run_id, round, step),
            FOREIGN KEY (run_id, round) REFERENCES rounds (run_id, round) ON DELETE CASCADE
        )
        """,
    ):
        connection.exec_driver_sql(statement)


def _owners_keys_and_usage(connection: Connection) -> None:
    for statement in (
        "ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX runs_by_owner ON runs (owner, created_at, id)",
        """
        CREATE TABLE keys (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            created_at TEXT NOT NULL,
            expires_at TEXT,
            revoked_at TEXT,
            rules TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE key_usage (
            key_id TEXT NOT NULL REFERENCES keys (id),
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            requests BIGINT NOT NULL,
            input_tokens BIGINT NOT NULL,
            output_tokens BIGINT NOT NULL,
            orchestration_input_tokens BIGINT NOT NULL,
            orchestration_output_tokens BIGINT NOT NULL,
            cost_usd DOUBLE PRECISION NOT NULL,
            unknown_tokens BIGINT NOT NULL,
            unknown_cost BIGINT NOT NULL,
            assumed_tokens BIGINT NOT NULL,
            assumed_usd DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (key_id, day, model)
        )
        """,
    ):
        connection.exec_driver_sql(statement)


def _feedback(connection: Connection) -> None:
    connection.exec_driver_sql(
        """
        CREATE TABLE feedback (
            run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
            score DOUBLE PRECISION NOT NULL,
            comment TEXT NOT NULL,
            given_at TEXT NOT NULL
        )
        """
    )


def _what_runs_are_found_by(connection: Connection) -> None:
    for statement in (
        "DROP INDEX runs_by_age",
        "CREATE INDEX runs_by_age ON runs (created_at, id, status, tier, cost_usd)",
        """
        CREATE TABLE workers_used (
            run_id TEXT NOT NULL,
            round INTEGER NOT NULL,
            worker TEXT NOT NULL,
            PRIMARY KEY (run_id, round, worker),
            FOREIGN KEY (run_id, round) REFERENCES rounds (run_id, round) ON DELETE CASCADE
        )
        """,
    ):
        connection.exec_driver_sql(statement)
    steps = connection.exec_driver_sql("SELECT run_id, round, document FROM steps")
    insert = text("INSERT INTO workers_used VALUES (:run_id, :round, :worker)")
    used = {
        (run_id, round_, worker)
        for run_id, round_, document in steps
        for worker in map(plain, _workers_in(document))
    }
    if used:
        names = ("run_id", "round", "worker")
        connection.execute(insert, [dict(zip(names, row, strict=True)) for row in sorted(used)])


def _workers_in(document: str) -> Iterator[str]:
    """Whom a step of schema 3 used, as its document says; one that is damaged says nothing."""
    try:
        waiting = [json.loads(document)]
    except ValueError:
        return
    while waiting:
        match waiting.pop():
            case {"status": status, "worker": str(worker)} as step if status != "skipped":
                yield worker
                yield from (attempt["worker"] for attempt in step.get("attempts", ()))
                nested = step.get("nested") or ()  # long ago one run, or null
                for run in [nested] if isinstance(nested, dict) else nested:
                    waiting.extend(each for round_ in run["rounds"] for each in round_["steps"])


def _runs_to_forget(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN forget_after TEXT")
    connection.exec_driver_sql(
        "CREATE INDEX runs_to_forget ON runs (forget_after) WHERE forget_after IS NOT NULL"
    )


def _charges(connection: Connection) -> None:
    connection.exec_driver_sql(
        """
        CREATE TABLE charges (
            run_id TEXT NOT NULL PRIMARY KEY,
            key_id TEXT NOT NULL,
            day TEXT NOT NULL,
            input_tokens BIGINT NOT NULL,
            output_tokens BIGINT NOT NULL,
            orchestration_input_tokens BIGINT NOT NULL,
            orchestration_output_tokens BIGINT NOT NULL,
            cost_usd DOUBLE PRECISION NOT NULL,
            unknown_tokens BIGINT NOT NULL,
            unknown_cost BIGINT NOT NULL,
            assumed_tokens BIGINT NOT NULL,
            assumed_usd DOUBLE PRECISION NOT NULL
        )
        """
    )
    connection.exec_driver_sql("CREATE INDEX charges_by_day ON charges (day)")


def _claims(connection: Connection) -> None:
    for statement in (
        "ALTER TABLE runs ADD COLUMN process TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN claims INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX runs_going_on ON runs (updated_at) WHERE status = 'running'",
    ):
        connection.exec_driver_sql(statement)


def _named_requests(connection: Connection) -> None:
    connection.exec_driver_sql(
        """
        CREATE TABLE requests (
            owner TEXT NOT NULL,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            run_id TEXT NOT NULL,
            process TEXT NOT NULL,
            created_at TEXT NOT NULL,
            PRIMARY KEY (owner, name)
        )
        """
    )
    connection.exec_driver_sql("CREATE INDEX requests_by_age ON requests (created_at)")


def _tabs(connection: Connection) -> None:
    for statement in (
        """
        CREATE TABLE tabs (
            id TEXT NOT NULL PRIMARY KEY,
            key_id TEXT NOT NULL,
            model TEXT NOT NULL,
            run_id TEXT NOT NULL,
            process TEXT NOT NULL,
            used_usd DOUBLE PRECISION NOT NULL,
            used_tokens BIGINT NOT NULL,
            claimed_usd DOUBLE PRECISION NOT NULL,
            claimed_tokens BIGINT NOT NULL,
            taken_usd DOUBLE PRECISION NOT NULL,
            taken_tokens BIGINT NOT NULL,
            calls BIGINT NOT NULL
        )
        """,
        "CREATE INDEX tabs_by_key ON tabs (key_id)",
        "CREATE INDEX tabs_by_run ON tabs (run_id)",
        """
        CREATE TABLE leases (
            process TEXT NOT NULL PRIMARY KEY,
            expires_at DOUBLE PRECISION NOT NULL
        )
        """,
    ):
        connection.exec_driver_sql(statement)


def _audit(connection: Connection) -> None:
    """Entries are only ever added: the database itself refuses to change or delete one."""
    connection.exec_driver_sql(
        """
        CREATE TABLE audit (
            number BIGINT NOT NULL PRIMARY KEY,
            at TEXT NOT NULL,
            action TEXT NOT NULL,
            actor TEXT NOT NULL,
            actor_name TEXT NOT NULL,
            subject TEXT NOT NULL,
            origin TEXT NOT NULL,
            details TEXT NOT NULL,
            digest TEXT NOT NULL
        )
        """
    )
    for statement in _APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)


_APPEND_ONLY: Final = {
    "sqlite": tuple(
        f"CREATE TRIGGER audit_no_{verb} BEFORE {verb} ON audit "
        f"BEGIN SELECT RAISE(ABORT, 'entries of the audit log are only ever added'); END"
        for verb in ("update", "delete")
    ),
    "postgresql": (
        """
        CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'entries of the audit log are only ever added'; END $$
        """,
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
    ),
}


def _buckets(connection: Connection) -> None:
    connection.exec_driver_sql(
        """
        CREATE TABLE buckets (
            key_id TEXT NOT NULL PRIMARY KEY,
            requests DOUBLE PRECISION NOT NULL,
            tokens DOUBLE PRECISION NOT NULL,
            filled_at DOUBLE PRECISION NOT NULL
        )
        """
    )


def _graded_feedback(connection: Connection) -> None:
    for column in ("grader", "task"):
        connection.exec_driver_sql(
            f"ALTER TABLE feedback ADD COLUMN {column} TEXT NOT NULL DEFAULT ''"
        )


MIGRATIONS: Final[tuple[Migration, ...]] = (
    _runs_rounds_and_steps,
    _owners_keys_and_usage,
    _feedback,
    _what_runs_are_found_by,
    _runs_to_forget,
    _charges,
    _claims,
    _named_requests,
    _audit,
    _tabs,
    _buckets,
    _graded_feedback,
)
"""In order; a database's schema version is how many of them it has been through."""
