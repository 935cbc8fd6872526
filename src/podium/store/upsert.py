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
