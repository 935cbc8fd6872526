"""The anthropic SDK as it is, speaking Messages with the server as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Final

import anthropic
import httpx
import pytest
from anthropic.types import Message, ToolParam

from podium.core.errors import Unavailable
from podium.core.request import Delta, Image, Reply, Request, Thinking, ToolResult
from podium.core.workflow import Step
from podium.store.keys import Rules
from support.conformance import (
    PICTURE_URL,
    PIXEL,
    TWO_STEPS,
    ULTRA,
    WHY,
    Sum,
    not_allowed,
    results_of,
    run_of,
)
from support.loopback import PATIENCE, USED, Runtime, calling
from support.messages_sdk import events_of

CLOCK: Final[ToolParam] = {
    "name": "clock",
    "description": "what time it is",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}},
}


@pytest.fixture
def client(runtime: Runtime) -> Iterator[anthropic.Anthropic]:
    with client_of(runtime, runtime.token) as made:
        yield made


@pytest.fixture
async def async_client(runtime: Runtime) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        api_key=runtime.token, base_url=runtime.address, max_retries=0, timeout=PATIENCE
    ) as made:
        yield made


def client_of(runtime: Runtime, token: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key=token, base_url=runtime.address, max_retries=0, timeout=PATIENCE
    )


def asked(**more: Any) -> dict[str, Any]:
    """What is asked, unless the test says otherwise."""
    return {"model": ULTRA, "max_tokens": 2000, "messages": WHY} | more


def posted(runtime: Runtime, **more: Any) -> httpx.Response:
    """What is really sent over the wire, as no SDK would show it."""
    headers = {"x-api-key": runtime.token, "anthropic-version": "2023-06-01"}
    return runtime.http.post("/v1/messages", json=asked(**more), headers=headers)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def with_results(messages: list[Any], message: Any, said: str = "12:00") -> list[Any]:
    """The conversation with the message and the results of all that it calls."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": said}
        for block in message.content
        if block.type == "tool_use"
    ]
    assistant = {"role": "assistant", "content": message.content}
    return [*messages, assistant, {"role": "user", "content": results}]


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "podium", "solver"])
def test_a_question_is_answered(runtime: Runtime, client: anthropic.Anthropic, model: str) -> None:
    for worker in runtime.workers:
        worker.says("Because.")
    response = client.messages.create(**asked(model=model))
    assert (text_of(response), response.stop_reason, response.model) == (
        "Because.",
        "end_turn",
        model,
    )


async def test_a_question_is_answered_to_the_async_client(
    async_client: anthropic.AsyncAnthropic,
) -> None:
    response = await async_client.messages.create(**asked())
    assert text_of(response) == "solver says so"


def test_the_token_is_taken_as_a_bearers_too(runtime: Runtime) -> None:
    with anthropic.Anthropic(
        auth_token=runtime.token, base_url=runtime.address, max_retries=0, timeout=PATIENCE
    ) as client:
        assert text_of(client.messages.create(**asked())) == "solver says so"


def test_a_message_fits_the_sdks_types_to_the_letter(runtime: Runtime) -> None:
    document = posted(runtime).json()
    message = Message.model_validate(document, strict=True)
    assert text_of(message) == "solver says so"
    assert not message.model_extra


