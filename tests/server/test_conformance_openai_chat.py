"""The openai SDK as it is, speaking Chat Completions with the server as it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from podium.core.errors import Unavailable
from podium.core.request import Delta, Image, Reply, Request, Thinking
from podium.store.keys import Allowance, Rules
from support.chat_sdk import checked, chunks
from support.conformance import (
    PICTURE_URL,
    PIXEL,
    TWO_STEPS,
    ULTRA,
    WHY,
    Sum,
    openai_client,
    results_of,
    run_of,
)
from support.loopback import PATIENCE, USED, Runtime, calling

CLOCK: Final[ChatCompletionToolParam] = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "what time it is",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}
NO_SCHEMA: Final = {"name": "odd", "schema": {"type": 3}}


def posted(runtime: Runtime, **body: Any) -> httpx.Response:
    """What is really sent over the wire, as no SDK would show it."""
    headers = {"Authorization": f"Bearer {runtime.token}"}
    return runtime.http.post(
        "/v1/chat/completions", json={"model": ULTRA, "messages": WHY} | body, headers=headers
    )


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "podium", "solver"])
def test_a_question_is_answered(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    for worker in runtime.workers:
        worker.says("Because.")
    response = sdk.chat.completions.create(model=model, messages=WHY)
    assert response.choices[0].message.content == "Because."
    assert response.choices[0].finish_reason == "stop"
    assert response.model == model


async def test_a_question_is_answered_to_the_async_client(
    async_sdk: openai.AsyncOpenAI,
) -> None:
    response = await async_sdk.chat.completions.create(model=ULTRA, messages=WHY)
    assert response.choices[0].message.content == "solver says so"


def test_a_completion_fits_the_sdks_types_to_the_letter(runtime: Runtime) -> None:
    assert checked(posted(runtime).json()).choices[0].message.content == "solver says so"


def test_usage_sums_every_call_and_reports_the_planners_part(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.plans(*TWO_STEPS)
    response = sdk.chat.completions.create(model=ULTRA, messages=WHY)
    assert response.usage is not None
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (300, 30)
    details = response.usage.to_dict()
    assert details["prompt_tokens_details"] == {
        "cached_tokens": 120,
        "cache_write_tokens": 0,
        "orchestration_input_tokens": 100,
        "orchestration_input_cached_tokens": 40,
    }
    assert details["completion_tokens_details"] == {
        "reasoning_tokens": 12,
        "orchestration_output_tokens": 10,
    }


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_stream_comes_in_pieces_and_ends_with_usage(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.says("one two three")
    stream = sdk.chat.completions.create(
        model=model, messages=WHY, stream=True, stream_options={"include_usage": True}
    )
    heard = list(stream)
    words = [chunk.choices[0].delta.content for chunk in heard if chunk.choices]
    assert [word for word in words if word] == ["one", " two", " three"]
    assert heard[-1].usage is not None
    assert heard[-1].usage.prompt_tokens == (200 if model == ULTRA else 100)
    assert {chunk.id for chunk in heard} == {heard[0].id}


async def test_a_stream_is_put_together_by_the_async_client(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI
) -> None:
    runtime.solver.says("one two three")
    async with async_sdk.chat.completions.stream(model=ULTRA, messages=WHY) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "one two three"


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_the_first_words_come_before_the_last_are_there(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.hangs_after("one", " two")
    with sdk.chat.completions.create(model=model, messages=WHY, stream=True) as stream:
        heard = ""
        for chunk in stream:
            heard += chunk.choices[0].delta.content or ""
            if heard == "one two":
                break
    assert runtime.solver.cancelled.wait(PATIENCE), "the call went on though nobody listened"


def test_a_recorded_stream_fits_the_sdks_types(runtime: Runtime) -> None:
    runtime.plans(*TWO_STEPS)
    runtime.solver.says(Reply("It is so.", USED, thinking=(Thinking("Hm."),)))
    body = posted(
        runtime, stream=True, stream_options={"include_usage": True}, reasoning_effort="medium"
    ).content
    events = chunks(body)
    assert events[0].choices[0].delta.role == "assistant"
    assert events[-2].choices[0].finish_reason == "stop"
    assert events[-1].usage is not None
    assert events[-1].usage.total_tokens == 330
    reasoning = [
        chunk.choices[0].delta.to_dict().get("reasoning_content", "")
        for chunk in events
        if chunk.choices
    ]
    assert "Planned 2 steps for plain, solver.\n1. plain: Think.\n2. solver: Answer.\n" in reasoning


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_is_read(
    runtime: Runtime, sdk: openai.OpenAI, model: str, stream: bool
) -> None:
    runtime.solver.says([calling(("a1", '{"zone": "UTC"}')), "Noon."])
    asked: dict[str, Any] = {"model": model, "tools": [CLOCK]}
    first = message_of(sdk, asked, WHY, stream)
    (call,) = first["tool_calls"]
    assert call["function"] == {"name": "clock", "arguments": '{"zone": "UTC"}'}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "12:00"}
    second = message_of(sdk, asked, [*WHY, first, result], stream)
    assert second["content"] == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00"]
    assert len(runtime.planner.requests) == (1 if model == ULTRA else 0), "it planned again"


def message_of(
    sdk: openai.OpenAI, asked: dict[str, Any], messages: Any, stream: bool
) -> dict[str, Any]:
    """The assistant's next message, as a client sends it back."""
    if stream:
        with sdk.chat.completions.stream(messages=messages, **asked) as heard:
            message: Any = heard.get_final_completion().choices[0].message
    else:
        message = sdk.chat.completions.create(messages=messages, **asked).choices[0].message
    document: dict[str, Any] = message.to_dict()
    for call in document.get("tool_calls") or ():
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return {name: value for name, value in document.items() if name not in ("parsed", "refusal")}


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_parallel_calls_come_together_and_are_answered_together(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.says(
        [calling(("a1", "{}"), ("a2", '{"zone": "CET"}'), text="Let me see."), "So."]
    )
    first = message_of(sdk, {"model": model, "tools": [CLOCK]}, WHY, False)
    assert first["content"] == "Let me see."
    assert len(first["tool_calls"]) == 2
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {index}"}
        for index, call in enumerate(first["tool_calls"])
    ]
    second = message_of(sdk, {"model": model, "tools": [CLOCK]}, [*WHY, first, *results], False)
    assert second["content"] == "So."
    assert results_of(runtime.solver.requests[-1]) == ["result 0", "result 1"]


