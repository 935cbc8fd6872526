from __future__ import annotations

from typing import Any, Final

import pytest

from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Thinking, ToolCall, Usage
from podium.server.api_error import ERRORS, ApiError
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.dialects.responses import RESPONSES
from podium.server.dialects.responses_items import (
    read_response_id,
    response_id,
)
from podium.server.dialects.responses_output import (
    response_usage,
)
from support.responses_sdk import valid_response

USED: Final = Usage(30, 12, 4, 2, 3)
PLANNED: Final = Usage(10, 5, 1, 0, 0)
THOUGHT: Final = Thinking("Let me see.", opaque="signed", model="claude")
SEALED: Final = {"include": ["reasoning.encrypted_content"]}


def format_response(ended: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    asked = RESPONSES.read({"model": "podium", "input": "hello", **options})
    parts = {"usage": USED, "orchestration": PLANNED, **(ended or {"text": "Hello"})}
    return RESPONSES.format_response(
        asked, ApiResponse(id="run_1f", model="podium", created=17, **parts)
    )


def test_a_response_has_the_id_of_its_run_and_back() -> None:
    assert response_id("run_0123456789abcdef") == "resp_0123456789abcdef"
    assert read_response_id("resp_0123456789abcdef") == "run_0123456789abcdef"


@pytest.mark.parametrize(
    "odd", ["", "run_1f", "resp_", "resp_../x", "resp_1 ", "resp_" + "f" * 200]
)
def test_invalid_response_ids_are_refused(odd: str) -> None:
    with pytest.raises(ApiError, match="Expected an ID that begins with 'resp_'"):
        read_response_id(odd)


def test_an_answer_is_a_response_that_the_sdk_knows() -> None:
    found = valid_response(format_response())
    assert (found.id, found.status, found.output_text) == ("resp_1f", "completed", "Hello")
    assert found.created_at == 17
    assert found.error is None
    assert found.incomplete_details is None


def test_usage_sums_every_call_with_planning_in_the_details() -> None:
    usage = format_response()["usage"]
    assert usage == {
        "input_tokens": 30,
        "input_tokens_details": {
            "cached_tokens": 4,
            "cache_write_tokens": 3,
            "orchestration_input_tokens": 10,
            "orchestration_input_cached_tokens": 1,
        },
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 2, "orchestration_output_tokens": 5},
        "total_tokens": 42,
    }


def test_runs_without_a_plan_show_no_plan_details() -> None:
    usage = response_usage(USED, NO_USAGE)
    assert usage is not None
    assert usage["output_tokens_details"] == {"reasoning_tokens": 2}


def test_usage_with_an_unknown_total_is_null() -> None:
    assert response_usage(Usage(5, None), NO_USAGE) is None
    assert response_usage(UNKNOWN_USAGE, UNKNOWN_USAGE) is None


def test_a_response_echoes_the_request() -> None:
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    options: dict[str, Any] = {
        "instructions": "Be kind.",
        "metadata": {"case": "7"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "tools": tools,
        "tool_choice": "required",
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"verbosity": "low"},
        "store": False,
        "user": "u1",
        "prompt_cache_key": "k",
        "previous_response_id": "resp_2a",
    }
    document = format_response(**options)
    valid_response(document)
    same = ("instructions", "metadata", "temperature", "top_p", "max_output_tokens", "tools")
    more = ("tool_choice", "store", "user", "prompt_cache_key", "previous_response_id")
    assert {name: document[name] for name in (*same, *more)} == {
        name: options[name] for name in (*same, *more)
    }
    assert document["reasoning"] == {"effort": "high", "summary": "auto"}
    assert document["text"] == {"format": {"type": "text"}, "verbosity": "low"}


def test_tool_calls_are_items_of_their_own() -> None:
    calls = (ToolCall("call_1", "f", '{"a":1}'), ToolCall("call_2", "f", "{}"))
    found = valid_response(
        format_response({"text": "Wait.", "tool_calls": calls, "finish": "tool"})
    )
    assert [item.type for item in found.output] == ["message", "function_call", "function_call"]
    assert found.status == "completed"


