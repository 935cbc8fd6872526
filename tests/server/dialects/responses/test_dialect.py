from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core.request import ResponseOptions, system
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest
from podium.server.dialects.responses import RESPONSES
from support.readers import read_strictly

SCHEMA: Final = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
}

CODEX: Final[dict[str, Any]] = {
    "model": "podium",
    "instructions": "You are a coding agent.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "The sandbox is read-only."}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Fix the bug."}],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "**Looking**"}],
            "content": None,
            "encrypted_content": "gAAAAAB0",
        },
        {
            "type": "function_call",
            "name": "shell",
            "arguments": '{"command":["ls"]}',
            "call_id": "call_1",
            "internal_chat_message_metadata_passthrough": {"turn_id": "t1"},
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "main.py"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "shell",
            "description": "Runs a shell command.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                "required": ["command"],
                "additionalProperties": False,
            },
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"},
        },
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "stream_options": {"reasoning_summary_delivery": "sequential_cutoff"},
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "client_metadata": {"x-codex-installation-id": "7d1c"},
    "text": {"verbosity": "medium"},
}


def asked(**options: Any) -> ApiRequest:
    return read_strictly(RESPONSES, {"model": "podium", "input": "hello", **options})


def refused(**options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        asked(**options)
    assert caught.value.reason == "invalid"
    return caught.value


def test_a_plain_question_sets_no_option() -> None:
    plain = asked()
    assert plain.response_options == ResponseOptions()
    assert (plain.stream, plain.store, plain.shows_reasoning) == (False, True, False)


def test_codex_requests_are_understood() -> None:
    read = read_strictly(RESPONSES, CODEX)
    roles = [message.role for message in read.messages]
    assert roles == ["system", "system", "user", "assistant", "tool"]
    assert [tool.name for tool in read.response_options.tools] == ["shell", "apply_patch"]
    assert (read.stream, read.store, read.shows_reasoning) == (True, False, True)
    assert read.response_options.effort == "medium"


def test_limits_and_sampling_are_terms() -> None:
    response_options = asked(max_output_tokens=100, temperature=0, top_p=0.5).response_options
    assert (response_options.max_tokens, response_options.temperature, response_options.top_p) == (
        100,
        0,
        0.5,
    )


@pytest.mark.parametrize(
    ("effort", "meant"),
    [
        ("none", "none"),
        ("minimal", "minimal"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
    ],
)
def test_effort_is_a_term(effort: str, meant: str) -> None:
    assert asked(reasoning={"effort": effort}).response_options.effort == meant


@pytest.mark.parametrize("name", ["summary", "generate_summary"])
def test_a_summary_shows_reasoning(name: str) -> None:
    assert asked(reasoning={name: "concise"}).shows_reasoning


def test_effort_alone_shows_no_reasoning() -> None:
    assert not asked(reasoning={"effort": "high", "summary": None}).shows_reasoning


def test_a_schema_is_a_term_with_its_name_as_title() -> None:
    form = {"type": "json_schema", "name": "verdict", "strict": True, "schema": SCHEMA}
    schema = asked(text={"format": form}).response_options.schema
    assert schema == {"title": "verdict", **SCHEMA}


def test_json_mode_asks_for_an_object() -> None:
    assert asked(text={"format": {"type": "json_object"}}).response_options.schema == {
        "type": "object"
    }


def test_plain_text_has_no_schema() -> None:
    assert asked(text={"format": {"type": "text"}}).response_options.schema is None


def test_verbosity_becomes_an_instruction() -> None:
    read = asked(instructions="Be kind.", text={"verbosity": "low"})
    assert read.messages[:2] == (system("Be kind."), system("Keep your answer short."))
    assert len(asked(text={"verbosity": "medium"}).messages) == 1


def test_parallel_tool_calls_are_disabled_only_with_tools() -> None:
    tools = [{"type": "function", "name": "f"}]
    read = asked(tools=tools, parallel_tool_calls=False)
    assert (read.response_options.parallel_tools, len(read.messages)) == (False, 1)
    assert asked(parallel_tool_calls=False).response_options == ResponseOptions()
    assert asked(tools=tools, parallel_tool_calls=True).response_options.parallel_tools


def test_the_previous_response_is_its_run() -> None:
    assert (
        asked(previous_response_id="resp_0123456789abcdef").previous_response
        == "run_0123456789abcdef"
    )


def test_podium_params_are_read() -> None:
    params = asked(podium={"max_steps": 3, "budget": {"usd": 0.5}}).params
    assert (params.max_steps, params.budget) == (3, {"usd": 0.5})


def test_the_body_is_kept_for_fields_that_are_echoed() -> None:
    assert asked(metadata={"case": "7"}).raw_body["metadata"] == {"case": "7"}


def test_null_is_as_good_as_nothing() -> None:
    names = (
        *("instructions", "previous_response_id", "store", "metadata", "stream", "stream_options"),
        *("include", "background", "truncation", "service_tier", "max_output_tokens"),
        *("temperature", "top_p", "text", "reasoning", "tools", "tool_choice", "prompt"),
        *("parallel_tool_calls", "conversation", "max_tool_calls", "top_logprobs", "user"),
    )
    empty = read_strictly(RESPONSES, {"model": "podium", "input": "hello", **dict.fromkeys(names)})
    assert empty.response_options == ResponseOptions()
    assert empty.store


@pytest.mark.parametrize(
    "options",
    [
        {"user": "u1"},
        {"safety_identifier": "u1"},
        {"prompt_cache_retention": "24h"},
        {"prompt_cache_retention": "in_memory"},
        {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}},
        {"client_metadata": {"a": "b"}},
        {"service_tier": "auto"},
        {"truncation": "auto"},
        {"truncation": "disabled"},
        {"background": False},
        {"top_logprobs": 0},
        {"parallel_tool_calls": True},
        {"include": ["web_search_call.results", "message.input_image.image_url"]},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"reasoning": {"mode": "standard", "context": "auto"}},
    ],
)
def test_a_hint_sets_no_response_option(options: Any) -> None:
    assert asked(**options).response_options == ResponseOptions()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"instructions": ["Be kind."]}, "instructions"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"access_programs": {}}, "access_programs"),
        ({"image": {}}, "image"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"background": True, "stream": True}, "background"),
        ({"background": True, "store": False}, "background"),
        ({"truncation": "always"}, "truncation"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"include": ["everything"]}, "include.0"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {}}, "stream_options"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour"),
        ({"store": "no"}, "store"),
        ({"previous_response_id": "chatcmpl-1"}, "previous_response_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"depth": 3}}, "reasoning.depth"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "v"}}}, "text.format.schema"),
        ({"text": {"tone": "warm"}}, "text.tone"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"podium": {"speed": 3}}, "podium.speed"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"stop": ["x"]}, "stop"),
        ({"seed": 1}, "seed"),
    ],
)
def test_unsupported_options_are_refused_by_name(options: Any, field: str) -> None:
    refusal = refused(**options)
    assert refusal.field == field
    assert field in str(refusal)


