"""A server whose store goes away, and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.postgres import NOBODY, programs, running_postgres
from podium.core.errors import NotFound, StoreError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, Usage
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.dialects.responses import RESPONSES
from podium.store.sql.run_store import SqlRunStore
from support.postgres import MISSING
from support.serving import application, serving

REAL: Final[dict[str, Dialect]] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
QUESTION: Final = [{"role": "user", "content": "Why?"}]
BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {"model": "podium-ultra", "messages": QUESTION},
    "/v1/responses": {"model": "podium-ultra", "input": "Why?"},
    "/v1/messages": {"model": "podium-ultra", "messages": QUESTION, "max_tokens": 100},
}
CHATTED: Final = "/v1/chat/completions"


class Worker:
    """Answers, after what happens `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self.profile = WorkerProfile(name="solo")
        self.calls = 0
        self.meanwhile = meanwhile

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        return Reply("because", Usage(5, 5, 0, 0, 0))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield await self.reply(request)


async def is_answered(store: SqlRunStore, run_id: str) -> None:
    """Wait until the run is on record as answered."""
    async with asyncio.timeout(10):
        while True:
            try:
                if (await store.load(run_id)).status == "answered":
                    return
            except (NotFound, StoreError):
                pass
            await asyncio.sleep(0.01)


def started(where: Path, directory: str) -> subprocess.Popen[bytes]:
    """The Postgres of that directory, once more."""
    user = NOBODY if os.geteuid() == 0 else None
    settings = ["-c", "listen_addresses=", "-c", "log_min_messages=panic", "-c", "fsync=off"]
    command = [str(where / "postgres"), "-D", f"{directory}/data", "-k", directory, *settings]
    return subprocess.Popen(command, user=user, group=user)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("path", REAL)
async def test_while_a_shared_store_is_down_no_run_begins_and_clients_get_a_retry_after(
    path: str, named: bool, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, worker = await SqlRunStore.open(tmp_path / "podium.db"), Worker()
    app = application([worker], store=store, shared=True, dialects=REAL)
    async with serving(app) as server:
        headers = {"Idempotency-Key": "a name"} if named else {}
        body = {**BODIES[path], "stream": stream}
        monkeypatch.setattr(store.database, "is_closed", True)
        refused = await server.client.post(path, json=body, headers=headers)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "the run store is unavailable" in refused.json()["error"]["message"]
        assert worker.calls == 0
        assert "X-Podium-Run" not in refused.headers, "there is none"
        monkeypatch.setattr(store.database, "is_closed", False)
        assert await store.list() == []
        answered = await server.client.post(path, json=body, headers=headers)
        assert (answered.status_code, worker.calls) == (200, 1)


@pytest.mark.parametrize("shared", [False, True])
async def test_a_run_that_ends_while_the_store_is_away_is_on_record_when_that_is_back(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")

    async def goes_away() -> None:
        monkeypatch.setattr(store.database, "is_closed", True)

    worker = Worker(goes_away)
    app = application([worker], store=store, shared=shared, dialects=REAL)
    async with serving(app) as server:
        response = await server.client.post(CHATTED, json=BODIES[CHATTED])
        assert response.status_code == 200
        run_id = response.headers["X-Podium-Run"]
        assert (await server.client.get(f"/v1/runs/{run_id}")).json()["status"] == "answered"
        monkeypatch.setattr(store.database, "is_closed", False)
        await is_answered(store, run_id)
    assert worker.calls == 1


async def test_a_run_that_began_before_postgres_stopped_is_answered_and_on_record_afterwards() -> (
    None
):
    where = programs()
    if where is None:
        pytest.skip(MISSING)
    with running_postgres(durable=True) as postgres:
        data = Path(postgres.directory) / "data"

        async def stops() -> None:
            pid = int((data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGQUIT)
            async with asyncio.timeout(10):
                while (data / "postmaster.pid").exists():
                    await asyncio.sleep(0.01)

        store, worker = await SqlRunStore.open(postgres.address()), Worker(stops)
        app = application([worker], store=store, shared=True, dialects=REAL)
        async with serving(app) as server:
            response = await server.client.post(CHATTED, json=BODIES[CHATTED])
            assert response.status_code == 200
            refused = await server.client.post(CHATTED, json=BODIES[CHATTED])
            assert (refused.status_code, worker.calls) == (503, 1)
            again = started(where, postgres.directory)
            try:
                await is_answered(store, response.headers["X-Podium-Run"])
                assert (len(await store.list()), worker.calls) == (1, 1)
                await store.close()
            finally:
                again.send_signal(signal.SIGQUIT)
                again.wait()
