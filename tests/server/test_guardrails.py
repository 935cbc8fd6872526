"""Guardrails in a server: every dialect, runs and single workers, whole and streamed."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from podium.config import ServerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Reply, Request, ToolCall, Usage
from podium.core.worker import Worker
from podium.engine.guardrails import (
    Block,
    Guardrail,
    GuardrailInput,
    Pass,
    Redact,
    Redaction,
    Verdict,
    Verify,
)
from podium.engine.runner import Options
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.dialects.responses import RESPONSES
from podium.server.logs import LOGGER
from podium.store import open_store
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.serving import Served, application, serving

REAL: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
MAIL = "ada@example.com"
DIALECTS = tuple(REAL)
WHO = ("podium-ultra", "echo")


class Echo(Worker):
    """Says what it was asked, a few characters at a time."""

    def __init__(self) -> None:
        self.profile = WorkerProfile(name="echo")
        self.asked: list[str] = []

    async def reply(self, request: Request) -> Reply:
        text = request.messages[-1].text
        self.asked.append(text)
        return Reply(f"You said: {text}", Usage(5, 5, 0, 0, 0))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        reply = await self.reply(request)
        for start in range(0, len(reply.text), 3):
            yield Delta(reply.text[start : start + 3])
        yield reply


def body(dialect: str, model: str, question: str, *, stream: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": model, "stream": stream}
    if dialect == "/v1/responses":
        return {**asked, "input": question}
    return {**asked, "max_tokens": 100, "messages": [{"role": "user", "content": question}]}


def text_of(dialect: str, answer: dict[str, Any]) -> str:
    match dialect:
        case "/v1/chat/completions":
            return str(answer["choices"][0]["message"]["content"])
        case "/v1/messages":
            return "".join(block["text"] for block in answer["content"] if "text" in block)
        case _:
            parts = [part for item in answer["output"] for part in item.get("content", ())]
            return "".join(part["text"] for part in parts)


def finish_of(dialect: str, answer: dict[str, Any]) -> object:
    match dialect:
        case "/v1/chat/completions":
            return answer["choices"][0]["finish_reason"]
        case "/v1/messages":
            return answer["stop_reason"]
        case _:
            return (answer["status"], (answer["incomplete_details"] or {}).get("reason"))


COMPLETE = {
    "/v1/chat/completions": "stop",
    "/v1/messages": "end_turn",
    "/v1/responses": ("completed", None),
}
REFUSED = {
    "/v1/chat/completions": "content_filter",
    "/v1/messages": "refusal",
    "/v1/responses": ("incomplete", "content_filter"),
}


def streamed(dialect: str, raw: str) -> tuple[list[str], object]:
    """The pieces of the answer's text, and why it ended."""
    events = [
        json.loads(line.removeprefix("data: "))
        for line in raw.splitlines()
        if line.startswith("data: ") and "[DONE]" not in line
    ]
    match dialect:
        case "/v1/chat/completions":
            choices = [choice for event in events for choice in event["choices"]]
            texts = [choice["delta"].get("content") for choice in choices]
            reasons = [choice["finish_reason"] for choice in choices]
            return [text for text in texts if text], reasons[-1]
        case "/v1/messages":
            deltas = [event["delta"] for event in events if "delta" in event]
            texts = [delta["text"] for delta in deltas if "text" in delta]
            return texts, deltas[-1]["stop_reason"]
        case _:
            kind = "response.output_text.delta"
            texts = [event["delta"] for event in events if event["type"] == kind]
            return texts, finish_of(dialect, events[-1]["response"])


async def ask(served: Served, dialect: str, model: str, question: str) -> dict[str, Any]:
    asked = body(dialect, model, question, stream=False)
    response = await served.client.post(dialect, json=asked)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def stream(served: Served, dialect: str, model: str, question: str) -> tuple[list[str], Any]:
    asked = body(dialect, model, question, stream=True)
    response = await served.client.post(dialect, json=asked)
    assert response.status_code == 200, response.text
    return streamed(dialect, response.text)


def no_swearing(checked: GuardrailInput) -> Verdict:
    return Block("it is rude") if "damn" in checked.text else Pass()


