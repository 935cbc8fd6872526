from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.store.sql.database import connect, locate
from podium.store.sql.run_store import SqlRunStore


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("runs.db", "runs.db"),
        (Path("/data/runs.db"), "/data/runs.db"),
        ("sqlite:///runs.db", "runs.db"),
        ("sqlite+aiosqlite:////data/what? #1.db", "/data/what? #1.db"),
        ("~/runs.db", os.path.expanduser("~/runs.db")),
    ],
)
def test_a_file_may_be_named_in_several_ways(where: str | Path, file: str) -> None:
    location = locate(where)
    assert location.file == Path(file)
    assert location.name == file
    assert location.url.drivername == "sqlite+aiosqlite"


@pytest.mark.parametrize("where", ["mysql://host/name", "sqlite://runs.db", "https://host"])
def test_any_other_address_is_refused_with_the_ways_there_are(where: str) -> None:
    with pytest.raises(ConfigError, match="a file, sqlite:///FILE or postgresql://HOST/NAME"):
        locate(where)


@pytest.mark.parametrize("where", ["", ":memory:", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_that_would_not_stay_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="name a file"):
        locate(where)


def test_postgres_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[postgres\]'"):
        locate("postgresql://host/name")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setattr("podium.store.sql.database.find_spec", lambda _: object())
    location = locate(f"{scheme}://me:secret@host:5432/runs")
    assert location.name == "postgresql+asyncpg://me:***@host:5432/runs"
    assert location.url.password == "secret"
    for wrong in ("me:secret@host:port/runs", "me:top@secret@host/runs"):
        with pytest.raises(ConfigError, match="USER:PASSWORD@HOST/NAME; write an @") as refused:
            locate(f"{scheme}://{wrong}")
        assert "secret" not in str(refused.value)


def test_encryption_options_are_translated_for_the_postgres_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("podium.store.sql.database.find_spec", lambda _: object())
    location = locate("postgresql://host/runs?sslmode=require&application_name=podium")
    assert dict(location.url.query) == {"application_name": "podium", "ssl": "require"}


async def test_only_the_owner_can_read_what_is_made(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    def modes() -> dict[str, int]:
        made = [tmp_path / "new", *(tmp_path / "new").glob("*")]
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}

    umask = os.umask(0)
    try:
        store = await SqlRunStore.open(tmp_path / "new" / "podium.db")
        await store.finish(make_run())
        assert modes() == {
            "new": 0o700,
            "podium.db": 0o600,
            "podium.db-wal": 0o600,
            "podium.db-shm": 0o600,
        }
        await store.close()
    finally:
        os.umask(umask)


async def test_a_directory_that_exists_is_left_open_read_only(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    await (await SqlRunStore.open(tmp_path / "podium.db")).close()
    assert stat.S_IMODE(os.stat(tmp_path).st_mode) == 0o755


async def test_closing_lets_what_is_under_way_end_so_that_no_connection_is_left(
    tmp_path: Path,
) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    asked = [asyncio.create_task(store.list()) for _ in range(3)]
    await asyncio.sleep(0)
    await store.close()
    assert [task.done() for task in asked] == [True] * 3
    assert os.listdir(tmp_path) == ["podium.db"]  # the last connection leaves no other


async def test_a_closed_store_leaves_one_file(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    await store.finish(make_run())
    await store.close()
    assert os.listdir(tmp_path) == ["podium.db"]


async def test_a_connection_is_set_up_for_a_journal(tmp_path: Path) -> None:
    database = connect(locate(tmp_path / "podium.db"))
    async with database.connect() as connection:
        found = {
            pragma: (await connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar()
            for pragma in (
                "journal_mode",
                "synchronous",
                "foreign_keys",
                "busy_timeout",
                "secure_delete",
            )
        }
    await database.dispose()
    assert found == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 5000,
        "secure_delete": 1,
    }


async def test_a_file_that_another_process_is_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "podium.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    released = []

    async def release(_seconds: float) -> None:
        other.execute("COMMIT")
        released.append(True)

    monkeypatch.setattr("podium.store.sql.database.asyncio.sleep", release)
    monkeypatch.setattr("podium.store.sql.database.BUSY_SECONDS", 0)
    store = await SqlRunStore.open(file)
    await store.close()
    other.close()
    assert released == [True]
