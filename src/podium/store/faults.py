"""The border: what a database or a disk can do wrong, as one line that says who must do what.

Everything that the store does runs inside `border`, so that nothing above it knows an error of
SQLAlchemy, of a driver or of the operating system.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from podium.errors import StoreError

_FULL: Final = "the disk is full; free some space"
_READ_ONLY: Final = "it cannot be written; make the file and its directory writable"
_LOCKED: Final = "another process keeps it locked; wait for it to end"
_DAMAGED: Final = "it is damaged, or no Podium database at all; move it away or restore a copy"
_UNOPENABLE: Final = "it cannot be opened; check that its directory exists and can be written"
_TOO_LARGE: Final = "a reply is larger than the database takes; cap max_output_tokens"
_ORPHANED: Final = "a step was written before the plan of its round, or its run was deleted"
_NO_DIRECTORY: Final = "what should be its directory is a file; name another place for it"
_NO_FILE: Final = "it is a directory; name a file"
_SILENT: Final = "it did not answer in time; check that it is well and can be reached"
_FAULTY_DISK: Final = "the disk did not do what it was asked; check the disk"

_SQLITE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNOPENABLE,
    sqlite3.SQLITE_TOOBIG: _TOO_LARGE,
    sqlite3.SQLITE_IOERR: _FAULTY_DISK,
}

_SYSTEM: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EISDIR: _NO_FILE,
}

_POSTGRES: Final = {
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "55P03": _LOCKED,
}


@contextmanager
def border(where: str) -> Iterator[None]:
    """Turn every fault of the database behind `where` into a `StoreError`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot use the store {where}: {_advice(error)}") from error


def _advice(error: Exception) -> str:
    if isinstance(error, IntegrityError):
        return _ORPHANED
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        primary = code & 0xFF  # the higher bits tell kinds of the same fault apart
        return _SQLITE.get(primary) or _in_its_own_words(cause)
    if isinstance(cause, TimeoutError):
        return _SILENT
    if isinstance(cause, OSError):
        return _SYSTEM.get(cause.errno or 0) or _in_its_own_words(cause)
    state = getattr(cause, "sqlstate", None)
    return _POSTGRES.get(state or "") or _in_its_own_words(cause)


def _in_its_own_words(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
