"""Writing a row whether or not there is one with its key already, on SQLite and Postgres alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from sqlalchemy import Executable, Table
from sqlalchemy.dialects import postgresql, sqlite

_INSERT: Final[dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


@cache
def replacing(dialect: str, table: Table) -> Executable:
    """Insert rows, or put them in the place of those with the same key."""
    insert = _INSERT[dialect](table)
    values = {
        column.name: insert.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    return insert.on_conflict_do_update(index_elements=table.primary_key, set_=values)


@cache
def noting(dialect: str, table: Table) -> Executable:
    """Insert rows that are all key, where they are not there already."""
    return _INSERT[dialect](table).on_conflict_do_nothing(index_elements=table.primary_key)


@cache
def adding(dialect: str, table: Table) -> Executable:
    """Insert rows of numbers, or add them to those with the same key."""
    insert = _INSERT[dialect](table)
    values = {
        column.name: column + insert.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    return insert.on_conflict_do_update(index_elements=table.primary_key, set_=values)
