"""Keys that a server does not know: a header names them, and `strict` refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from podium.config import ServerSettings
from podium.core.pool import WorkerProfile
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.workers import ScriptedWorker
from support.serving import application, serving

DIALECTS = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
CHAT_BODY = {"model": "podium", "messages": [{"role": "user", "content": "Why?", "id": "m1"}]}
HEADER = "X-Podium-Ignored"
BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", CHAT_BODY | {"top_k": 4}, "top_k, messages.0.id"),
    (
        "/v1/responses",
        {"model": "podium", "input": [{"role": "user", "content": "Why?", "y": 2}], "seed": 1},
        "seed, input.0.y",
    ),
    ("/v1/messages", CHAT_BODY | {"max_tokens": 9, "top_k": 4}, "top_k, messages.0.id"),
]


async def post(path: str, body: dict[str, Any], *, strict: bool = False) -> Any:
    settings = ServerSettings(strict=strict)
    app = application([ScriptedWorker("solo", "Because.")], dialects=DIALECTS, settings=settings)
    async with serving(app) as served:
        return await served.client.post(path, json=body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "ignored"), BODIES)
async def test_a_header_names_what_was_ignored(
    path: str, body: dict[str, Any], ignored: str, stream: bool
) -> None:
    response = await post(path, body | {"stream": stream})
    assert response.status_code == 200
    assert "Because." in response.text
    assert response.headers[HEADER] == ignored


@pytest.mark.parametrize(("path", "body", "ignored"), BODIES)
async def test_a_strict_server_refuses_it(path: str, body: dict[str, Any], ignored: str) -> None:
    response = await post(path, body, strict=True)
    first = ignored.partition(",")[0]
    assert response.status_code == 400
    assert f"unexpected option '{first}'" in response.json()["error"]["message"]
    assert HEADER not in response.headers


async def test_a_strict_server_names_the_nearest_key() -> None:
    body = CHAT_BODY | {"messages": [{"role": "user", "content": "Why?", "nam": "ada"}]}
    response = await post("/v1/chat/completions", body, strict=True)
    assert "did you mean 'name'?" in response.json()["error"]["message"]


@pytest.mark.parametrize("strict", [False, True])
async def test_nothing_is_said_where_nothing_was_ignored(strict: bool) -> None:
    body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}], "n": 1}
    response = await post("/v1/chat/completions", body, strict=strict)
    assert response.status_code == 200
    assert HEADER not in response.headers


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}),
        ("/v1/responses", {"input": "Why?"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 9}),
    ],
)
async def test_sampling_is_ignored_where_no_worker_of_the_pool_accepts_it(
    path: str, question: dict[str, Any]
) -> None:
    profile = WorkerProfile(name="solo", provider="scripted", capabilities=frozenset())

    async def ask(model: str, *, strict: bool = False) -> Any:
        settings = ServerSettings(strict=strict)
        worker = ScriptedWorker(profile, "Because.")
        body = question | {"model": model, "temperature": 0, "top_p": 0.5}
        async with serving(application([worker], dialects=DIALECTS, settings=settings)) as served:
            return await served.client.post(path, json=body)

    answered = await ask("podium")
    assert (answered.status_code, answered.headers[HEADER]) == (200, "temperature, top_p")
    assert "Because." in answered.text
    for refused in (await ask("solo"), await ask("podium", strict=True)):
        assert refused.status_code == 400
        assert "accept temperature, top_p or seed" in refused.json()["error"]["message"]


async def test_a_hostile_key_adds_no_header() -> None:
    body = CHAT_BODY | {"x\r\nSet-Cookie: a=b": 1, "é, ü": 2}
    response = await post("/v1/chat/completions", body)
    assert "Set-Cookie" not in response.headers
    assert response.headers[HEADER] == (
        "x%0D%0ASet-Cookie%3A%20a%3Db, %C3%A9%2C%20%C3%BC, messages.0.id"
    )


async def test_the_header_is_at_most_a_kilobyte() -> None:
    body = CHAT_BODY | {f"key{n}\0": n for n in range(5000)}
    header = (await post("/v1/chat/completions", body)).headers[HEADER]
    assert len(header) <= 1024
    assert header.endswith(", ...")


@pytest.mark.parametrize("fields", [{"n": 2}, {"logprobs": True}, {"logit_bias": {"1": 2}}])
async def test_tiers_refuse_options_that_must_not_be_ignored(fields: dict[str, Any]) -> None:
    response = await post("/v1/chat/completions", CHAT_BODY | fields)
    (name,) = fields
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name


async def test_an_unknown_option_of_podium_is_refused_in_any_case() -> None:
    response = await post("/v1/chat/completions", CHAT_BODY | {"podium": {"budgets": {}}})
    assert response.status_code == 400
    assert "did you mean 'budget'?" in response.json()["error"]["message"]