def test_several_turns_of_tools_go_on_with_one_run_and_pay_nothing_twice(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.plans(*TWO_STEPS)
    runtime.solver.says([calling(("a1", "{}")), calling(("b1", "{}")), "Done."])
    messages: list[Any] = list(WHY)
    spent, ids = 0, set()
    for turn in range(3):
        response = sdk.chat.completions.create(model=ULTRA, messages=messages, tools=[CLOCK])
        assert response.usage is not None
        spent += response.usage.total_tokens
        ids.add(response.id)
        message = response.choices[0].message
        for call in message.tool_calls or ():
            messages.append(message)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"turn {turn}"})
    assert response.choices[0].message.content == "Done."
    assert len(ids) == 3, "two turns are one message to clients that tell them apart by id"
    runs = {run_of(id_) for id_ in ids}
    assert len(runs) == 1, "each turn was a run of its own"
    assert (len(runtime.planner.requests), len(runtime.plain.requests)) == (1, 1)
    assert results_of(runtime.solver.requests[-1]) == ["turn 0", "turn 1"]
    assert spent == runtime.run(runs.pop()).usage.total_tokens


def test_another_key_gets_a_run_of_its_own(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says([calling(("a1", "{}")), "Noon."])
    first = message_of(sdk, {"model": ULTRA, "tools": [CLOCK]}, WHY, False)
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "12:00"}
    messages: Any = [*WHY, first, result]
    call_id = first["tool_calls"][0]["id"]
    with openai_client(runtime, runtime.key()) as other:
        response = other.chat.completions.create(model=ULTRA, messages=messages, tools=[CLOCK])
    assert response.choices[0].message.content == "Noon."
    assert response.id.removeprefix("chatcmpl-").split("_")[0] != call_id.split("_")[1]


