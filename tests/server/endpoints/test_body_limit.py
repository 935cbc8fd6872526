from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.server.access import KeyAuthenticator
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.endpoints import http as exchange
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.serving import PLAIN, application, serving

PIECE = b"x" * 64 * 1024
GUARDED = ["/session", "/v1/runs/run_1/feedback", "/v1/nothing"]


class Sending:
    """A body of 64 MB in pieces; knows how many were taken."""

    taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(1024):
            self.taken += 1
            yield PIECE


@pytest.mark.parametrize("path", GUARDED)
async def test_no_more_of_a_body_is_read_than_its_limit(path: str) -> None:
    body = Sending()
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        refused = await served.client.post(path, content=body)
    assert refused.status_code == 413
    assert refused.json()["refused"] == "too_large"
    assert "request body too large: the limit is 1 MB; send less" in refused.text
    assert body.taken == 17


@pytest.mark.parametrize("path", GUARDED)
async def test_of_a_body_that_is_announced_as_too_large_nothing_is_read(path: str) -> None:
    body = Sending()
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        headers = {"Content-Length": str(1024 * len(PIECE))}
        refused = await served.client.post(path, content=body, headers=headers)
    assert (refused.status_code, body.taken) == (413, 0)


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.01)
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        refused = await asyncio.wait_for(served.client.post("/session", content=never()), 5)
    assert refused.status_code == 400
    assert "send it faster" in refused.text


async def test_a_body_within_the_limit_is_read_and_a_key_asked_for(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "podium.db")
    pool = Pool((WorkerProfile(name="solo"),))
    access = KeyAuthenticator(store.keys, pool)
    app = application([ScriptedWorker("solo", "yes")], store=store, access=access)
    async with serving(app) as served:
        judged = await served.client.post("/v1/runs/run_1/feedback", json={"score": 1})
        wrong = await served.client.post("/session", json={"key": "pk_0_wrong"})
        lacking = await served.client.post("/session", json={})
        await access.close()
    assert (judged.status_code, wrong.status_code) == (401, 401)
    assert lacking.status_code == 400
    assert "key is required, but it is missing" in lacking.text


@pytest.mark.parametrize("root", ["", "/podium"])
async def test_addresses_that_take_conversations_have_the_limit_of_the_settings(root: str) -> None:
    long = {"role": "user", "content": "x" * 2 * 2**20}
    app = application(
        [ScriptedWorker("solo", "yes")],
        dialects={PLAIN: CHAT, "/v1/messages": MESSAGES},
    )
    mounted = httpx.ASGITransport(app, root_path=root)
    async with (
        serving(app),
        httpx.AsyncClient(transport=mounted, base_url="http://podium.test") as client,
    ):
        for path in (PLAIN, "/v1/messages/count_tokens"):
            body = {"model": "solo", "messages": [long]}
            response = await client.post(root + path, json=body)
            assert response.status_code == 200, path


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/run_none"),
        ("GET", "/v1/spend"),
        ("GET", "/v1/nothing"),
        ("POST", "/v1/runs/run_none/feedback"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/plan"),
    ],
)
async def test_browsers_keep_no_questions(method: str, path: str) -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        response = await served.client.request(method, path, json={"ask": "Why?", "question": "?"})
    assert response.headers["cache-control"] == "no-store"


async def test_a_stream_is_kept_by_no_browser() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        response = await served.ask(stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"


async def test_signing_out_clears_the_browsers_storage() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        response = await served.client.delete("/session")
    assert response.status_code == 204
    assert response.headers["clear-site-data"] == '"cache"'
