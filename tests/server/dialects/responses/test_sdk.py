"""The real openai SDK over the dialect: what it sends is understood, what it reads is whole."""

from __future__ import annotations

from typing import Any, Final

import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseInputParam
from pydantic import BaseModel

from podium.core.request import UNKNOWN_USAGE, Image, Text, Thinking, ToolCall, ToolResult, Usage
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiResponse
from support.openai_sdk import ERRORS
from support.responses_sdk import SdkServer

CLOCK: Final[FunctionToolParam] = {
    "type": "function",
    "name": "clock",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "strict": False,
}
CALLS: Final = (ToolCall("call_1", "clock", '{"zone":"UTC"}'), ToolCall("call_2", "clock", "{}"))
THOUGHT: Final = Thinking("Hm.", opaque="signed", model="claude")


class Sum(BaseModel):
    """A sum and how it was found."""

    steps: list[str]
    total: int


def answer(text: str = "", **fields: Any) -> ApiResponse:
    return ApiResponse(id="run_1f", model="podium", created=7, text=text, **fields)


def test_a_plain_question_is_answered() -> None:
    sdk_server = SdkServer(answer("Because.", usage=Usage(3, 4, 0, 0, 0)))
    response = sdk_server.client.responses.create(
        model="podium", input="Why?", instructions="Be kind."
    )
    assert response.output_text == "Because."
    assert response.usage is not None
    assert response.usage.total_tokens == 7
    assert [message.text for message in sdk_server.asked[0].messages] == ["Be kind.", "Why?"]


async def test_a_plain_question_is_answered_to_the_async_client() -> None:
    sdk_server = SdkServer(answer("Because."))
    response = await sdk_server.async_client.responses.create(model="podium", input="Why?")
    assert response.output_text == "Because."


def test_unknown_usage_is_none_for_the_sdk() -> None:
    sdk_server = SdkServer(answer("Because.", usage=UNKNOWN_USAGE))
    assert sdk_server.client.responses.create(model="podium", input="Why?").usage is None


def test_a_stream_is_read_to_its_end() -> None:
    sdk_server = SdkServer(answer("Because.", usage=Usage(3, 4, 0, 0, 0)))
    stream = sdk_server.client.responses.create(model="podium", input="Why?", stream=True)
    events = list(stream)
    words = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(words) == "Because."
    assert events[-1].type == "response.completed"


async def test_a_stream_is_read_to_its_end_by_the_async_client() -> None:
    sdk_server = SdkServer(answer("Because."))
    manager = sdk_server.async_client.responses.stream(model="podium", input="Why?")
    async with manager as stream:
        assert (await stream.get_final_response()).output_text == "Because."


def test_reasoning_is_sent_on_request() -> None:
    sdk_server = SdkServer(answer("So.", thinking=(THOUGHT,)))
    stream = sdk_server.client.responses.create(
        model="podium", input="Why?", stream=True, reasoning={"effort": "high", "summary": "auto"}
    )
    done = [event.text for event in stream if event.type == "response.reasoning_summary_text.done"]
    assert done == ["step 1: solver", "Hm."]
    assert sdk_server.asked[0].response_options.effort == "high"


def test_structured_output_is_parsed() -> None:
    sdk_server = SdkServer(answer('{"steps": ["2+2"], "total": 4}'))
    response = sdk_server.client.responses.parse(model="podium", input="2+2?", text_format=Sum)
    assert response.output_parsed == Sum(steps=["2+2"], total=4)
    schema = sdk_server.asked[0].response_options.schema
    assert schema is not None
    assert set(schema["properties"]) == {"steps", "total"}


def test_structured_output_is_parsed_from_a_stream() -> None:
    sdk_server = SdkServer(answer('{"steps": [], "total": 4}'))
    with sdk_server.client.responses.stream(model="podium", input="?", text_format=Sum) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == Sum(steps=[], total=4)


