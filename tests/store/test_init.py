from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import podium.store
from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.store import RunStore, default_url, open_store


def test_importing_the_package_does_not_load_the_database_library() -> None:
    script = "import sys, podium.store; print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    loaded = {name.partition(".")[0] for name in shown.stdout.split()}
    assert "podium" in loaded
    assert loaded.isdisjoint({"sqlalchemy", "aiosqlite", "sqlite3", "asyncpg"})


def test_the_public_names_are_these() -> None:
    assert podium.store.__all__ == [
        "EVERY_RUN",
        "HEARTBEATS_PER_LEASE",
        "LEASE_SECONDS",
        "AbandonedRun",
        "Feedback",
        "Heartbeat",
        "IdempotentRequest",
        "RunFilter",
        "RunList",
        "RunStore",
        "RunSummary",
        "correction_task",
        "default_url",
        "open_store",
    ]


async def test_the_default_store_is_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "what? a #home"))
    assert default_url() == f"sqlite+aiosqlite:///{tmp_path}/what? a #home/podium.db"
    store = await open_store()
    await store.finish(make_run())
    await store.close()
    assert (tmp_path / "what? a #home" / "podium.db").stat().st_size > 0
    again = await open_store(tmp_path / "what? a #home" / "podium.db")
    assert await again.load("last") == make_run()
    await again.close()


async def test_store_opens(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "podium.db")
    await store.close()
    assert isinstance(store, RunStore)


async def test_a_database_has_a_place_for_keys_and_no_store_has_none(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "podium.db")
    assert await store.keys.keys() == []
    await store.close()
    with pytest.raises(ConfigError, match=r"no database for API keys.*\[store\]"):
        _ = RunStore().keys
