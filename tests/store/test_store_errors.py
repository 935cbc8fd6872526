from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import Pool

from podium.core.errors import StoreError
from podium.core.events import RoundPlanned, RunDone, RunStarted, StepDone
from podium.core.run import Run
from podium.store.journal import Journal
from podium.store.sql.database import store_errors
from podium.store.sql.run_store import SqlRunStore

NOBODY = 65534
LETTER = b"This is no database, but a letter. " * 100


@contextmanager
def pragma(setting: str) -> Iterator[None]:
    """Every connection that is opened meanwhile has that setting."""

    def put(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA {setting}")
        cursor.close()

    event.listen(Pool, "connect", put)
    try:
        yield
    finally:
        event.remove(Pool, "connect", put)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "podium.db"


@pytest.fixture
async def small_disk(file: Path) -> AsyncIterator[SqlRunStore]:
    """A store on a disk with room for a short run, and not for a long one."""
    await (await SqlRunStore.open(file)).close()
    connection = sqlite3.connect(file)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    with pragma(f"max_page_count = {pages + 8}"):
        store = await SqlRunStore.open(file)
        yield store
        await store.close()


@pytest.fixture
def letter(file: Path) -> Path:
    file.write_bytes(LETTER)
    return file


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def overwrite_all_but_the_first_page(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


def long(run: Run) -> Run:
    steps = tuple(replace(step, reply="too long for the disk " * 20_000) for step in run.steps)
    return replace(run, rounds=(replace(run.rounds[0], steps=steps),))


async def test_a_full_disk_is_named_and_what_was_written_stays(
    small_disk: SqlRunStore, file: Path, make_run: Callable[..., Run]
) -> None:
    short = make_run("run_short")
    await small_disk.finish(short)
    with pytest.raises(StoreError, match="disk is full; free some space") as refused:
        await small_disk.finish(long(make_run("run_long")))
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert await small_disk.load("last") == short


async def test_a_disk_that_fills_up_in_mid_run_does_not_cost_the_answer(
    small_disk: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    run = long(make_run("run_long"))
    journal = Journal(small_disk)
    journal.emit(RunStarted(replace(run, rounds=(), status="running", answer=None)))
    journal.emit(RoundPlanned(run.id, replace(run.rounds[0], steps=())))
    for step in run.steps:
        journal.emit(StepDone(run.id, step))
    await journal.drain()
    journal.emit(RunDone(run))
    await journal.close()
    assert journal.error is not None
    assert "disk is full" in str(journal.error)
    kept = await small_disk.load(run.id)
    assert (kept.status, kept.steps) == ("running", ())
    assert kept.rounds[0].workflow == run.rounds[0].workflow


async def test_a_file_that_is_no_database_is_named_and_left_alone(letter: Path) -> None:
    with pytest.raises(StoreError, match="damaged, or no Podium database") as refused:
        await SqlRunStore.open(letter)
    assert str(letter) in str(refused.value)
    assert digest(letter) == hashlib.sha256(LETTER).hexdigest()


async def test_a_damaged_database_is_named(file: Path, make_run: Callable[..., Run]) -> None:
    store = await SqlRunStore.open(file)
    await store.finish(make_run())
    await store.close()
    overwrite_all_but_the_first_page(file)
    with pytest.raises(StoreError, match="damaged"):
        await SqlRunStore.open(file)


async def test_a_locked_database_is_named(
    file: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.store.sql.database.BUSY_SECONDS", 0)
    store = await SqlRunStore.open(file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process keeps it locked"):
        await store.finish(make_run())
    assert await store.list() == []
    other.execute("COMMIT")
    other.close()
    await store.finish(make_run())
    assert await store.load("last") == make_run()
    await store.close()


async def test_a_database_that_cannot_be_written_is_named(
    file: Path, make_run: Callable[..., Run]
) -> None:
    await (await SqlRunStore.open(file)).close()
    with pragma("query_only = ON"):
        store = await SqlRunStore.open(file)
        with pytest.raises(StoreError, match="cannot be written; make the file"):
            await store.finish(make_run())
        await store.close()


@pytest.fixture
def read_only_directory() -> Iterator[Path]:
    """A directory that this process may read and not write, even where tests run as root."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield Path(directory)
        finally:
            os.seteuid(user)
            os.chmod(directory, 0o755)


async def test_a_database_that_can_only_be_read_is_refused(
    read_only_directory: Path, make_run: Callable[..., Run]
) -> None:
    file = read_only_directory / "what? a #1.db"
    user = os.geteuid()
    os.seteuid(os.getuid())
    os.chmod(read_only_directory, 0o755)
    made = await SqlRunStore.open(file)
    await made.finish(make_run())
    await made.close()
    os.chmod(file, 0o444)
    os.chmod(read_only_directory, 0o555)
    os.seteuid(user)
    with pytest.raises(StoreError, match="make the file and its directory writable"):
        await SqlRunStore.open(file)


async def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    for where in ("home/podium.db", "home/deeper/podium.db"):
        with pytest.raises(StoreError, match="its directory is a file; name another"):
            await SqlRunStore.open(tmp_path / where)


@pytest.mark.parametrize("file", ["podium.db", "new/podium.db"])
async def test_a_directory_that_cannot_be_written_is_named(
    read_only_directory: Path, file: str
) -> None:
    with pytest.raises(StoreError, match="make the file and its directory writable") as refused:
        await SqlRunStore.open(read_only_directory / file)
    assert str(read_only_directory / file) in str(refused.value)


async def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it is a directory; name a file"):
        await SqlRunStore.open(tmp_path)


class PostgresFault(Exception):
    def __init__(self, sqlstate: str, message: str = "as the server says\nDETAIL: more") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "cannot be written"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (DBAPIError("SELECT", {}, PostgresFault("53100")), "the disk is full"),
        (DBAPIError("SELECT", {}, PostgresFault("25006")), "cannot be written"),
        (DBAPIError("SELECT", {}, PostgresFault("99999")), "x: as the server says$"),
        (TimeoutError(), "did not answer in time; check"),
    ],
)
def test_every_fault_becomes_one_line(fault: Exception, message: str) -> None:
    with pytest.raises(StoreError, match=message) as refused, store_errors("x"):
        raise fault
    assert str(refused.value).startswith("cannot use the store x: ")
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is fault


async def test_a_fault_does_not_repeat_the_prompt(
    small_disk: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    with pytest.raises(StoreError) as refused:
        await small_disk.finish(long(make_run("run_long")))
    assert "too long for the disk" not in f"{refused.value} {refused.value.__cause__}"