@pytest.mark.parametrize("model", WHO)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("where", ["question", "reply", "answer"])
async def test_blocked_answers_are_refusals_of_the_dialect(
    dialect: str, model: str, where: str
) -> None:
    echo = Echo()
    guard = Guardrail("manners", no_swearing, stages=(where,))  # type: ignore[arg-type]
    app = application([echo], dialects=REAL, guardrails=[guard])
    async with serving(app) as served:
        whole = await ask(served, dialect, model, "damn it")
        assert (text_of(dialect, whole), finish_of(dialect, whole)) == ("", REFUSED[dialect])
        pieces, why = await stream(served, dialect, model, "damn it")
        assert (pieces, why) == ([], REFUSED[dialect])
        metrics = (await served.client.get("/metrics")).text
    assert bool(echo.asked) == (where != "question")
    counted = f'{{action="blocked",guardrail="manners",stage="{where}"}} 2'
    assert f"podium_guardrails_total{counted}" in metrics


@pytest.mark.parametrize("model", WHO)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nothing_of_an_answer_reaches_the_client_before_it_was_checked(
    dialect: str, model: str
) -> None:
    def redact(checked: GuardrailInput) -> Verdict:
        return Redact(checked.text.replace("secret", "[…]"), "a word")

    guard = Guardrail("words", redact, stages=("answer",))
    app = application([Echo()], dialects=REAL, guardrails=[guard])
    async with serving(app) as served:
        pieces, _ = await stream(served, dialect, model, "a secret")
        assert pieces == ["You said: a […]"]
        assert text_of(dialect, await ask(served, dialect, model, "a secret")) == pieces[0]


@pytest.mark.parametrize("model", WHO)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_only_the_client_gets_the_values_back(
    dialect: str, model: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    echo = Echo()
    guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
    store = await open_store(tmp_path / "runs.db")
    app = application(
        [echo],
        dialects=REAL,
        guardrails=[guard],
        store=store,
        settings=ServerSettings(log_prompts=True),
    )
    LOGGER.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, LOGGER.name):
            async with serving(app) as served:
                whole = await ask(served, dialect, model, f"mail {MAIL}")
                assert text_of(dialect, whole) == f"You said: mail {MAIL}"
                assert finish_of(dialect, whole) == COMPLETE[dialect]
                pieces, why = await stream(served, dialect, model, f"mail {MAIL} now")
                assert why == COMPLETE[dialect]
                assert "".join(pieces) == f"You said: mail {MAIL} now"
                assert len(pieces) > 2
    finally:
        LOGGER.removeHandler(caplog.handler)
    again = await open_store(tmp_path / "runs.db")
    kept = [await again.load(run.id) for run in await again.list()]
    await again.close()
    assert echo.asked == ["mail [e-mail 1]", "mail [e-mail 1] now"]
    assert MAIL not in repr(kept)
    assert len(kept) == (2 if model != "echo" or dialect == "/v1/responses" else 0)
    assert MAIL not in repr([vars(record) for record in caplog.records])


