from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from podium.core.errors import StoreError
from podium.core.run import Run
from podium.store.base import RunFilter
from podium.store.sql.migrations import MIGRATIONS
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import METADATA

SCHEMA_1 = Path(__file__).with_name("schema_1.sql")
"""A database as the first version of the schema left it, with one run in it."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.db"
    connection = sqlite3.connect(file)
    connection.executescript(SCHEMA_1.read_text())
    connection.close()
    return file


def version(file: Path) -> list[tuple[int]]:
    connection = sqlite3.connect(file)
    try:
        return connection.execute("SELECT version FROM schema_version").fetchall()
    finally:
        connection.close()


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def add_a_column(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN rating INTEGER")
    connection.exec_driver_sql("UPDATE runs SET rating = 5")


def fail_halfway(connection: Connection) -> None:
    connection.exec_driver_sql("DROP TABLE steps")
    connection.exec_driver_sql("ALTER TABLE nowhere ADD COLUMN rating INTEGER")


async def test_a_run_of_the_first_schema_still_loads(old: Path) -> None:
    store = await SqlRunStore.open(old)
    run = await store.load("last")
    (summary,) = await store.list()
    await store.close()
    assert version(old) == [(len(MIGRATIONS),)]
    assert (run.id, run.status, run.answer) == ("run_0123456789abcdef", "answered", "Scattering.")
    assert [step.reply for step in run.steps] == ["Because of scattering."] * 2
    assert (summary.cost_usd, summary.total_tokens) == (run.cost_usd, 30)
    assert (summary.workers, summary.steps, summary.rounds) == (("solo",), 2, 1)


FIRST_COLUMNS = {
    "runs": (
        *("id", "version", "created_at", "updated_at", "status", "question", "answer"),
        *("conductor", "tier", "cost_usd", "total_tokens", "calls", "seconds", "document"),
    ),
    "rounds": ("run_id", "round", "document"),
    "steps": ("run_id", "round", "step", "document"),
}


async def with_a_run_of_its_own(place: str, old: Path, older: int) -> None:
    """A database as it was after so many migrations, with the run that was written then."""
    store = await SqlRunStore.open(place, migrations=MIGRATIONS[:older])
    kept = sqlite3.connect(old)
    async with store._transaction() as connection:
        for table, columns in FIRST_COLUMNS.items():
            names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
            for row in kept.execute(f"SELECT {names} FROM {table}").fetchall():
                insert = text(f"INSERT INTO {table} ({names}) VALUES ({values})")
                await connection.execute(insert, dict(zip(columns, row, strict=True)))
    kept.close()
    await store.close()


@pytest.mark.parametrize("older", range(1, len(MIGRATIONS)))
async def test_a_run_of_every_older_schema_stays_readable_on_any_database(
    place: str, old: Path, older: int
) -> None:
    await with_a_run_of_its_own(place, old, older)
    store = await SqlRunStore.open(place)
    run = await store.load("last")
    assert (run.id, run.status, run.answer) == ("run_0123456789abcdef", "answered", "Scattering.")
    assert [step.reply for step in run.steps] == ["Because of scattering."] * 2
    (summary,) = await store.list()
    assert (summary.steps, summary.rounds, summary.total_tokens) == (2, 1, 30)
    assert not await store.is_claimed(run.id)
    await store.finish(run)
    assert await store.load("last") == run
    assert await store.claim(run.id, "here:1") == run
    await store.close()


@pytest.mark.parametrize("older", range(1, len(MIGRATIONS)))
async def test_every_older_schema_is_brought_forward_on_any_database(
    place: str, make_run: Callable[..., Run], older: int
) -> None:
    await (await SqlRunStore.open(place, migrations=MIGRATIONS[:older])).close()
    store = await SqlRunStore.open(place)
    await store.finish(make_run())
    assert await store.load("last") == make_run()
    assert await store.keys.keys() == []
    await store.close()


async def test_an_older_schema_is_brought_forward_with_its_runs(old: Path) -> None:
    store = await SqlRunStore.open(old, migrations=(*MIGRATIONS, add_a_column))
    run = await store.load("last")
    await store.finish(run)
    assert await store.load("last") == run
    await store.close()
    assert version(old) == [(len(MIGRATIONS) + 1,)]
    connection = sqlite3.connect(old)
    assert connection.execute("SELECT rating FROM runs").fetchall() == [(5,)]
    connection.close()


async def test_a_file_of_the_first_schema_that_can_only_be_read_is_read_as_it_is(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.store.sql.run_store.is_only_readable", lambda place: True)
    before = dump(old)
    store = await SqlRunStore.open(old, to_read=True)
    (summary,) = await store.list(RunFilter(text="SKY", tier="ultra"))
    assert (summary.id, summary.steps, summary.workers) == ("run_0123456789abcdef", 2, ())
    for unknown in (RunFilter(worker="solo"), RunFilter(owner="")):
        with pytest.raises(StoreError, match="made by an older Podium .* make it writable"):
            await store.list(unknown)
    assert (await store.load("last")).answer == "Scattering."
    assert await store.feedback.get(summary.id) is None
    await store.close()
    assert dump(old) == before


async def test_a_damaged_step_is_not_in_the_way_of_a_newer_schema(old: Path) -> None:
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE steps SET document = 'no JSON' WHERE step = 0")
        connection.execute("""UPDATE steps SET document = '{"status": "done", "worker": "amy",
            "attempts": [{"worker": "ben"}], "nested": [{"rounds": [{"steps":
            [{"status": "done", "worker": "cleo"}, {"status": "skipped", "worker": "dora"}]
            }]}]}' WHERE step = 1""")
    connection.close()
    store = await SqlRunStore.open(old)
    (summary,) = await store.list()
    await store.close()
    assert summary.workers == ("amy", "ben", "cleo")


