"""A provider's error keeps its meaning, in every dialect, for a tier and for a worker by name."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import anthropic
import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from podium.core.pool import WorkerProfile
from podium.workers.endpoints import Endpoint, connect
from podium.workers.http import Http
from support.site import Site, listening, site_over

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
MODELS: Final = ("far", "podium-mini", "podium-ultra")

MEANINGS: Final = [
    (400, 400, "invalid_request_error", "invalid_request_error"),
    (401, 500, "server_error", "api_error"),
    (403, 500, "server_error", "api_error"),
    (404, 404, "invalid_request_error", "not_found_error"),
    (408, 408, "server_error", "timeout_error"),
    (409, 409, "invalid_request_error", "conflict_error"),
    (413, 413, "invalid_request_error", "request_too_large"),
    (422, 422, "invalid_request_error", "invalid_request_error"),
    (429, 429, "rate_limit_error", "rate_limit_error"),
    (500, 502, "server_error", "api_error"),
    (503, 502, "server_error", "api_error"),
    (529, 502, "server_error", "api_error"),
]
"""The provider's status, ours, OpenAI's type of error and Anthropic's."""


@dataclass
class Upstream:
    """A provider that fails with `status`, or answers where that is 200."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    async def answer(self, request: Request) -> Response:
        self.calls += 1
        if self.status != 200:
            body: dict[str, Any] = {"error": {"message": "the provider says no"}}
            return JSONResponse(body, self.status, self.headers)
        message = {"role": "assistant", "content": "Here."}
        return JSONResponse({"choices": [{"message": message, "finish_reason": "stop"}]})


@asynccontextmanager
async def served(upstream: Upstream, directory: Path) -> AsyncIterator[Site]:
    """A server whose only worker is `far`, over a real socket."""
    app = Starlette(routes=[Route("/v1/chat/completions", upstream.answer, methods=["POST"])])
    http = Http()
    async with listening(app) as address:
        profile = WorkerProfile(name="far", provider="openai-compatible", model="far")
        worker = connect(profile, Endpoint(base_url=f"{address}/v1", api_key="key"), http)
        try:
            async with site_over(directory, [worker]) as site:
                yield site
        finally:
            await http.close()


def body(path: str, model: str) -> dict[str, Any]:
    if path == RESPONSES:
        return {"model": model, "input": "Why?"}
    messages = [{"role": "user", "content": "Why?"}]
    return {"model": model, "messages": messages, "max_tokens": 100}


@pytest.mark.parametrize(("status", "ours", "openai_type", "anthropic_type"), MEANINGS)
async def test_a_status_of_the_provider_keeps_its_meaning(
    tmp_path: Path, status: int, ours: int, openai_type: str, anthropic_type: str
) -> None:
    upstream = Upstream(status, {"retry-after": "0"})
    async with (
        served(upstream, tmp_path) as site,
        httpx.AsyncClient(base_url=site.address) as client,
    ):
        site.service.gateway._call_policy.breakers.policy = None
        for path in (CHAT, RESPONSES, MESSAGES):
            for model, stream in product(MODELS, (False, True)):
                response = await client.post(path, json=body(path, model) | {"stream": stream})
                assert response.status_code == ours, (path, model, stream, response.text)
                error = response.json()["error"]
                assert error["type"] == (anthropic_type if path == MESSAGES else openai_type)
                assert "far" in error["message"], "the worker's name"
                assert "the provider says no" in error["message"]
                retries = response.headers.get("x-should-retry")
                assert retries == ("false" if status in (401, 403) else None)
                assert ("retry-after" in response.headers) == (ours in (408, 409, 429, 502))


async def test_a_rate_limit_says_how_long_to_wait_after_our_own_retries(tmp_path: Path) -> None:
    upstream = Upstream(429, {"retry-after": "77"})
    async with (
        served(upstream, tmp_path) as site,
        openai.AsyncOpenAI(base_url=f"{site.address}/v1", api_key="x", max_retries=0) as sdk,
    ):
        for model in MODELS:
            with pytest.raises(openai.RateLimitError) as caught:
                await sdk.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": "Why?"}]
                )
            assert caught.value.response.headers["retry-after"] == "77"
            assert caught.value.request_id


async def test_sdks_do_not_send_a_refused_request_again(tmp_path: Path) -> None:
    for status in (400, 401, 422):
        upstream = Upstream(status)
        async with (
            served(upstream, tmp_path) as site,
            openai.AsyncOpenAI(base_url=f"{site.address}/v1", api_key="x") as sdk,
            anthropic.AsyncAnthropic(base_url=site.address, api_key="x") as claude,
        ):
            with pytest.raises(openai.APIStatusError):
                await sdk.responses.create(model="far", input="Why?")
            with pytest.raises(anthropic.APIStatusError) as caught:
                await claude.messages.create(
                    model="podium-mini",
                    max_tokens=100,
                    messages=[{"role": "user", "content": "Why?"}],
                )
            assert caught.value.request_id
            assert upstream.calls == 2


@pytest.mark.parametrize("status", [429, 500])
async def test_a_tier_fails_at_once_while_a_breaker_is_open(tmp_path: Path, status: int) -> None:
    upstream = Upstream(status)
    async with (
        served(upstream, tmp_path) as site,
        httpx.AsyncClient(base_url=site.address) as client,
    ):
        for _ in range(8):
            await client.post(CHAT, json=body(CHAT, "far"))
        calls = upstream.calls
        for model in MODELS:
            before = time.perf_counter()
            response = await client.post(CHAT, json=body(CHAT, model))
            assert time.perf_counter() - before < 1.0, "nobody waits for an open breaker"
            assert response.status_code == (429 if status == 429 else 502)
            assert "is tried again in" in response.json()["error"]["message"]
            assert 1 <= int(response.headers["retry-after"]) <= 5
        assert upstream.calls == calls


async def test_every_response_has_a_request_id(tmp_path: Path) -> None:
    async with (
        served(Upstream(), tmp_path) as site,
        httpx.AsyncClient(base_url=site.address) as client,
    ):
        seen = set()
        for path in (CHAT, RESPONSES, MESSAGES):
            for more in ({}, {"stream": True}, {"model": "nowhere"}):
                response = await client.post(path, json=body(path, "far") | more)
                seen.add(response.headers["request-id"])
                assert response.headers["x-request-id"] == response.headers["request-id"]
        for path in ("/v1/models", "/v1/models/nowhere", "/v1/nothing"):
            seen.add((await client.get(path)).headers["x-request-id"])
        assert len(seen) == 12
        refused = await client.post(MESSAGES, json=body(MESSAGES, "nowhere"))
        assert refused.json()["request_id"] == refused.headers["request-id"]