def test_usage_sums_every_call_and_reports_the_planners_part(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    runtime.plans(*TWO_STEPS)
    response = client.messages.create(**asked()).usage.to_dict()
    assert (response["input_tokens"], response["cache_read_input_tokens"]) == (180, 120)
    assert response["output_tokens"] == 30
    assert response["input_tokens_details"] == {
        "orchestration_input_tokens": 100,
        "orchestration_input_cached_tokens": 40,
    }
    assert response["output_tokens_details"] == {
        "thinking_tokens": 12,
        "orchestration_output_tokens": 10,
    }


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_a_stream_comes_in_pieces_and_ends_with_usage(
    runtime: Runtime, client: anthropic.Anthropic, model: str
) -> None:
    runtime.solver.says("one two three")
    with client.messages.stream(**asked(model=model)) as stream:
        assert list(stream.text_stream) == ["one", " two", " three"]
        final = stream.get_final_message()
    assert text_of(final) == "one two three"
    assert final.usage.output_tokens == (20 if model == ULTRA else 10)
    assert final.usage.input_tokens == (120 if model == ULTRA else 60)
    assert final.usage.cache_read_input_tokens == (80 if model == ULTRA else 40)


async def test_a_stream_is_put_together_by_the_async_client(
    runtime: Runtime, async_client: anthropic.AsyncAnthropic
) -> None:
    runtime.solver.says("one two three")
    async with async_client.messages.stream(**asked()) as stream:
        assert text_of(await stream.get_final_message()) == "one two three"


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_the_first_words_come_before_the_last_are_there(
    runtime: Runtime, client: anthropic.Anthropic, model: str
) -> None:
    runtime.solver.hangs_after("one", " two")
    with client.messages.stream(**asked(model=model)) as stream:
        heard = ""
        for words in stream.text_stream:
            heard += words
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
    thinking = {"type": "enabled", "budget_tokens": 1024}
    events = events_of(posted(runtime, stream=True, thinking=thinking).content)
    assert events[0]["type"] == "message_start"
    assert [item["type"] for item in events[-2:]] == ["message_delta", "message_stop"]
    thought = "".join(
        item["delta"].get("thinking", "")
        for item in events
        if item["type"] == "content_block_delta"
    )
    assert "Planned 2 steps for plain, solver." in thought
    assert "Hm." in thought


def test_a_recorded_stream_of_tool_calls_fits_the_sdks_types(runtime: Runtime) -> None:
    runtime.solver.says(calling(("a1", '{"zone": "UTC"}'), ("a2", "{}"), text="Let me see."))
    events = events_of(posted(runtime, stream=True, tools=[CLOCK]).content)
    begun = [item["content_block"] for item in events if item["type"] == "content_block_start"]
    assert [block["type"] for block in begun] == ["text", "tool_use", "tool_use"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("model", [ULTRA, "podium-mini", "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_is_read(
    runtime: Runtime, client: anthropic.Anthropic, model: str, stream: bool
) -> None:
    runtime.solver.says([calling(("a1", '{"zone": "UTC"}')), "Noon."])
    first = message_of(client, stream, model=model, tools=[CLOCK])
    (call,) = first.content
    assert (first.stop_reason, call.name, call.input) == ("tool_use", "clock", {"zone": "UTC"})
    messages = with_results(WHY, first)
    second = message_of(client, stream, model=model, tools=[CLOCK], messages=messages)
    assert text_of(second) == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00"]
    assert len(runtime.planner.requests) == (1 if model == ULTRA else 0), "it planned again"


def message_of(client: anthropic.Anthropic, stream: bool, **more: Any) -> Any:
    if not stream:
        return client.messages.create(**asked(**more))
    with client.messages.stream(**asked(**more)) as heard:
        return heard.get_final_message()


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_parallel_calls_come_together_and_are_answered_together(
    runtime: Runtime, client: anthropic.Anthropic, model: str
) -> None:
    runtime.solver.says(
        [calling(("a1", "{}"), ("a2", '{"zone": "CET"}'), text="Let me see."), "So."]
    )
    first = client.messages.create(**asked(model=model, tools=[CLOCK]))
    assert [block.type for block in first.content] == ["text", "tool_use", "tool_use"]
    again = asked(model=model, tools=[CLOCK], messages=with_results(WHY, first))
    assert text_of(client.messages.create(**again)) == "So."
    assert results_of(runtime.solver.requests[-1]) == ["12:00", "12:00"]


def test_several_turns_of_tools_go_on_with_one_run_and_pay_nothing_twice(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    runtime.plans(*TWO_STEPS)
    runtime.solver.says([calling(("a1", "{}")), calling(("b1", "{}")), "Done."])
    messages, spent, ids = list(WHY), 0, set()
    for turn in range(3):
        response = client.messages.create(**asked(tools=[CLOCK], messages=messages))
        used = response.usage
        spent += used.input_tokens + (used.cache_read_input_tokens or 0) + used.output_tokens
        ids.add(response.id)
        messages = with_results(messages, response, f"turn {turn}")
    assert text_of(response) == "Done."
    assert len(ids) == 3, "Claude Code takes two turns with one id for one message"
    assert len({run_of(id_) for id_ in ids}) == 1, "each turn was a run of its own"
    assert (len(runtime.planner.requests), len(runtime.plain.requests)) == (1, 1)
    assert results_of(runtime.solver.requests[-1]) == ["turn 0", "turn 1"]
    assert spent == runtime.run(run_of(response.id)).usage.total_tokens


def test_the_sdks_tool_runner_runs(runtime: Runtime, client: anthropic.Anthropic) -> None:
    runtime.solver.says([calling(("a1", '{"zone": "UTC"}')), "Noon."])

    @anthropic.beta_tool
    def clock(zone: str) -> str:
        """What time it is.

        Args:
            zone: where
        """
        return f"12:00 {zone}"

    runner = client.beta.messages.tool_runner(
        model=ULTRA, max_tokens=2000, messages=WHY, tools=[clock]
    )
    assert text_of(runner.until_done()) == "Noon."
    assert results_of(runtime.solver.requests[-1]) == ["12:00 UTC"]


def test_an_error_of_a_tool_is_reported_as_one(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    runtime.solver.says([calling(("a1", "{}")), "I cannot tell."])
    first = client.messages.create(**asked(tools=[CLOCK]))
    messages = with_results(WHY, first)
    messages[-1]["content"][0]["is_error"] = True
    client.messages.create(**asked(tools=[CLOCK], messages=messages))
    parts = [part for turn in runtime.solver.requests[-1].messages for part in turn.parts]
    assert [part.is_error for part in parts if isinstance(part, ToolResult)] == [True]


def test_another_key_gets_a_run_of_its_own(runtime: Runtime, client: anthropic.Anthropic) -> None:
    runtime.solver.says([calling(("a1", "{}")), "Late.", "Noon."])
    first = client.messages.create(**asked(tools=[CLOCK]))
    again = asked(tools=[CLOCK], messages=with_results(WHY, first))
    with client_of(runtime, runtime.key()) as other:
        response = other.messages.create(**again)
    assert text_of(response) == "Late."
    assert response.id.split("_")[1] != first.id.split("_")[1]
    assert text_of(client.messages.create(**again)) == "Noon."


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_structured_output_is_parsed(
    runtime: Runtime, client: anthropic.Anthropic, model: str
) -> None:
    runtime.solver.says('{"steps": ["2+2"], "total": 4}')
    response = client.messages.parse(**asked(model=model), output_format=Sum)
    assert response.parsed_output == Sum(steps=["2+2"], total=4)


async def test_structured_output_is_parsed_by_the_async_client(
    runtime: Runtime, async_client: anthropic.AsyncAnthropic
) -> None:
    runtime.solver.says('{"steps": [], "total": 4}')
    response = await async_client.messages.parse(**asked(), output_format=Sum)
    assert response.parsed_output == Sum(steps=[], total=4)


SOURCES: Final[Any] = [
    {"type": "base64", "media_type": "image/png", "data": PIXEL},
    {"type": "url", "url": PICTURE_URL},
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("model", [ULTRA, "seer"])
def test_images_go_to_workers_with_vision(
    runtime: Runtime, client: anthropic.Anthropic, model: str, source: Any
) -> None:
    runtime.seer.says("A cat.")
    response = client.messages.create(**asked(model=model, messages=looking_at(source)))
    assert text_of(response) == "A cat."
    parts = [part for message in runtime.seer.requests[-1].messages for part in message.parts]
    data = Image(media_type="image/png", data=PIXEL)
    assert [part for part in parts if isinstance(part, Image)] == [
        Image(url=source["url"]) if "url" in source else data
    ]


def looking_at(source: Any) -> Any:
    image = {"type": "image", "source": source}
    return [{"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]}]


def test_a_worker_that_cannot_see_refuses_a_picture(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="cannot see images"):
        client.messages.create(**asked(model="solver", messages=looking_at(SOURCES[0])))


@pytest.mark.parametrize("model", [ULTRA, "solver"])
def test_terms_reach_the_worker(runtime: Runtime, client: anthropic.Anthropic, model: str) -> None:
    client.messages.create(
        **asked(
            model=model,
            max_tokens=77,
            stop_sequences=["END"],
            extra_body={"temperature": 0.5},  # the SDK of today has no parameter for it
            output_config={"effort": "high"},
            system="Be kind.",
        )
    )
    sent = runtime.solver.requests[-1]
    assert (sent.max_tokens, sent.stop, sent.temperature) == (77, ("END",), 0.5)
    assert sent.effort == "high"
    assert "Be kind." in sent.text


def test_a_budget_for_thinking_is_an_effort(runtime: Runtime, client: anthropic.Anthropic) -> None:
    runtime.plans(*TWO_STEPS, Step("seer", "Judge.", "all"))
    response = client.messages.with_raw_response.create(
        **asked(thinking={"type": "enabled", "budget_tokens": 1024})
    )
    run = runtime.run(response.headers["x-podium-run"])
    assert run.max_steps == 2


def test_an_answer_that_was_cut_off_says_so(runtime: Runtime, client: anthropic.Anthropic) -> None:
    runtime.solver.says(Reply("Becau", USED, "length"))
    assert client.messages.create(**asked(max_tokens=1)).stop_reason == "max_tokens"


def test_thinking_comes_back_to_the_model_that_did_it(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    thought = Thinking("Hm.", "sealed", "solver-1")
    runtime.solver.says([Reply("One.", USED, thinking=(thought,)), "Two."])
    wish: Any = {"type": "enabled", "budget_tokens": 1024}
    first = client.messages.create(**asked(model="solver", thinking=wish))
    assert first.content[0].type == "thinking"
    messages = [
        *WHY,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "And?"},
    ]
    client.messages.create(**asked(model="solver", thinking=wish, messages=messages))
    parts = [part for turn in runtime.solver.requests[-1].messages for part in turn.parts]
    assert thought in parts


def test_tokens_are_counted(runtime: Runtime, client: anthropic.Anthropic) -> None:
    short = client.messages.count_tokens(model=ULTRA, messages=WHY).input_tokens
    long = client.messages.count_tokens(
        model=ULTRA, messages=WHY, system="Be kind. " * 100, tools=[CLOCK]
    ).input_tokens
    assert 0 < short < long
    assert not runtime.solver.requests
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="none", messages=WHY)


def test_models_are_listed_and_found(client: anthropic.Anthropic) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:3] == ["podium-mini", "podium", "podium-ultra"]
    assert names[-3:] == ["solver", "seer", "plain"]
    assert client.models.retrieve("solver").display_name == "the solver"


def test_the_run_and_its_trace_come_in_headers_and_only_when_asked(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    response = client.messages.with_raw_response.create(
        **asked(), extra_headers={"X-Podium-Include-Run": "1"}
    )
    run_id = response.headers["x-podium-run"]
    assert response.http_response.json()["podium"]["run_id"] == run_id
    assert response.parse().id == run_id.replace("run_", "msg_")
    assert "podium" not in posted(runtime).json()


@pytest.mark.parametrize(("rules", "error", "status"), not_allowed(anthropic))
def test_forbidden_requests_raise_the_sdks_own_error(
    runtime: Runtime, rules: Rules, error: type[anthropic.APIStatusError], status: int
) -> None:
    with client_of(runtime, runtime.key(rules)) as client:
        if status == 429:
            client.messages.create(**asked())
        with pytest.raises(error) as caught:
            client.messages.create(**asked())
    assert caught.value.status_code == status


def test_a_wrong_key_is_an_authentication_error(runtime: Runtime) -> None:
    with client_of(runtime, "pk_wrong") as client, pytest.raises(anthropic.AuthenticationError):
        client.messages.create(**asked())


@pytest.mark.parametrize(
    ("wrong", "error", "named"),
    [
        ({"model": "podium-ultar"}, anthropic.NotFoundError, "podium-ultar"),
        ({"extra_body": {"temperature": 1.5}}, anthropic.BadRequestError, "temperature"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5000}},
            anthropic.BadRequestError,
            "thinking.budget_tokens",
        ),
    ],
)
def test_errors_are_named(
    client: anthropic.Anthropic,
    wrong: dict[str, Any],
    error: type[anthropic.APIStatusError],
    named: str,
) -> None:
    with pytest.raises(error, match=named):
        client.messages.create(**asked(**wrong))


@pytest.mark.parametrize("model", [ULTRA, "solver"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_fails_is_a_server_error(
    runtime: Runtime, client: anthropic.Anthropic, model: str, stream: bool
) -> None:
    for worker in runtime.workers:
        worker.says(Unavailable("no connection"))
    with pytest.raises(anthropic.InternalServerError, match="no connection") as caught:
        client.messages.create(**asked(model=model, stream=stream))
    assert caught.value.status_code == 502


def test_a_stream_that_cannot_go_on_ends_with_an_error(
    runtime: Runtime, client: anthropic.Anthropic
) -> None:
    async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("one two")
        raise Unavailable("broken off")

    runtime.solver.streams(stream_reply)
    stream = client.messages.create(**asked(model="solver", stream=True))
    with pytest.raises(anthropic.APIStatusError, match="broken off"):
        list(stream)


@pytest.mark.parametrize("model", [ULTRA, "solver"])
async def test_a_client_that_goes_away_stops_the_call(
    runtime: Runtime, async_client: anthropic.AsyncAnthropic, model: str
) -> None:
    runtime.solver.hangs_after()
    asking = asyncio.create_task(async_client.messages.create(**asked(model=model)))
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.to_thread(runtime.solver.being_asked.wait, PATIENCE)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await asyncio.to_thread(runtime.solver.cancelled.wait, PATIENCE)