def test_a_refusal_of_structured_output_parses_to_nothing() -> None:
    sdk_server = SdkServer(answer("I will not.", finish="refused"))
    response = sdk_server.client.responses.parse(model="podium", input="?", text_format=Sum)
    assert response.output_parsed is None


def test_parsed_text_is_taken_back() -> None:
    sdk_server = SdkServer(answer('{"steps": [], "total": 4}'), answer('{"steps": [], "total": 5}'))
    response = sdk_server.client.responses.parse(model="podium", input="2+2?", text_format=Sum)
    again: Any = [*response.to_dict()["output"], {"role": "user", "content": "2+3?"}]  # type: ignore[misc]
    sdk_server.client.responses.create(model="podium", input=again)
    assert sdk_server.asked[1].messages[0].text == '{"steps": [], "total": 4}'


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_come_back(stream: bool) -> None:
    sdk_server = SdkServer(
        answer("Let me look.", thinking=(THOUGHT,), tool_calls=CALLS, finish="tool"),
        answer("It is noon."),
    )
    asked: dict[str, Any] = {
        "model": "podium",
        "tools": [CLOCK],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }
    conversation: Any = [{"role": "user", "content": "What time is it?"}]
    if stream:
        with sdk_server.client.responses.stream(input=conversation, **asked) as heard:
            items: Any = heard.get_final_response().output
    else:
        items = sdk_server.client.responses.create(input=conversation, **asked).output
    conversation += items
    conversation += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "12:00"}
        for item in items
        if item.type == "function_call"
    ]
    second = sdk_server.client.responses.create(input=conversation, **asked)
    assert second.output_text == "It is noon."
    _, did, results = sdk_server.asked[1].messages
    assert did.parts == (THOUGHT, Text("Let me look."), *CALLS)
    assert results.parts == (ToolResult("call_1", "12:00"), ToolResult("call_2", "12:00"))


def test_a_conversation_continues_by_the_id_of_its_last_response() -> None:
    sdk_server = SdkServer(answer("One."), answer("Two."))
    first = sdk_server.client.responses.create(model="podium", input="Count.")
    sdk_server.client.responses.create(
        model="podium", input="Go on.", previous_response_id=first.id
    )
    assert sdk_server.asked[1].previous_response == "run_1f"


def test_images_reach_the_worker() -> None:
    sdk_server = SdkServer(answer("A cat."))
    items: ResponseInputParam = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "detail": "auto", "image_url": "https://example.org/c.png"},
            ],
        }
    ]
    sdk_server.client.responses.create(model="podium", input=items)
    picture = Image(url="https://example.org/c.png", detail="auto")
    assert sdk_server.asked[0].messages[0].parts[1] == picture


@pytest.mark.parametrize(("refusal", "error"), ERRORS)
def test_a_refusal_is_the_sdks_own_error(refusal: ApiError, error: type[Exception]) -> None:
    with pytest.raises(error, match=str(refusal)):
        SdkServer(refusal).client.responses.create(model="podium", input="Why?")


def test_a_bad_request_names_its_field_in_the_sdks_error() -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        SdkServer().client.responses.create(model="podium", input="Why?", max_tool_calls=1)
    assert caught.value.param == "max_tool_calls"


def test_a_stream_that_fails_reports_the_error_and_what_came_before() -> None:
    sdk_server = SdkServer(ApiError("upstream", "no worker could answer"))
    events = list(sdk_server.client.responses.create(model="podium", input="Why?", stream=True))
    error, failed = events[-2:]
    assert error.type == "error"
    assert error.message == "no worker could answer"
    assert failed.type == "response.failed"
    assert failed.response.output_text == "Half a "


def test_an_answer_that_was_cut_off_says_why() -> None:
    sdk_server = SdkServer(answer("Becau", finish="length"))
    response = sdk_server.client.responses.create(model="podium", input="Why?", max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert sdk_server.asked[0].response_options.max_tokens == 5