async def test_a_single_workers_reply_is_looked_at_before_it_is_held_against_a_schema() -> None:
    replies = [json.dumps({"to": MAIL}), json.dumps([MAIL])]
    profile = WorkerProfile(name="solo", capabilities=frozenset({"json"}))
    schema = {"type": "object", "properties": {"to": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    path = "/v1/chat/completions"
    asked = {**body(path, "solo", "who?", stream=False), "response_format": form}
    solo = ScriptedWorker(profile, replies)
    redact = Guardrail("privacy", Redaction(), stages=("reply",))
    async with serving(application([solo], dialects=REAL, guardrails=[redact])) as served:
        response = await served.client.post(path, json=asked)
    assert response.status_code == 502
    assert "at the top: it breaks the rule 'type'" in response.json()["error"]["message"]
    assert MAIL not in response.text
    assert "[e-mail 1]" in repr(solo.requests[-1].messages)

    solo = ScriptedWorker(profile, replies)
    block = Guardrail("no-mail", Redaction(action="block"), stages=("answer",))
    async with serving(application([solo], dialects=REAL, guardrails=[block])) as served:
        response = await served.client.post(path, json=asked)
    assert finish_of(path, response.json()) == "content_filter"
    assert solo.calls == 1


async def test_a_plan_for_a_blocked_question_is_refused() -> None:
    guard = Guardrail("manners", no_swearing)
    async with serving(application([Echo()], dialects=REAL, guardrails=[guard])) as served:
        response = await served.client.post("/v1/plan", json={"question": "damn it"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "content_filter"


async def test_a_single_workers_verifier_is_paid_for_and_obeys_exclusions() -> None:
    judge = ScriptedWorker("judge", "no", usage=Usage(7, 1, 0, 0, 0))

    def ask_judge(checked: GuardrailInput) -> Verdict:
        return Verify("judge", checked.text, lambda said: Block(said))

    guard = Guardrail("judged", ask_judge, stages=("answer",))
    app = application([Echo(), judge], dialects=REAL, guardrails=[guard], options=Options())
    async with serving(app) as served:
        answer = await ask(served, "/v1/chat/completions", "echo", "hello")
        assert answer["usage"]["prompt_tokens"] == 12
        assert judge.calls == 1
        excluding = body("/v1/chat/completions", "echo", "hello", stream=False)
        excluding["podium"] = {"exclude": ["judge"]}
        response = await served.client.post("/v1/chat/completions", json=excluding)
        assert response.json()["choices"][0]["finish_reason"] == "content_filter"
        assert judge.calls == 1


@pytest.mark.parametrize("model", ["podium-ultra", "able"])
async def test_tools_of_the_client_are_called_with_their_own_values(
    model: str, tmp_path: Path
) -> None:
    seen: list[str] = []

    def act(request: Request) -> Reply:
        seen.append(repr(request.messages))
        if request.messages[-1].role == "tool":
            return Reply("Sent to [e-mail 1].", Usage(1, 1, 0, 0, 0))
        call = ToolCall("c1", "send", json.dumps({"to": "[e-mail 1]"}))
        return Reply("", Usage(1, 1, 0, 0, 0), finish="tool", tool_calls=(call,))

    profile = WorkerProfile(name="able", capabilities=frozenset({"tools"}))
    guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
    worker, store = ScriptedWorker(profile, act), await open_store(tmp_path / "runs.db")
    app = application([worker], dialects=REAL, guardrails=[guard], store=store)
    tools = [{"type": "function", "function": {"name": "send", "parameters": {}}}]
    asked: list[dict[str, Any]] = [{"role": "user", "content": f"mail {MAIL}"}]
    async with serving(app) as served:
        path = "/v1/chat/completions"
        body = {"model": model, "messages": asked, "tools": tools}
        first = (await served.client.post(path, json=body)).json()["choices"][0]["message"]
        (call,) = first["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"to": MAIL}
        fields = {"role": "tool", "tool_call_id": call["id"], "content": f"sent to {MAIL}"}
        body = {"model": model, "messages": [*asked, first, fields], "tools": tools}
        response = await served.client.post(path, json=body)
        assert response.status_code == 200, response.text
        last = response.json()["choices"][0]["message"]
        assert last["content"] == f"Sent to {MAIL}."
    assert len(seen) == 2
    assert MAIL not in repr(seen)


@pytest.mark.parametrize("model", ["podium-ultra", "echo"])
async def test_a_verifier_that_a_key_excludes_sees_nothing(model: str, tmp_path: Path) -> None:
    judge = ScriptedWorker("judge", "yes")

    def ask_judge(checked: GuardrailInput) -> Verdict:
        return Verify("judge", checked.text, lambda said: Pass(said))

    store = await SqlRunStore.open(tmp_path / "runs.db")
    made = make_key("Ada", Rules(exclude=frozenset({"judge"})))
    await store.keys.add(made.key)
    workers: list[Worker] = [Echo(), judge]
    access = KeyAuthenticator(store.keys, Pool(tuple(worker.profile for worker in workers)))
    guard = Guardrail("judged", ask_judge, stages=("answer",))
    app = application(workers, dialects=REAL, guardrails=[guard], store=store, access=access)
    async with serving(app) as served:
        served.client.headers["Authorization"] = f"Bearer {made.token}"
        answer = await ask(served, "/v1/chat/completions", model, "hello")
        await access.close()
    assert answer["choices"][0]["finish_reason"] == "content_filter"
    assert judge.calls == 0
