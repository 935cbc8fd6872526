"""A worker by its own name gets fields of its own format unchanged; its choices come back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from podium.core.pool import WorkerProfile
from podium.core.request import LOGPROBS, Delta, Reply, Request
from podium.engine.guardrails import Guardrail, Redaction
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.workers import ScriptedWorker
from podium.workers.hosted import Wire
from support.serving import PLAIN, application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
WHY = [{"role": "user", "content": "Why?"}]
ASKED = {"model": "able", "messages": WHY}
CHOICES = tuple(
    {
        "index": index,
        "message": {"role": "assistant", "content": "yes"},
        "logprobs": {"content": [{"token": "yes", "logprob": -0.5}]},
        "finish_reason": "stop",
    }
    for index in range(2)
)


class Choosing(ScriptedWorker):
    """A worker whose provider speaks a format of its own, and answers twice."""

    def __init__(self, wire: Wire | None = "chat", *, streams: bool = True) -> None:
        super().__init__(WorkerProfile(name="able", capabilities=frozenset({"json"})), "yes")
        self.wire = wire
        self._streams = streams
        self.choices: tuple[dict[str, Any], ...] = CHOICES

    def takes_extra(self, name: str) -> bool:
        return name != "owned"

    async def reply(self, request: Request) -> Reply:
        await super().reply(request)
        return Reply("yes", choices=self.choices if request.wants_choices else ())

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        if not self._streams or not request.wants_choices:
            yield await self.reply(request)
            return
        for index in (0, 1):
            piece = {"index": index, "delta": {"content": "yes"}, "finish_reason": "stop"}
            yield Delta("", "choices", choices=(piece,))
        yield await super().reply(request)


async def post(worker: Choosing, body: dict[str, Any], path: str = PLAIN, **more: Any) -> Any:
    async with serving(application([worker], dialects=REAL, **more)) as served:
        return await served.client.post(path, json=body)


def chunks(body: str) -> list[Any]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]


async def test_fields_of_its_own_format_reach_the_worker_unchanged() -> None:
    extra = {
        "logit_bias": {"50256": -100},
        "presence_penalty": 0.5,
        "min_p": 0.05,
        "reasoning": {"effort": "low"},
        "something_new": {"a": [1]},
    }
    worker = Choosing()
    response = await post(worker, {**ASKED, **extra})
    assert worker.requests[-1].extra == extra
    assert "x-podium-ignored" not in response.headers


@pytest.mark.parametrize(
    ("path", "wire", "body"),
    [
        ("/v1/responses", "responses", {"model": "able", "input": "Why?", "top_logprobs": 3}),
        ("/v1/messages", "messages", {**ASKED, "max_tokens": 9, "top_k": 4}),
    ],
)
async def test_every_format_is_passed_on(path: str, wire: Wire, body: dict[str, Any]) -> None:
    worker = Choosing(wire)
    assert (await post(worker, body, path)).status_code == 200
    name = list(body)[-1]
    assert worker.requests[-1].extra == {name: body[name]}


@pytest.mark.parametrize("wire", ["messages", None])
async def test_a_worker_of_another_format_does_not_get_them(wire: Wire | None) -> None:
    worker = Choosing(wire)
    response = await post(worker, {**ASKED, "top_k": 4})
    assert worker.requests[-1].extra is None
    assert response.headers["x-podium-ignored"] == "top_k"
    refused = await post(worker, {**ASKED, "n": 2})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")


async def test_reserved_and_priced_options_are_ignored_and_reported() -> None:
    worker = Choosing()
    extra = {"models": ["dear"], "service_tier": "priority", "owned": 1, "top_k": 4}
    response = await post(worker, {**ASKED, **extra})
    assert worker.requests[-1].extra == {"top_k": 4}
    assert response.headers["x-podium-ignored"] == "models, service_tier, owned"


@pytest.mark.parametrize("field", ["functions", "audio", "web_search_options"])
async def test_lossy_values_are_refused(field: str) -> None:
    response = await post(Choosing(), {**ASKED, field: {"a": 1}})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


async def test_several_answers_and_log_probabilities_come_back() -> None:
    response = await post(Choosing(), {**ASKED, "n": 2, "logprobs": True})
    assert response.json()["choices"] == list(CHOICES)


async def test_several_answers_are_streamed_as_the_worker_wrote_them() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = await post(Choosing(), {**ASKED, "n": 2, **options})
    found = [choice for chunk in chunks(response.text) for choice in chunk["choices"]]
    assert [(choice["index"], choice["finish_reason"]) for choice in found] == [
        (0, None),  # the role
        (0, "stop"),
        (1, "stop"),
    ]
    assert chunks(response.text)[-1]["usage"] is not None


async def test_answers_that_come_whole_are_streamed_all_the_same() -> None:
    response = await post(Choosing(streams=False), {**ASKED, "n": 2, "stream": True})
    last = chunks(response.text)[-1]["choices"]
    assert [choice["delta"]["content"] for choice in last] == ["yes", "yes"]
    assert all("message" not in choice for choice in last)


@pytest.mark.parametrize("number", [0, 129, "2", True])
async def test_an_impossible_number_of_answers_is_refused(number: Any) -> None:
    response = await post(Choosing(), {**ASKED, "n": number})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


async def test_guardrails_allow_one_answer_only() -> None:
    guard = Guardrail("privacy", Redaction(), stages=("reply",))
    refused = await post(Choosing(), {**ASKED, "n": 2}, guardrails=[guard])
    assert refused.status_code == 400
    assert "guardrails" in refused.json()["error"]["message"]
    assert (await post(Choosing(), {**ASKED, "top_k": 4}, guardrails=[guard])).status_code == 200


async def test_a_tier_refuses_several_answers() -> None:
    response = await post(Choosing(), {"model": "podium", "messages": WHY, "n": 2})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_of_responses_come_back(stream: bool) -> None:
    entry = {"token": "yes", "logprob": -0.5, "bytes": [121], "top_logprobs": []}
    worker = Choosing("responses", streams=False)
    worker.choices = ({"type": "output_text", "text": "yes", "logprobs": [entry]},)
    body = {"model": "able", "input": "Why?", "include": [LOGPROBS], "stream": stream}
    response = await post(worker, body, "/v1/responses")
    assert worker.requests[-1].extra == {"include": [LOGPROBS]}
    document = chunks(response.text)[-1]["response"] if stream else response.json()
    assert document["output"][0]["content"][0]["logprobs"] == [entry]
    refused = await post(worker, body | {"model": "podium"}, "/v1/responses")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "include")