def test_an_invalid_schema_is_refused() -> None:
    form = {"type": "json_schema", "name": "v", "schema": {"type": "banana"}}
    field = refused(text={"format": form}).field
    assert field is not None
    assert field.startswith("text.format.schema")


def test_the_error_names_the_setting_that_codex_must_change() -> None:
    assert "config.toml" in str(refused(tools=[{"type": "web_search"}]))


@pytest.mark.parametrize("value", [None, 7, "hello", [], [["model", "podium"]]])
def test_a_body_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="expected an object"):
        read_strictly(RESPONSES, value)


KEYS = st.sampled_from(
    (
        *CODEX,
        *("previous_response_id", "podium", "type", "role", "content", "call_id", "name", "output"),
        *("arguments", "format", "schema", "summary", "encrypted_content", "id", "namespace"),
        *("definition", "mode", "image_url", "max_output_tokens", "truncation"),
    )
)
WORDS = st.sampled_from(
    (
        *("message", "function", "custom", "namespace", "function_call", "function_call_output"),
        *("reasoning", "user", "assistant", "input_text", "input_image", "json_schema", "auto"),
        *("grammar", "allowed_tools", "podium.opaque.W10=", "resp_1", "data:image/png;base64,"),
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | WORDS
    | st.sampled_from(["\ud800", "\x00"])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_any_json_is_read_or_refused(value: Any) -> None:
    assert_read_or_refused(value)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(CODEX)), VALUES, max_size=3))
def test_any_change_to_a_body_is_read_or_refused(changes: dict[str, Any]) -> None:
    assert_read_or_refused(CODEX | changes)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_within_a_body_is_read_or_refused(data: st.DataObject) -> None:
    assert_read_or_refused(changed(CODEX, data))


def assert_read_or_refused(body: Any) -> None:
    match outcome(body):
        case ApiRequest() as read:
            assert read.messages[-1].role in ("user", "tool")
        case ApiError() as refusal:
            assert refusal.status in (400, 413)
            assert str(refusal).encode()


def outcome(body: Any) -> ApiRequest | ApiError:
    try:
        return read_strictly(RESPONSES, body)
    except ApiError as refusal:
        return refusal


def changed(value: Any, data: st.DataObject) -> Any:
    """The value with something in it put in another's place."""
    if not data.draw(st.booleans()):
        if isinstance(value, dict) and value:
            key = data.draw(st.sampled_from(sorted(value)))
            return {**value, key: changed(value[key], data)}
        if isinstance(value, list) and value:
            where = data.draw(st.integers(0, len(value) - 1))
            return [*value[:where], changed(value[where], data), *value[where + 1 :]]
    return data.draw(VALUES)


def test_the_key_of_the_prompt_cache_is_passed_on() -> None:
    assert asked(prompt_cache_key="mine").response_options == ResponseOptions(cache_key="mine")


@pytest.mark.parametrize(("summary", "shown"), [("none", False), ("auto", True), (None, False)])
def test_a_client_without_summaries_gets_no_progress(summary: str | None, shown: bool) -> None:
    assert asked(reasoning={"summary": summary}).shows_reasoning is shown