def test_a_tool_of_a_namespace_is_called_by_the_names_that_the_client_gave() -> None:
    inner = {"type": "function", "name": "search", "parameters": {"type": "object"}}
    group = {"type": "namespace", "name": "mcp__docs__", "description": "Docs", "tools": [inner]}
    call = ToolCall("call_1", "mcp__docs__search", "{}")
    document = format_response({"tool_calls": (call,), "finish": "tool"}, tools=[group])
    valid_response(document)
    item = document["output"][0]
    assert (item["namespace"], item["name"]) == ("mcp__docs__", "search")


@pytest.mark.parametrize("arguments", ["*** Begin", '{"inp', '["x"]', '{"input": 5}'])
def test_malformed_custom_tool_input_is_passed_on(arguments: str) -> None:
    call = ToolCall("call_1", "patch", arguments)
    tools = [{"type": "custom", "name": "patch"}]
    item = format_response({"tool_calls": (call,), "finish": "tool"}, tools=tools)["output"][0]
    assert item["input"] == arguments


def test_thinking_is_sent_only_on_request() -> None:
    ended = {"text": "Hi", "thinking": (THOUGHT,)}
    assert [item["type"] for item in format_response(ended)["output"]] == ["message"]
    shown = format_response(ended, reasoning={"summary": "auto"})
    valid_response(shown)
    assert shown["output"][0]["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert "encrypted_content" not in shown["output"][0]


def test_thinking_is_sealed_where_the_client_keeps_it() -> None:
    document = format_response({"text": "Hi", "thinking": (THOUGHT,)}, **SEALED)
    valid_response(document)
    reasoning = document["output"][0]
    assert reasoning["summary"] == []
    assert "claude" not in reasoning["encrypted_content"]


def test_thinking_without_any_models_state_is_not_sealed() -> None:
    document = format_response(
        {"text": "Hi", "thinking": (Thinking("Hm.", model="llama"),)}, **SEALED
    )
    assert [item["type"] for item in document["output"]] == ["message"]


def test_sealed_thinking_comes_back_as_it_was() -> None:
    document = format_response({"text": "Hi", "thinking": (THOUGHT,)}, **SEALED)
    again = [*document["output"], {"role": "user", "content": "And now?"}]
    asked = RESPONSES.read({"model": "podium", "input": again})
    assert asked.messages[0].parts[0] == THOUGHT
    assert asked.messages[0].text == "Hi"


def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    found = valid_response(format_response({"text": "Hel", "finish": "length"}))
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"


def test_a_refusal_is_reported_as_one() -> None:
    found = valid_response(format_response({"text": "I will not.", "finish": "refused"}))
    item = found.output[0]
    assert item.type == "message"
    assert item.content[0].type == "refusal"
    assert found.output_text == ""


def test_a_refusal_without_a_word_is_incomplete_for_its_content() -> None:
    found = valid_response(format_response({"text": "", "finish": "refused"}))
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "content_filter"


def test_the_ids_of_items_name_their_response() -> None:
    asked = RESPONSES.read({"model": "podium", "input": "hello"})
    answer = ApiResponse(id="run_1f_2", model="podium", created=17, text="Hello")
    one, other = format_response(), RESPONSES.format_response(asked, answer)
    assert (one["id"], one["output"][0]["id"]) == ("resp_1f", "msg_1f")
    assert (other["id"], other["output"][0]["id"]) == ("resp_1f_2", "msg_1f_2")


def test_the_same_answer_has_the_same_ids() -> None:
    assert format_response() == format_response()


@pytest.mark.parametrize("reason", ERRORS)
def test_every_refusal_has_a_body_in_openais_shape(reason: Any) -> None:
    body = RESPONSES.format_error(ApiError(reason, "not like this", field="input"))
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["message"], body["error"]["param"]) == ("not like this", "input")


def test_messages_are_named_input() -> None:
    refusal = ApiError("invalid", "ask something", field="messages")
    assert RESPONSES.format_error(refusal)["error"]["param"] == "input"


def test_an_error_with_a_code_of_its_own_is_reported_with_it() -> None:
    refusal = ApiError("invalid", "it was deleted", code="previous_response_not_found")
    assert RESPONSES.format_error(refusal)["error"]["code"] == "previous_response_not_found"


def test_a_response_can_be_rendered_without_its_request() -> None:
    asked = ApiRequest(model="podium", messages=())
    again = RESPONSES.format_response(
        asked, ApiResponse(id="run_1f", model="podium", created=17, text="Hello")
    )
    assert valid_response(again).output_text == "Hello"
    assert again["output"] == format_response()["output"]
