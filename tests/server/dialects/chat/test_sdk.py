"""The real openai SDK over the dialect: what it sends is understood, what it reads is whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from pydantic import BaseModel

from podium.core.request import UNKNOWN_USAGE, Image, Text, Thinking, ToolCall, ToolResult, Usage
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiResponse
from support.chat_sdk import SdkServer
from support.openai_sdk import ERRORS

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Why?"}]
CLOCK: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "clock"}}
CALLS = (ToolCall("call_1", "clock", '{"zone":"UTC"}'), ToolCall("call_2", "clock", "{}"))


class Sum(BaseModel):
    """A sum and how it was found."""

    steps: list[str]
    total: int


def answer(text: str = "", **fields: Any) -> ApiResponse:
    return ApiResponse(id="run_1f", model="podium", created=7, text=text, **fields)


def test_a_plain_question_is_answered() -> None:
    sdk_server = SdkServer(answer("Because.", usage=Usage(3, 4, 0, 0, 0)))
    response = sdk_server.client.chat.completions.create(model="podium", messages=QUESTION)
    assert response.choices[0].message.content == "Because."
    assert response.usage is not None
    assert response.usage.total_tokens == 7


def test_unknown_usage_is_none_for_the_sdk() -> None:
    sdk_server = SdkServer(answer("Because.", usage=UNKNOWN_USAGE))
    response = sdk_server.client.chat.completions.create(model="podium", messages=QUESTION)
    assert response.usage is None


def test_a_stream_is_read_to_its_end() -> None:
    sdk_server = SdkServer(answer("Be cause.", usage=Usage(3, 4, 0, 0, 0)))
    stream = sdk_server.client.chat.completions.create(
        model="podium", messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    events = list(stream)
    words = [chunk.choices[0].delta.content for chunk in events if chunk.choices]
    assert words == ["", "Be", "cause.", None]
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 4


def test_reasoning_is_sent_on_request() -> None:
    sdk_server = SdkServer(answer("So.", thinking=(Thinking("Hm"),)))
    stream = sdk_server.client.chat.completions.create(
        model="podium", messages=QUESTION, stream=True, reasoning_effort="high"
    )
    seen = [chunk.choices[0].delta.model_extra for chunk in stream]
    assert [extra["reasoning_content"] for extra in seen if extra] == ["step 1: solver\n", "Hm"]


def test_the_stream_helper_assembles_the_whole_completion() -> None:
    sdk_server = SdkServer(answer("Be cause.", usage=Usage(3, 4, 0, 0, 0)))
    with sdk_server.client.chat.completions.stream(
        model="podium", messages=QUESTION, stream_options={"include_usage": True}
    ) as stream:
        words = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert words == ["", "Be", "cause."]
    assert whole.choices[0].message.content == "Because."
    assert whole.usage is not None


def test_a_parsed_answer_is_the_model_that_was_asked_for() -> None:
    sdk_server = SdkServer(answer('{"steps": ["1+1"], "total": 2}'))
    response = sdk_server.client.chat.completions.parse(
        model="podium", messages=QUESTION, response_format=Sum
    )
    assert response.choices[0].message.parsed == Sum(steps=["1+1"], total=2)
    schema = sdk_server.asked[0].response_options.schema
    assert schema is not None
    assert schema["required"] == ["steps", "total"]
    assert schema["additionalProperties"] is False


def test_a_parsed_answer_may_be_streamed() -> None:
    sdk_server = SdkServer(answer('{"steps":["1+1"],"total":2}'))
    with sdk_server.client.chat.completions.stream(
        model="podium", messages=QUESTION, response_format=Sum
    ) as stream:
        whole = stream.get_final_completion()
    assert whole.choices[0].message.parsed == Sum(steps=["1+1"], total=2)


def test_an_answer_cut_off_is_not_parsed() -> None:
    sdk_server = SdkServer(answer('{"steps": [', finish="length"))
    with pytest.raises(openai.LengthFinishReasonError):
        sdk_server.client.chat.completions.parse(
            model="podium", messages=QUESTION, response_format=Sum
        )


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK's own doing
def test_a_message_that_was_parsed_can_be_sent_back() -> None:
    sdk_server = SdkServer(answer('{"steps": [], "total": 2}'), answer("Yes."))
    response = sdk_server.client.chat.completions.parse(
        model="podium", messages=QUESTION, response_format=Sum
    )
    said: Any = response.choices[0].message
    more: list[Any] = [*QUESTION, said, {"role": "user", "content": "Sure?"}]
    sdk_server.client.chat.completions.create(model="podium", messages=more)
    assert [message.role for message in sdk_server.asked[1].messages] == [
        "user",
        "assistant",
        "user",
    ]


def results(calls: Iterable[Any]) -> list[Any]:
    return [{"role": "tool", "tool_call_id": call.id, "content": "noon"} for call in calls]


def test_parallel_calls_go_out_and_their_results_come_back() -> None:
    sdk_server = SdkServer(answer(tool_calls=CALLS, finish="tool"), answer("Noon."))
    response = sdk_server.client.chat.completions.create(
        model="podium", messages=QUESTION, tools=[CLOCK]
    )
    said = response.choices[0].message
    assert response.choices[0].finish_reason == "tool_calls"
    assert said.tool_calls is not None
    back: list[Any] = [*QUESTION, said, *results(said.tool_calls)]
    sdk_server.client.chat.completions.create(model="podium", messages=back, tools=[CLOCK])
    assert sdk_server.asked[1].messages[-2].parts == CALLS
    assert sdk_server.asked[1].messages[-1].parts == (
        ToolResult("call_1", "noon"),
        ToolResult("call_2", "noon"),
    )


def test_streamed_calls_are_put_together_by_the_helper_and_can_be_sent_back() -> None:
    sdk_server = SdkServer(answer("One moment.", tool_calls=CALLS, finish="tool"), answer("Noon."))
    with sdk_server.client.chat.completions.stream(
        model="podium", messages=QUESTION, tools=[openai.pydantic_function_tool(Sum)]
    ) as stream:
        said = stream.get_final_completion().choices[0].message
    assert said.tool_calls is not None
    assert [(call.id, call.function.arguments) for call in said.tool_calls] == [
        ("call_1", '{"zone":"UTC"}'),
        ("call_2", "{}"),
    ]
    back: list[Any] = [*QUESTION, said, *results(said.tool_calls)]
    sdk_server.client.chat.completions.create(model="podium", messages=back)
    assert sdk_server.asked[1].messages[-2].parts == (Text("Onemoment."), *CALLS)


def test_arguments_of_a_pydantic_tool_are_parsed() -> None:
    call = ToolCall("call_1", "Sum", '{"steps": [], "total": 3}')
    sdk_server = SdkServer(answer(tool_calls=(call,), finish="tool"))
    response = sdk_server.client.chat.completions.parse(
        model="podium", messages=QUESTION, tools=[openai.pydantic_function_tool(Sum)]
    )
    calls = response.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.parsed_arguments == Sum(steps=[], total=3)
    assert [tool.name for tool in sdk_server.asked[0].response_options.tools] == ["Sum"]


def test_pictures_are_understood() -> None:
    sdk_server = SdkServer(answer("A cat."))
    sdk_server.client.chat.completions.create(
        model="podium",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                ],
            }
        ],
    )
    assert sdk_server.asked[0].messages[0].parts[1] == Image(url="https://example.org/a.png")


def test_podium_params_travel_in_the_extra_body() -> None:
    sdk_server = SdkServer(answer("Because."))
    sdk_server.client.chat.completions.create(
        model="podium", messages=QUESTION, extra_body={"podium": {"budget": {"usd": 0.1}}}
    )
    assert sdk_server.asked[0].params.budget == {"usd": 0.1}


def test_a_bad_field_is_a_bad_request_that_names_it() -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        SdkServer().client.chat.completions.create(model="podium", messages=QUESTION, n=2)
    assert caught.value.param == "n"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(("refusal", "error"), ERRORS)
def test_a_refusal_is_the_sdks_own_error(refusal: ApiError, error: type[Exception]) -> None:
    with pytest.raises(error, match=str(refusal)):
        SdkServer(refusal).client.chat.completions.create(model="podium", messages=QUESTION)


def test_a_stream_that_fails_raises_after_what_was_sent() -> None:
    sdk_server = SdkServer(ApiError("upstream", "the worker broke off"))
    stream = sdk_server.client.chat.completions.create(
        model="podium", messages=QUESTION, stream=True
    )
    words: list[str] = []
    with pytest.raises(openai.APIError, match="the worker broke off") as caught:
        words.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert caught.value.code == "upstream_error"


def test_the_wire_holds_no_more_than_the_sdk_knows() -> None:
    sdk_server = SdkServer(answer("Because.", usage=Usage(3, 4, 0, 0, 0)))
    raw = sdk_server.client.chat.completions.with_raw_response.create(
        model="podium", messages=QUESTION
    )
    assert json.loads(raw.content).keys() == {
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
    }
