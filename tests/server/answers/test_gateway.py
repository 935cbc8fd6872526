from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from podium.client.assembly import assemble
from podium.config import load
from podium.config.settings import DEFAULT_RUN_USD
from podium.core.budget import Budget
from podium.core.errors import AuthenticationFailed, RateLimited, RequestRefused, Unavailable
from podium.core.pool import Capability, WorkerProfile
from podium.core.request import Delta, Price, Reply, Request, ToolCall, ToolResult, Usage
from podium.engine.runner import Options
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.workers import Http, ScriptedWorker
from support.serving import PLAIN, application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
WHY = [{"role": "user", "content": "Why?"}]
USED = Usage(100, 10, 0, 0, 0)


def able() -> ScriptedWorker:
    capabilities: frozenset[Capability] = frozenset({"tools", "sampling", "json"})
    return ScriptedWorker(WorkerProfile(name="able", capabilities=capabilities), "yes")


async def test_everything_that_is_asked_reaches_the_worker() -> None:
    worker = able()
    body = {
        "model": "able",
        "messages": [{"role": "system", "content": "Be brief."}, *WHY],
        "temperature": 0.5,
        "max_completion_tokens": 77,
        "stop": ["END"],
        "seed": 3,
        "prompt_cache_key": "mine",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
    }
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json=body)
    assert response.status_code == 200
    request = worker.requests[-1]
    assert [message.text for message in request.messages] == ["Be brief.", "Why?"]
    assert (request.temperature, request.max_tokens, request.seed) == (0.5, 77, 3)
    assert request.cache_key == "mine"
    assert (request.stop, [tool.name for tool in request.tools]) == (("END",), ["look"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RateLimited("slow down", retry_after=70), 429),
        (RequestRefused("too long"), 400),
        (AuthenticationFailed("the key is wrong"), 500),
        (Unavailable("no connection"), 502),
    ],
)
async def test_a_workers_fault_has_a_status_of_its_own(error: Exception, status: int) -> None:
    async with serving(application([ScriptedWorker("solo", error)])) as served:  # type: ignore[arg-type]
        response = await served.ask(model="solo")
    assert response.status_code == status
    if status == 429:
        assert response.headers["retry-after"] == "70"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"podium": {"rounds": 2}}, "podium.rounds"),
        ({"podium": {"workflow": {"steps": []}}}, "podium.workflow"),
        ({"podium": {"exclude": ["solo"]}}, "podium.exclude"),
        ({"temperature": 0.5}, None),
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, None),
    ],
)
async def test_options_beyond_a_worker_are_refused(more: dict[str, Any], field: str) -> None:
    worker = ScriptedWorker("solo", "yes")
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json={"model": "solo", "messages": WHY, **more})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
    assert worker.calls == 0