def test_results_of_calls_of_another_server_are_answered(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.solver.says("Noon.")
    call = {"id": "call_x", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages: Any = [
        *WHY,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_x", "content": "12:00"},
    ]
    response = sdk.chat.completions.create(model=ULTRA, messages=messages, tools=[CLOCK])
    assert response.choices[0].message.content == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00"]


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_structured_output_is_parsed(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    runtime.solver.says('{"steps": ["2+2"], "total": 4}')
    response = sdk.chat.completions.parse(model=model, messages=WHY, response_format=Sum)
    assert response.choices[0].message.parsed == Sum(steps=["2+2"], total=4)
    schema = runtime.solver.requests[-1].schema
    assert schema is not None
    assert set(schema["properties"]) == {"steps", "total"}


def test_replies_outside_the_schema_are_repaired_once(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says(['{"steps": "none"}', '{"steps": [], "total": 4}'])
    response = sdk.chat.completions.parse(model=ULTRA, messages=WHY, response_format=Sum)
    assert response.choices[0].message.parsed == Sum(steps=[], total=4)
    assert response.usage is not None
    assert response.usage.prompt_tokens == 300, "the planner, the first try and the repair"


def test_structured_output_is_parsed_from_a_stream(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says('{"steps": [], "total": 4}')
    with sdk.chat.completions.stream(model=ULTRA, messages=WHY, response_format=Sum) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Sum(steps=[], total=4)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_refusal_of_structured_output_is_reported_as_one_streamed_or_whole(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.says(Reply("I will not.", finish="refused"))
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "sum", "schema": Sum.model_json_schema()},
    }
    whole = sdk.chat.completions.create(model=model, messages=WHY, response_format=form)
    assert whole.choices[0].message.refusal == "I will not."
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (None, "stop")
    chunks = list(
        sdk.chat.completions.create(model=model, messages=WHY, response_format=form, stream=True)
    )
    said = "".join(chunk.choices[0].delta.refusal or "" for chunk in chunks)
    assert (said, chunks[-1].choices[0].finish_reason) == ("I will not.", "stop")
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


@pytest.mark.parametrize("url", [f"data:image/png;base64,{PIXEL}", PICTURE_URL])
@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "seer"])
def test_images_go_to_workers_with_vision(
    runtime: Runtime, sdk: openai.OpenAI, model: str, url: str
) -> None:
    runtime.seer.says("A cat.")
    response = sdk.chat.completions.create(model=model, messages=looking_at(url))
    assert response.choices[0].message.content == "A cat."
    parts = [part for message in runtime.seer.requests[-1].messages for part in message.parts]
    data = Image(media_type="image/png", data=PIXEL)
    assert [part for part in parts if isinstance(part, Image)] == [
        data if url.startswith("data:") else Image(url=url)
    ]


def looking_at(url: str) -> Any:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return [{"role": "user", "content": content}]


def test_a_worker_that_cannot_see_refuses_a_picture(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot see images"):
        sdk.chat.completions.create(model="solver", messages=looking_at(PICTURE_URL))


def test_a_conversation_reaches_the_worker(runtime: Runtime, sdk: openai.OpenAI) -> None:
    messages: Any = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Call me Ada."},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "Who am I?"},
    ]
    sdk.chat.completions.create(model="solver", messages=messages)
    sent = runtime.solver.requests[-1].messages
    assert [message.text for message in sent] == [message["content"] for message in messages]
    sdk.chat.completions.create(model=ULTRA, messages=messages)
    everything = runtime.solver.requests[-1].text
    assert all(message["content"] in everything for message in messages)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_terms_reach_the_worker(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    sdk.chat.completions.create(
        model=model,
        messages=WHY,
        max_completion_tokens=77,
        stop=["END"],
        temperature=0.5,
        top_p=0.9,
        seed=7,
        reasoning_effort="high",
    )
    sent = runtime.solver.requests[-1]
    assert (sent.max_tokens, sent.stop, sent.effort) == (77, ("END",), "high")
    assert (sent.temperature, sent.top_p, sent.seed) == (0.5, 0.9, 7)


def test_an_answer_that_was_cut_off_says_so(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says(Reply("Becau", USED, "length"))
    response = sdk.chat.completions.create(model=ULTRA, messages=WHY, max_tokens=1)
    assert response.choices[0].finish_reason == "length"


def test_the_run_and_its_trace_come_in_headers_and_only_when_asked(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    plain = sdk.chat.completions.with_raw_response.create(model=ULTRA, messages=WHY)
    assert runtime.run(plain.headers["x-podium-run"]).answer == "solver says so"
    assert "podium" not in plain.http_response.json()
    traced = sdk.chat.completions.with_raw_response.create(
        model=ULTRA, messages=WHY, extra_headers={"X-Podium-Include-Run": "1"}
    )
    trace = traced.http_response.json()["podium"]
    assert trace["run_id"] == traced.headers["x-podium-run"]
    assert trace["usage"]["input_tokens"] == 200
    assert traced.parse().choices[0].message.content == "solver says so"


def test_podium_params_go_in_the_extra_body(runtime: Runtime, sdk: openai.OpenAI) -> None:
    response = sdk.chat.completions.create(
        model=ULTRA, messages=WHY, extra_body={"podium": {"exclude": ["solver-works"]}}
    )
    assert response.choices[0].message.content == "seer says so"


def test_unstored_runs_leave_no_trace(runtime: Runtime, sdk: openai.OpenAI) -> None:
    response = sdk.chat.completions.with_raw_response.create(model=ULTRA, messages=WHY, store=False)
    assert "x-podium-run" not in response.headers
    run_id = response.parse().id.replace("chatcmpl-", "run_")
    headers = {"Authorization": f"Bearer {runtime.token}"}
    found = runtime.http.get(f"/v1/runs/{run_id}", headers=headers)
    assert found.status_code == 404


def test_models_are_listed_and_found(sdk: openai.OpenAI) -> None:
    names = [model.id for model in sdk.models.list()]
    assert names[:3] == ["podium-mini", "podium", "podium-ultra"]
    assert names[-3:] == ["solver", "seer", "plain"]
    pinned = sdk.models.retrieve(names[5])
    assert pinned.id == names[5]
    response = sdk.chat.completions.create(model=pinned.id, messages=WHY)
    assert response.model == pinned.id
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("podium-ultra@000000000000")


@pytest.mark.parametrize(
    ("rules", "error", "status"),
    [
        (Rules(scopes=frozenset({"gateway"})), openai.PermissionDeniedError, 403),
        (Rules(tiers=frozenset({"mini"})), openai.PermissionDeniedError, 403),
        (Rules(in_total=Allowance(usd=0.0)), openai.APIStatusError, 402),
        (Rules(tokens_per_minute=1), openai.RateLimitError, 429),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_forbidden_requests_raise_the_sdks_own_error(
    runtime: Runtime, rules: Rules, error: type[openai.APIStatusError], status: int, stream: bool
) -> None:
    with openai_client(runtime, runtime.key(rules)) as sdk:
        if status == 429:  # the first exceeds the rate, and the second is reported
            sdk.chat.completions.create(model=ULTRA, messages=WHY)
        with pytest.raises(error) as caught:
            sdk.chat.completions.create(model=ULTRA, messages=WHY, stream=stream)
    assert caught.value.status_code == status
    if status == 429:
        assert int(caught.value.response.headers["retry-after"]) >= 1


def test_a_wrong_key_is_an_authentication_error(runtime: Runtime) -> None:
    with openai_client(runtime, "pk_wrong") as sdk, pytest.raises(openai.AuthenticationError):
        sdk.chat.completions.create(model=ULTRA, messages=WHY)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
@pytest.mark.parametrize(
    ("schema", "at"), [({"$id": 7}, "$id"), ({"$schema": 5}, "$schema"), ({"$ref": "#"}, "")]
)
def test_an_invalid_schema_is_the_clients_fault_for_every_worker(
    sdk: openai.OpenAI, model: str, schema: dict[str, Any], at: str
) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model=model, messages=WHY, response_format=form)
    assert caught.value.param == f"response_format.json_schema.schema.{at}".removesuffix(".")


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"model": "podium-ultar"}, openai.NotFoundError, "model"),
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"logprobs": True}, openai.BadRequestError, "logprobs"),
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, openai.BadRequestError, "max_tokens"),
        ({"extra_body": {"podium": {"rounds": 0}}}, openai.BadRequestError, "podium.rounds"),
        (
            {"response_format": {"type": "json_schema", "json_schema": NO_SCHEMA}},
            openai.BadRequestError,
            "response_format.json_schema.schema.type",
        ),
    ],
)
def test_errors_are_named(
    sdk: openai.OpenAI, asked: dict[str, Any], error: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(error) as caught:
        sdk.chat.completions.create(**({"model": ULTRA, "messages": WHY} | asked))
    assert caught.value.param == param


@pytest.mark.parametrize("model", [ULTRA, "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_fails_is_a_server_error(
    runtime: Runtime, sdk: openai.OpenAI, model: str, stream: bool
) -> None:
    for worker in runtime.workers:
        worker.says(Unavailable("no connection"))
    with pytest.raises(openai.InternalServerError, match="no connection") as caught:
        sdk.chat.completions.create(model=model, messages=WHY, stream=stream)
    assert caught.value.status_code == 502


def test_a_picture_that_is_too_large_is_refused(sdk: openai.OpenAI) -> None:
    data = "A" * (28 * 1024 * 1024)
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.chat.completions.create(
            model=ULTRA, messages=looking_at(f"data:image/png;base64,{data}")
        )
    assert caught.value.status_code == 413


def test_a_body_that_is_too_large_is_refused(runtime: Runtime) -> None:
    response = posted(runtime, user="A" * (33 * 1024 * 1024))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_stream_that_breaks_off_continues_where_it_was(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    scenes = ["breaks", "goes on"]

    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        if scenes.pop(0) == "breaks":
            yield Delta("one two")
            raise Unavailable("broken off")
        yield Delta(" three")
        yield Reply(" three", USED)

    runtime.solver.streams(stream_reply)
    stream = sdk.chat.completions.create(model=model, messages=WHY, stream=True)
    words = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert words == "one two three"


def test_a_stream_that_cannot_go_on_ends_with_an_error(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("one two")
        raise Unavailable("broken off")

    for worker in runtime.workers:
        worker.streams(stream_reply)
    stream = sdk.chat.completions.create(model="solver", messages=WHY, stream=True)
    with pytest.raises(openai.APIError, match="broken off"):
        list(stream)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
async def test_a_client_that_goes_away_stops_the_call(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI, model: str
) -> None:
    runtime.solver.hangs_after()
    asking = asyncio.create_task(async_sdk.chat.completions.create(model=model, messages=WHY))
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.to_thread(runtime.solver.being_asked.wait, PATIENCE)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await asyncio.to_thread(runtime.solver.cancelled.wait, PATIENCE)


async def test_many_clients_are_answered_at_once(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI
) -> None:
    runtime.solver.says(lambda request: request.messages[-1].text)
    asked = [
        async_sdk.chat.completions.create(
            model="solver", messages=[{"role": "user", "content": f"number {number}"}]
        )
        for number in range(20)
    ]
    results = await asyncio.gather(*asked)
    said = [item.choices[0].message.content for item in results]
    assert said == [f"number {number}" for number in range(20)]


def test_json_without_a_schema_is_any_object(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says('{"any": 1}')
    response = sdk.chat.completions.create(
        model=ULTRA, messages=WHY, response_format={"type": "json_object"}
    )
    assert json.loads(response.choices[0].message.content or "") == {"any": 1}
