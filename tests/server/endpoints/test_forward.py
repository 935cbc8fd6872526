"""Embeddings, completions and moderations pass through to a worker by its own name."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from podium.core.budget import Budget
from podium.core.errors import Unavailable
from podium.core.pool import WorkerProfile
from podium.core.request import Price
from podium.core.worker import Worker
from podium.engine.guardrails import Guardrail, Redaction
from podium.engine.runner import Options
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.workers import Endpoint, Http, ScriptedWorker
from podium.workers.balanced import BalancedWorker, Deployment
from podium.workers.chat import CompatibleWorker
from podium.workers.fields import Document
from podium.workers.http import HttpCall
from support.serving import application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
VECTOR = {"object": "list", "model": "e-1", "data": [], "usage": {"prompt_tokens": 4}}
USED = {"prompt_tokens": 4, "completion_tokens": 2}
WRITTEN = {"model": "m-1", "choices": [{"text": "yes"}], "usage": USED}
EMBED = {"model": "able", "input": ["a", "b"]}
COMPLETE = {"model": "able", "prompt": "a"}


class Upstream(Http):
    """Answers with these documents, an error first where there is one."""

    def __init__(self, *documents: Any) -> None:
        super().__init__()
        self.documents = list(documents)
        self.calls: list[HttpCall] = []

    async def post(self, call: HttpCall) -> Document:
        self.calls.append(call)
        document: Document | Exception = self.documents.pop(0)
        if isinstance(document, Exception):
            raise document
        return document

    async def events(
        self, call: HttpCall, finished: Callable[[], bool]
    ) -> AsyncGenerator[Document]:
        self.calls.append(call)
        for document in self.documents:
            yield document


def able(upstream: Upstream) -> CompatibleWorker:
    price = Price(input=1.0, output=10.0)
    profile = WorkerProfile(name="able", model="real", provider="openai", price=price)
    return CompatibleWorker(profile, Endpoint("http://up/v1", "sk-1", {}, {"top_k": 1}), upstream)


async def post(upstream: Upstream, path: str, body: Any, **more: Any) -> Any:
    workers: list[Worker] = [able(upstream), ScriptedWorker("other", "yes")]
    async with serving(application(workers, dialects=REAL, **more)) as served:
        return await served.client.post(path, json=body)


async def test_embeddings_pass_through_with_their_cost() -> None:
    upstream = Upstream(VECTOR)
    response = await post(upstream, "/v1/embeddings", {**EMBED, "dimensions": 3})
    assert response.json() == VECTOR | {"model": "able"}
    call = upstream.calls[0]
    assert (call.url, call.headers["Authorization"]) == ("http://up/v1/embeddings", "Bearer sk-1")
    assert call.body == {"model": "real", "input": ["a", "b"], "dimensions": 3}
    assert float(response.headers["x-podium-cost"]) == pytest.approx(4e-6)


async def test_a_failed_call_is_made_again() -> None:
    upstream = Upstream(Unavailable("no"), VECTOR)
    response = await post(upstream, "/v1/embeddings", EMBED)
    assert (response.status_code, len(upstream.calls)) == (200, 2)


async def test_embeddings_pass_through_to_a_deployment_that_answers() -> None:
    down, up = Upstream(Unavailable("no")), Upstream(VECTOR)
    deployments = [Deployment("a", able(down)), Deployment("b", able(up))]
    worker = BalancedWorker(able(up).profile, deployments, "weighted")
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post("/v1/embeddings", json=EMBED)
    assert response.json() == VECTOR | {"model": "able"}
    assert (len(down.calls), len(up.calls)) == (1, 1)
    assert up.calls[0].body == {"model": "real", "input": ["a", "b"]}


async def test_completions_of_a_deployment_are_streamed() -> None:
    upstream = Upstream({"choices": [{"text": "yes"}], "usage": USED})
    worker = BalancedWorker(able(upstream).profile, [Deployment("a", able(upstream))])
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post("/v1/completions", json={**COMPLETE, "stream": True})
    assert '"text": "yes"' in response.text
    assert "[DONE]" in response.text


async def test_moderations_pass_through() -> None:
    upstream = Upstream({"results": []})
    response = await post(upstream, "/v1/moderations", {"model": "able", "input": "a"})
    assert response.json() == {"results": []}


@pytest.mark.parametrize("shown", [True, False])
async def test_completions_are_streamed_and_their_usage_is_counted(shown: bool) -> None:
    counted = {"choices": [], "usage": USED}
    upstream = Upstream({"choices": [{"text": "y"}]}, {"choices": [{"text": "es"}]}, counted)
    options = {"stream_options": {"include_usage": True}} if shown else {}
    body = {**COMPLETE, "stream": True, **options}
    workers = [able(upstream)]
    async with serving(application(workers, dialects=REAL)) as served:
        response = await served.client.post("/v1/completions", json=body)
        metrics = (await served.client.get("/metrics")).text
    lines = [line[6:] for line in response.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert "".join(event["choices"][0]["text"] for event in events[:2]) == "yes"
    assert len(events) == 2 + shown
    assert {event["model"] for event in events} == {"able"}
    assert upstream.calls[0].body["stream_options"] == {"include_usage": True}
    assert 'podium_tokens_total{kind="output",model="able"} 2.0' in metrics


async def test_every_output_of_completions_is_reserved() -> None:
    upstream = Upstream(WRITTEN)
    body = {**COMPLETE, "prompt": ["a", "b"], "n": 2, "best_of": 5, "max_tokens": 1000}
    options = Options(budget=Budget(usd=0.02))
    response = await post(upstream, "/v1/completions", body, options=options)
    assert response.status_code == 200
    most = upstream.calls[0].body["max_tokens"]
    assert 190 <= most <= 200, "a tenth of what the money buys"


async def test_an_error_of_the_worker_keeps_its_meaning() -> None:
    upstream = Upstream({"error": {"message": "no such model", "code": 404}})
    response = await post(upstream, "/v1/completions", {**COMPLETE, "stream": True})
    assert response.status_code >= 400


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/completions", "/v1/moderations"])
@pytest.mark.parametrize("model", ["podium", "other"])
async def test_others_say_what_is_supported(path: str, model: str) -> None:
    response = await post(Upstream(), path, {"model": model, "input": "a"})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "model")
    assert f"POST {path} is not supported by '{model}'" in error["message"]
    assert "/v1/chat/completions" in error["message"]


async def test_guardrails_are_not_passed_by() -> None:
    guard = Guardrail("privacy", Redaction(), stages=("question",))
    response = await post(Upstream(), "/v1/embeddings", EMBED, guardrails=[guard])
    assert response.status_code == 400
    assert "guardrails" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/embeddings", {"input": "a"}, "model"),
        ("/v1/embeddings", {**EMBED, "stream": True}, "stream"),
        ("/v1/completions", {**COMPLETE, "n": 1000}, "n"),
        ("/v1/completions", {**COMPLETE, "stream_options": 1}, "stream_options"),
        ("/v1/completions", {**COMPLETE, "max_tokens": "many"}, "max_tokens"),
    ],
)
async def test_quota_settings_are_validated(path: str, body: Any, field: str) -> None:
    response = await post(Upstream(), path, body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("path", ["/v1/files", "/v1/audio/speech"])
async def test_an_endpoint_that_does_not_exist_says_which_do(path: str) -> None:
    response = await post(Upstream(), path, {})
    assert response.status_code == 404
    assert "not supported" in response.json()["error"]["message"]
    assert "/v1/embeddings" in response.json()["error"]["message"]