async def test_a_conversation_that_is_not_kept_cannot_be_continued_from() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")], dialects=REAL)) as served:
        body = {"model": "solo", "input": "Why?", "previous_response_id": "resp_0123456789abcdef"}
        response = await served.client.post("/v1/responses", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "previous_response_id"


async def test_a_cap_on_money_needs_a_price() -> None:
    priced = ScriptedWorker("priced", "yes", price=Price(input=1, output=1))
    workers = [ScriptedWorker("unpriced", "yes"), priced]
    options = Options(budget=Budget(usd=1.0))
    async with serving(application(workers, options=options)) as served:
        assert (await served.ask(model="priced")).status_code == 200
        refused = await served.ask(model="unpriced")
    assert refused.status_code == 400
    assert "no price is known for unpriced" in refused.json()["message"]


@pytest.mark.parametrize(("sees", "words"), [(True, ""), (False, "[an image that you cannot see]")])
async def test_images_from_tools_do_not_end_a_conversation_with_a_text_model(
    sees: bool, words: str
) -> None:
    can: frozenset[Capability] = frozenset({"tools", "vision"} if sees else {"tools"})
    worker = ScriptedWorker(WorkerProfile(name="able", capabilities=can), "yes")
    picture = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    content = [{"type": "image", "source": picture}]
    body = {
        "model": "able",
        "max_tokens": 9,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [
            *WHY,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": content}],
            },
        ],
    }
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post("/v1/messages", json=body)
    assert response.status_code == 200
    (result,) = worker.requests[-1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert (result.text, len(result.images)) == (words, int(sees))


@pytest.mark.parametrize("model", ["able", "podium"])
async def test_a_message_says_which_stop_sequence_ended_it(model: str) -> None:
    capabilities: frozenset[Capability] = frozenset({"sampling"})
    profile = WorkerProfile(name="able", capabilities=capabilities)
    worker = ScriptedWorker(profile, Reply("one ", stop_sequence="END"))
    body = {"model": model, "max_tokens": 9, "stop_sequences": ["END"], "messages": WHY}
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post("/v1/messages", json=body)
    document = response.json()
    assert (document["stop_reason"], document["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize(("parallel", "reported"), [(True, ["a", "b"]), (False, ["a"])])
async def test_one_call_at_a_time_is_reported_where_it_is_demanded(
    parallel: bool, reported: list[str]
) -> None:
    calls = (ToolCall("1", "a", "{}"), ToolCall("2", "b", "{}"))
    profile = WorkerProfile(name="able", capabilities=frozenset({"tools"}))
    worker = ScriptedWorker(profile, Reply("", finish="tool", tool_calls=calls))
    body = {
        "model": "able",
        "messages": WHY,
        "parallel_tool_calls": parallel,
        "tools": [{"type": "function", "function": {"name": name}} for name in "ab"],
    }
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json=body)
    message = response.json()["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == reported
    assert worker.requests[-1].parallel_tools is parallel


@pytest.mark.parametrize("model", ["solo", "podium-mini"])
async def test_an_answer_says_what_it_cost(model: str) -> None:
    priced = ScriptedWorker("solo", "yes", price=Price(input=2.0, output=8.0), usage=USED)
    async with serving(application([priced], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json={"model": model, "messages": WHY})
    assert float(response.headers["x-podium-cost"]) == pytest.approx(2e-6 * 100 + 8e-6 * 10)


async def test_an_unknown_cost_is_not_reported() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json={"model": "solo", "messages": WHY})
    assert "x-podium-cost" not in response.headers


async def test_a_misspelt_exclusion_is_refused_with_the_names_that_there_are() -> None:
    solo = ScriptedWorker("solo", "yes")
    async with serving(application([solo])) as served:
        for model in ("solo", "podium"):
            refused = await served.ask(model=model, podium={"exclude": ["depseek"]})
            assert (refused.status_code, refused.json()["field"]) == (400, "podium.exclude")
            assert "there is scripted, solo" in refused.json()["message"]
    assert solo.calls == 0


FORM: Any = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}
ASKED_FOR_JSON: Any = {
    "model": "solo",
    "messages": [{"role": "user", "content": "How many?"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": FORM}},
}


def writes(*replies: str) -> ScriptedWorker:
    profile = WorkerProfile(name="solo", capabilities=frozenset({"json"}))
    return ScriptedWorker(profile, list(replies), price=Price(input=1.0, output=1.0))


@pytest.mark.parametrize("stream", [False, True])
async def test_json_that_does_not_fit_is_asked_for_once_more_and_both_are_paid_for(
    stream: bool,
) -> None:
    solo = writes('{"total": "three"}', '{"total": 3}')
    async with serving(application([solo], dialects={PLAIN: CHAT})) as served:
        response = await served.client.post(PLAIN, json={**ASKED_FOR_JSON, "stream": stream})
    assert response.status_code == 200
    assert "three" not in response.text, "what does not fit is not told"
    assert "total" in response.text
    assert solo.calls == 2
    assert "'three' is not of type 'integer'" in solo.requests[-1].messages[-1].text
    if not stream:
        assert response.json()["usage"]["completion_tokens"] == 4


async def test_a_worker_that_never_fits_the_schema_is_at_fault() -> None:
    solo = writes("three")
    async with serving(application([solo], dialects={PLAIN: CHAT})) as served:
        response = await served.client.post(PLAIN, json=ASKED_FOR_JSON)
    assert response.status_code == 502
    assert "asked twice for JSON that fits the schema" in response.json()["error"]["message"]
    assert solo.calls == 2


LOOK = {"type": "function", "function": {"name": "look", "parameters": {}}}


def streamed_arguments(body: str) -> list[str]:
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return [
        call["function"]["arguments"]
        for chunk in chunks
        for choice in chunk.get("choices", ())
        for call in choice["delta"].get("tool_calls", ())
    ]


@pytest.mark.parametrize("model", ["able", "podium"])
async def test_arguments_of_a_tool_are_streamed_as_they_come(model: str) -> None:
    call = ToolCall("c1", "look", '{"at": "the sky"}')
    profile = WorkerProfile(name="able", capabilities=frozenset({"tools"}))
    worker = ScriptedWorker(profile, Reply("", finish="tool", tool_calls=(call,)))
    body = {"model": model, "messages": WHY, "stream": True, "tools": [LOOK]}
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json=body)
    assert streamed_arguments(response.text) == ['{"at":', ' "the', ' sky"}']


async def test_a_reply_that_breaks_off_in_a_call_is_not_asked_for_again() -> None:
    class Breaking(ScriptedWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            self.calls += 1
            yield Delta("{", "tool_call", 0, "c1", "look")
            raise Unavailable("broken off")

    profile = WorkerProfile(name="able", capabilities=frozenset({"tools"}))
    worker = Breaking(profile, "")
    body = {"model": "able", "messages": WHY, "stream": True, "tools": [LOOK]}
    async with serving(application([worker], dialects=REAL)) as served:
        response = await served.client.post(PLAIN, json=body)
    assert worker.calls == 1
    assert '"error"' in response.text


def test_a_worker_by_its_name_has_no_default_cap_on_money(tmp_path: Path) -> None:
    text = '[[worker]]\nname = "able"\nprovider = "scripted"\noptions = { reply = "yes" }\n'
    text += "price = { input = 1, output = 10 }\n"
    path = tmp_path / "podium.toml"
    path.write_text(text, "utf-8")
    settings = load(path)
    assert settings.run_budget.usd == DEFAULT_RUN_USD
    assembly = assemble(settings, {}, Http())
    assert assembly.call_budget == settings.budget
    assert settings.budget.usd is None
