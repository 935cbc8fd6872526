"""The openai SDK as it is, speaking Responses with the server as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import openai
import pytest
from openai.types.responses import FunctionToolParam

from podium.core.errors import Unavailable
from podium.core.request import Delta, Image, Reply, Request, Thinking
from podium.store.keys import Rules
from support.conformance import (
    PICTURE_URL,
    PIXEL,
    TWO_STEPS,
    ULTRA,
    Sum,
    not_allowed,
    openai_client,
    results_of,
)
from support.loopback import PATIENCE, USED, Runtime, calling
from support.responses_sdk import events_of, valid_response

CLOCK: Final[FunctionToolParam] = {
    "type": "function",
    "name": "clock",
    "description": "what time it is",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "strict": False,
}


def posted(runtime: Runtime, **body: Any) -> httpx.Response:
    """What is really sent over the wire, as no SDK would show it."""
    headers = {"Authorization": f"Bearer {runtime.token}"}
    return runtime.http.post(
        "/v1/responses", json={"model": ULTRA, "input": "Why?"} | body, headers=headers
    )


def outputs(response: Any, said: str = "12:00") -> list[Any]:
    """The results of all that a response calls."""
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": said}
        for item in response.output
        if item.type == "function_call"
    ]


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "podium", "solver"])
def test_a_question_is_answered(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    for worker in runtime.workers:
        worker.says("Because.")
    response = sdk.responses.create(model=model, input="Why?")
    assert (response.output_text, response.status, response.model) == (
        "Because.",
        "completed",
        model,
    )


async def test_a_question_is_answered_to_the_async_client(
    async_sdk: openai.AsyncOpenAI,
) -> None:
    response = await async_sdk.responses.create(model=ULTRA, input="Why?")
    assert response.output_text == "solver says so"


def test_a_response_fits_the_sdks_types_to_the_letter(runtime: Runtime) -> None:
    assert valid_response(posted(runtime).json()).output_text == "solver says so"


def test_usage_sums_every_call_and_reports_the_planners_part(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.plans(*TWO_STEPS)
    response = sdk.responses.create(model=ULTRA, input="Why?")
    assert response.usage is not None
    assert response.usage.to_dict() == {
        "input_tokens": 300,
        "input_tokens_details": {
            "cached_tokens": 120,
            "cache_write_tokens": 0,
            "orchestration_input_tokens": 100,
            "orchestration_input_cached_tokens": 40,
        },
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12, "orchestration_output_tokens": 10},
        "total_tokens": 330,
    }


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_stream_comes_in_pieces_and_ends_whole(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.says("one two three")
    heard = list(sdk.responses.create(model=model, input="Why?", stream=True))
    words = [event.delta for event in heard if event.type == "response.output_text.delta"]
    assert words == ["one", " two", " three"]
    last = heard[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "one two three"
    assert last.response.usage is not None


async def test_a_stream_is_put_together_by_the_async_client(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI
) -> None:
    runtime.solver.says("one two three")
    async with async_sdk.responses.stream(model=ULTRA, input="Why?") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "one two three"


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_the_first_words_come_before_the_last_are_there(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.hangs_after("one", " two")
    with sdk.responses.create(model=model, input="Why?", stream=True) as stream:
        heard = ""
        for event in stream:
            heard += event.delta if event.type == "response.output_text.delta" else ""
            if heard == "one two":
                break
    assert runtime.solver.cancelled.wait(PATIENCE), "the call went on though nobody listened"


def test_a_recorded_stream_fits_the_sdks_types(runtime: Runtime) -> None:
    runtime.plans(*TWO_STEPS)

    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("Hm.", "thinking")
        yield Delta("It is ")
        yield Delta("so.")
        yield Reply("It is so.", USED, thinking=(Thinking("Hm.", "sealed", "solver-1"),))

    runtime.solver.streams(stream_reply)
    body = posted(
        runtime,
        stream=True,
        reasoning={"effort": "medium", "summary": "auto"},
        include=["reasoning.encrypted_content"],
    ).content
    events = events_of(body)
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    summaries = [entry["text"] for entry in events if entry["type"].endswith("summary_text.done")]
    assert summaries[0].startswith("Planned 2 steps for plain, solver.")
    assert "Hm." in "".join(summaries)


def test_a_recorded_stream_of_tool_calls_fits_the_sdks_types(runtime: Runtime) -> None:
    runtime.solver.says(calling(("a1", '{"zone": "UTC"}'), ("a2", "{}"), text="Let me see."))
    events = events_of(posted(runtime, stream=True, tools=[CLOCK]).content)
    done = [entry for entry in events if entry["type"] == "response.function_call_arguments.done"]
    assert [entry["arguments"] for entry in done] == ['{"zone": "UTC"}', "{}"]


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_is_read(
    runtime: Runtime, sdk: openai.OpenAI, model: str, stream: bool
) -> None:
    runtime.solver.says([calling(("a1", '{"zone": "UTC"}')), "Noon."])
    conversation: list[Any] = [{"role": "user", "content": "What time is it?"}]
    first = response_of(sdk, stream, model=model, input=conversation, tools=[CLOCK])
    (call,) = first.output
    assert (call.name, call.arguments) == ("clock", '{"zone": "UTC"}')
    conversation += [*first.output, *outputs(first)]
    second = response_of(sdk, stream, model=model, input=conversation, tools=[CLOCK])
    assert second.output_text == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00"]
    assert len(runtime.planner.requests) == (1 if model == ULTRA else 0), "it planned again"


def response_of(sdk: openai.OpenAI, stream: bool, **asked: Any) -> Any:
    if not stream:
        return sdk.responses.create(**asked)
    with sdk.responses.stream(**asked) as heard:
        return heard.get_final_response()


def test_results_of_tools_go_on_from_the_response_by_its_id(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.solver.says([calling(("a1", "{}"), ("a2", "{}")), "Noon."])
    first = sdk.responses.create(model=ULTRA, input="What time is it?", tools=[CLOCK])
    second = sdk.responses.create(
        model=ULTRA, previous_response_id=first.id, input=outputs(first), tools=[CLOCK]
    )
    assert second.output_text == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00", "12:00"]


def test_several_turns_of_tools_pay_nothing_twice(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.plans(*TWO_STEPS)
    runtime.solver.says([calling(("a1", "{}")), calling(("b1", "{}")), "Done."])
    response = sdk.responses.create(model=ULTRA, input="When?", tools=[CLOCK])
    spent = response.usage.total_tokens if response.usage else 0
    for turn in range(2):
        response = sdk.responses.create(
            model=ULTRA,
            previous_response_id=response.id,
            input=outputs(response, f"turn {turn}"),
            tools=[CLOCK],
        )
        spent += response.usage.total_tokens if response.usage else 0
    assert response.output_text == "Done."
    assert (len(runtime.planner.requests), len(runtime.plain.requests)) == (1, 1)
    assert results_of(runtime.solver.requests[-1]) == ["turn 0", "turn 1"]
    assert spent == runtime.run(f"run_{response.id.split('_')[1]}").usage.total_tokens
    assert response.id.endswith("_2")


def test_a_response_that_waits_for_tools_is_not_continued_from_without_their_results(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.solver.says(calling(("a1", "{}")))
    first = sdk.responses.create(model=ULTRA, input="What time is it?", tools=[CLOCK])
    with pytest.raises(openai.BadRequestError, match="No tool output found") as caught:
        sdk.responses.create(model=ULTRA, input="Well?", previous_response_id=first.id)
    assert caught.value.param == "input"


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_structured_output_is_parsed(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    runtime.solver.says('{"steps": ["2+2"], "total": 4}')
    response = sdk.responses.parse(model=model, input="2+2?", text_format=Sum)
    assert response.output_parsed == Sum(steps=["2+2"], total=4)


async def test_structured_output_is_parsed_by_the_async_client(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI
) -> None:
    runtime.solver.says('{"steps": [], "total": 4}')
    response = await async_sdk.responses.parse(model=ULTRA, input="2+2?", text_format=Sum)
    assert response.output_parsed == Sum(steps=[], total=4)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_streamed_refusal_of_structured_output_is_reported_as_one(
    runtime: Runtime, sdk: openai.OpenAI, model: str
) -> None:
    runtime.solver.says(Reply("I will not.", finish="refused"))
    whole = sdk.responses.parse(model=model, input="2+2?", text_format=Sum)
    with sdk.responses.stream(model=model, input="2+2?", text_format=Sum) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.refusal.done" in events
    assert "response.output_text.delta" not in events
    for entry in (whole, final):
        assert (entry.status, entry.incomplete_details) == ("completed", None)
        message = entry.output[-1]
        assert message.type == "message"
        assert [part.to_dict() for part in message.content] == [
            {"type": "refusal", "refusal": "I will not."}
        ]


def test_a_refusal_of_which_a_piece_was_streamed_continues_as_an_answer(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("I will")
        yield Reply("I will not.", finish="refused", usage=USED)

    runtime.solver.streams(stream_reply)
    events = list(sdk.responses.create(model="solver", input="Why?", stream=True))
    assert "response.refusal.delta" not in [event.type for event in events]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text == "I will not."
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "content_filter"


@pytest.mark.parametrize("url", [f"data:image/png;base64,{PIXEL}", PICTURE_URL])
@pytest.mark.parametrize("model", [ULTRA, "seer"])
def test_images_go_to_workers_with_vision(
    runtime: Runtime, sdk: openai.OpenAI, model: str, url: str
) -> None:
    runtime.seer.says("A cat.")
    response = sdk.responses.create(model=model, input=looking_at(url))
    assert response.output_text == "A cat."
    parts = [part for message in runtime.seer.requests[-1].messages for part in message.parts]
    data = Image(media_type="image/png", data=PIXEL, detail="auto")
    assert [part for part in parts if isinstance(part, Image)] == [
        data if url.startswith("data:") else Image(url=url, detail="auto")
    ]


def looking_at(url: str) -> Any:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "detail": "auto", "image_url": url},
    ]
    return [{"role": "user", "content": content}]


def test_a_worker_that_cannot_see_refuses_a_picture(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot see images"):
        sdk.responses.create(model="plain", input=looking_at(PICTURE_URL))


def test_a_conversation_continues_by_the_id_of_its_last_response(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    runtime.solver.says(["Hello Ada.", "You are Ada.", "Still Ada."])
    first = sdk.responses.create(
        model=ULTRA, input="Call me Ada.", instructions="Speak like a pirate."
    )
    second = sdk.responses.create(
        model=ULTRA, input="Who am I?", instructions="Be kind.", previous_response_id=first.id
    )
    output = runtime.solver.requests[-1].text
    assert all(words in output for words in ("Call me Ada.", "Hello Ada.", "Who am I?", "Be kind."))
    assert "pirate" not in output, "the instructions of an earlier response are not carried over"
    third = sdk.responses.create(model=ULTRA, input="Sure?", previous_response_id=second.id)
    assert third.output_text == "Still Ada."
    assert "Call me Ada." in runtime.solver.requests[-1].text
    assert third.previous_response_id == second.id


def test_a_response_of_another_key_is_not_continued_from(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    first = sdk.responses.create(model=ULTRA, input="My secret is 7.")
    with openai_client(runtime, runtime.key()) as other:
        with pytest.raises(openai.BadRequestError) as caught:
            other.responses.create(model=ULTRA, input="And?", previous_response_id=first.id)
        assert caught.value.code == "previous_response_not_found"
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError):
            other.responses.delete(first.id)
    assert sdk.responses.retrieve(first.id).output_text == "solver says so"


def test_a_response_is_retrieved_as_it_was_and_deleted_for_good(sdk: openai.OpenAI) -> None:
    first = sdk.responses.create(model=ULTRA, input="Why?")
    again = sdk.responses.retrieve(first.id)
    assert (again.id, again.output_text, again.status) == (first.id, "solver says so", "completed")
    assert again.usage == first.usage
    assert again.created_at == first.created_at
    sdk.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="Previous response with id"):
        sdk.responses.create(model=ULTRA, input="And?", previous_response_id=first.id)


def test_unstored_runs_leave_no_trace(sdk: openai.OpenAI) -> None:
    response = sdk.responses.create(model=ULTRA, input="Why?", store=False)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(response.id)


def test_tools_work_though_nothing_is_to_be_stored(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says([calling(("a1", "{}")), "Noon."])
    asked: list[Any] = [{"role": "user", "content": "What time is it?"}]
    first = sdk.responses.create(model=ULTRA, input=asked, tools=[CLOCK], store=False)
    asked += [*first.output, *outputs(first)]
    second = sdk.responses.create(model=ULTRA, input=asked, tools=[CLOCK], store=False)
    assert second.output_text == "Noon."
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(second.id)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_terms_reach_the_worker(runtime: Runtime, sdk: openai.OpenAI, model: str) -> None:
    sdk.responses.create(
        model=model,
        input="Why?",
        max_output_tokens=77,
        temperature=0.5,
        top_p=0.9,
        reasoning={"effort": "high"},
    )
    sent = runtime.solver.requests[-1]
    assert (sent.max_tokens, sent.temperature, sent.top_p) == (77, 0.5, 0.9)
    assert sent.effort == "high"


def test_an_answer_that_was_cut_off_says_so(runtime: Runtime, sdk: openai.OpenAI) -> None:
    runtime.solver.says(Reply("Becau", USED, "length"))
    response = sdk.responses.create(model=ULTRA, input="Why?", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_the_run_and_its_trace_come_in_headers_and_only_when_asked(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    response = sdk.responses.with_raw_response.create(
        model=ULTRA, input="Why?", extra_headers={"X-Podium-Include-Run": "1"}
    )
    assert response.http_response.json()["podium"]["run_id"] == response.headers["x-podium-run"]
    assert response.parse().id == response.headers["x-podium-run"].replace("run_", "resp_")
    assert "podium" not in posted(runtime).json()


@pytest.mark.parametrize(("rules", "error", "status"), not_allowed(openai))
def test_forbidden_requests_raise_the_sdks_own_error(
    runtime: Runtime, rules: Rules, error: type[openai.APIStatusError], status: int
) -> None:
    with openai_client(runtime, runtime.key(rules)) as sdk:
        if status == 429:
            sdk.responses.create(model=ULTRA, input="Why?")
        with pytest.raises(error) as caught:
            sdk.responses.create(model=ULTRA, input="Why?")
    assert caught.value.status_code == status


def test_a_wrong_key_is_an_authentication_error(runtime: Runtime) -> None:
    with openai_client(runtime, "pk_wrong") as sdk, pytest.raises(openai.AuthenticationError):
        sdk.responses.create(model=ULTRA, input="Why?")


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"model": "podium-ultar"}, openai.NotFoundError, "model"),
        ({"background": True, "store": False}, openai.BadRequestError, "background"),
        ({"previous_response_id": "resp_none"}, openai.BadRequestError, "previous_response_id"),
        ({"previous_response_id": "none"}, openai.BadRequestError, "previous_response_id"),
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"input": []}, openai.BadRequestError, "input"),
        ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools.0.type"),
    ],
)
def test_errors_are_named(
    sdk: openai.OpenAI, asked: dict[str, Any], error: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(error) as caught:
        sdk.responses.create(**({"model": ULTRA, "input": "Why?"} | asked))
    assert caught.value.param == param


@pytest.mark.parametrize("model", [ULTRA, "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_fails_is_a_server_error(
    runtime: Runtime, sdk: openai.OpenAI, model: str, stream: bool
) -> None:
    for worker in runtime.workers:
        worker.says(Unavailable("no connection"))
    with pytest.raises(openai.InternalServerError, match="no connection") as caught:
        sdk.responses.create(model=model, input="Why?", stream=stream)
    assert caught.value.status_code == 502


def test_a_stream_that_cannot_go_on_ends_as_failed(runtime: Runtime, sdk: openai.OpenAI) -> None:
    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("one two")
        raise Unavailable("broken off")

    runtime.solver.streams(stream_reply)
    heard = list(sdk.responses.create(model="solver", input="Why?", stream=True))
    assert [event.type for event in heard[-2:]] == ["error", "response.failed"]


@pytest.mark.parametrize("model", [ULTRA, "solver"])
async def test_a_client_that_goes_away_stops_the_call(
    runtime: Runtime, async_sdk: openai.AsyncOpenAI, model: str
) -> None:
    runtime.solver.hangs_after()
    asking = asyncio.create_task(async_sdk.responses.create(model=model, input="Why?"))
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.to_thread(runtime.solver.being_asked.wait, PATIENCE)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await asyncio.to_thread(runtime.solver.cancelled.wait, PATIENCE)
