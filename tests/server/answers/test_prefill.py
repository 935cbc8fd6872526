"""Answers that continue the assistant's last message, and documents on their way to workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium.core.pool import WorkerProfile
from podium.core.request import assistant, user
from podium.engine.requests import prompt_text
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.workers import ScriptedWorker
from support.serving import application, serving

ASKED = {"role": "user", "content": "What is the capital?"}
BEGUN = {"role": "assistant", "content": "Paris is"}
REST = " the capital."
CONTINUE = (assistant("Paris is"), user(prompt_text("continue.txt")))


async def ask(worker: ScriptedWorker, *, stream: bool = False, **fields: Any) -> Any:
    body = {"max_tokens": 50, "messages": [ASKED, BEGUN], "stream": stream, **fields}
    dialects = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
    app = application([worker], dialects=dialects)
    async with serving(app) as served:
        return await served.client.post("/v1/messages", json=body)


def text_of(response: Any) -> str:
    """Return the text of a message or of a stream."""
    if response.headers["content-type"] == "application/json":
        return str(response.json()["content"][0]["text"])
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    deltas = [json.loads(line).get("delta", {}) for line in lines]
    return "".join(delta.get("text", "") for delta in deltas)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["solo", "podium-mini"])
@pytest.mark.parametrize("said", [f"Paris is{REST}", REST])
async def test_the_answer_does_not_repeat_its_start(model: str, stream: bool, said: str) -> None:
    worker = ScriptedWorker("solo", said)
    response = await ask(worker, model=model, stream=stream)
    assert text_of(response) == REST


@pytest.mark.parametrize("model", ["solo", "podium-mini"])
async def test_a_worker_that_can_continue_a_reply_is_given_its_start(model: str) -> None:
    profile = WorkerProfile(name="solo", capabilities=frozenset({"prefill"}))
    worker = ScriptedWorker(profile, "Paris is the capital.")
    response = await ask(worker, model=model)
    assert text_of(response) == REST
    (request,) = worker.requests
    assert request.prefill == "Paris is"
    assert request.messages[-1].text == "What is the capital?"


@pytest.mark.parametrize("model", ["solo", "podium-mini"])
async def test_another_worker_is_asked_to_continue(model: str) -> None:
    worker = ScriptedWorker("solo", REST)
    await ask(worker, model=model)
    (request,) = worker.requests
    assert request.prefill == ""
    assert request.messages[-2:] == CONTINUE


async def test_a_document_reaches_a_tier_as_text() -> None:
    worker = ScriptedWorker("solo", "Tom.")
    source = {"type": "text", "media_type": "text/plain", "data": "The cat is Tom."}
    document = {"type": "document", "source": source, "title": "Cats"}
    content = [document, {"type": "text", "text": "Who?"}]
    await ask(worker, model="podium-mini", messages=[{"role": "user", "content": content}])
    assert worker.requests[0].messages[-1].text == "[document: Cats]\nThe cat is Tom.\n\nWho?"