@pytest.mark.parametrize(
    ("nested", "workers"),
    [
        ("null", ("amy",)),
        ('{"rounds": [{"steps": [{"status": "done", "worker": "cleo"}]}]}', ("amy", "cleo")),
    ],
)
async def test_a_step_of_an_older_document_is_read_for_its_workers(
    old: Path, nested: str, workers: tuple[str, ...]
) -> None:
    connection = sqlite3.connect(old)
    document = f'{{"status": "done", "worker": "amy", "attempts": [], "nested": {nested}}}'
    connection.execute("UPDATE steps SET document = ?", (document,))
    connection.commit()
    connection.close()
    store = await SqlRunStore.open(old)
    (summary,) = await store.list()
    await store.close()
    assert summary.workers == workers


async def test_a_run_of_the_first_schema_is_nobodys(old: Path) -> None:
    await (await SqlRunStore.open(old)).close()
    connection = sqlite3.connect(old)
    assert connection.execute("SELECT owner FROM runs").fetchall() == [("",)]
    connection.close()


async def test_a_migration_that_fails_changes_nothing(old: Path) -> None:
    before = dump(old)
    with pytest.raises(StoreError, match="nowhere"):
        await SqlRunStore.open(old, migrations=(*MIGRATIONS, add_a_column, fail_halfway))
    assert dump(old) == before


async def test_a_newer_schema_is_refused(place: str, make_run: Callable[..., Run]) -> None:
    newer = await SqlRunStore.open(place, migrations=(*MIGRATIONS, add_a_column))
    await newer.finish(make_run())
    await newer.close()
    with pytest.raises(StoreError, match="made by a newer Podium .* upgrade Podium"):
        await SqlRunStore.open(place)
    newer = await SqlRunStore.open(place, migrations=(*MIGRATIONS, add_a_column))
    assert await newer.load("last") == make_run()
    await newer.close()


async def test_an_open_store_is_not_in_the_way_of_opening_another(
    place: str, make_run: Callable[..., Run]
) -> None:
    first = await SqlRunStore.open(place)
    second = await SqlRunStore.open(place)
    await first.begin(make_run())
    assert await second.load("last") == await first.load("last")
    await first.close()
    await second.close()


async def test_a_database_up_to_date_opens_without_waiting_for_a_writer(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.store.sql.database.BUSY_SECONDS", 0)
    await (await SqlRunStore.open(old)).close()
    writer = sqlite3.connect(old, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    store = await SqlRunStore.open(old)
    assert len(await store.list()) == 1
    await store.close()
    writer.close()


async def test_the_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    await (await SqlRunStore.open(file)).close()
    database = create_engine(f"sqlite:///{file}")
    found = inspect(database)
    assert set(found.get_table_names()) == set(METADATA.tables)
    for name, table in METADATA.tables.items():
        columns = {column["name"]: column for column in found.get_columns(name)}
        assert list(columns) == table.columns.keys()
        for column in table.columns:
            assert columns[column.name]["nullable"] is column.nullable, (name, column.name)
        assert found.get_pk_constraint(name)["constrained_columns"] == [
            column.name for column in table.primary_key
        ]
        assert {tuple(key["constrained_columns"]) for key in found.get_foreign_keys(name)} == {
            tuple(key.column_keys) for key in table.foreign_key_constraints
        }
        assert {(index["name"], *index["column_names"]) for index in found.get_indexes(name)} == {
            (index.name, *index.columns.keys()) for index in table.indexes
        }
    database.dispose()
