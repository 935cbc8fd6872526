from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, update

from podium.core.errors import StoreError
from podium.core.run import Run
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import METADATA, SCHEMA_VERSION, VERSIONS


async def with_version(where: str, version: int) -> None:
    """Make the database one of another schema."""
    store = await SqlRunStore.open(where)
    async with store._transaction() as connection:
        await connection.execute(update(VERSIONS).values(version=version))
    await store.close()


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
async def test_a_database_of_another_schema_is_refused(where: str, version: int) -> None:
    await with_version(where, version)
    with pytest.raises(StoreError, match=f"has schema .*, expected {SCHEMA_VERSION}; ") as refused:
        await SqlRunStore.open(where)
    assert "\n" not in str(refused.value)


async def test_a_refused_file_says_how_to_move_it_aside_and_is_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    await with_version(str(file), 12)
    before = dump(file)
    message = (
        f"{file} has schema 12, expected {SCHEMA_VERSION}; move it aside (mv {file} {file}.old)"
    )
    with pytest.raises(StoreError) as refused:
        await SqlRunStore.open(file)
    assert str(refused.value).startswith(message)
    assert dump(file) == before


async def test_tables_of_another_program_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE runs (name TEXT)")
    connection.close()
    before = dump(file)
    with pytest.raises(StoreError, match=f"has schema unknown, expected {SCHEMA_VERSION}"):
        await SqlRunStore.open(file)
    assert dump(file) == before


async def test_an_open_store_is_not_in_the_way_of_opening_another(
    where: str, make_run: Callable[..., Run]
) -> None:
    first = await SqlRunStore.open(where)
    second = await SqlRunStore.open(where)
    await first.begin(make_run())
    assert await second.load("last") == await first.load("last")
    await first.close()
    await second.close()


async def test_an_existing_database_opens_without_waiting_for_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.store.sql.database.BUSY_SECONDS", 0)
    file = tmp_path / "podium.db"
    await (await SqlRunStore.open(file)).close()
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    store = await SqlRunStore.open(file)
    assert await store.list() == []
    await store.close()
    writer.close()


async def test_a_new_database_has_every_table_and_index(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    await (await SqlRunStore.open(file)).close()
    database = create_engine(f"sqlite:///{file}")
    found = inspect(database)
    assert set(found.get_table_names()) == set(METADATA.tables)
    for name, table in METADATA.tables.items():
        assert [column["name"] for column in found.get_columns(name)] == table.columns.keys()
        assert {(index["name"], *index["column_names"]) for index in found.get_indexes(name)} == {
            (index.name, *index.columns.keys()) for index in table.indexes
        }
    database.dispose()
