"""Chat Completions bodies: every field is honoured, harmless or refused by name."""

from __future__ import annotations

import json
import time
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from podium.core.request import DEFAULT_RESPONSE_OPTIONS, ResponseOptions, Tool
from podium.server.api_error import ApiError
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiRequest, PodiumParams
from support.readers import ignored_keys, read_strictly

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CHOSEN = {"type": "function", "function": {"name": "clock"}}
PENALTIES = ["frequency_penalty", "presence_penalty"]
PADDING = "stream_options.include_obfuscation"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "podium", "messages": [{"role": "user", "content": "Why?"}], **fields}


def read(**fields: Any) -> ApiRequest:
    return read_strictly(CHAT, body(**fields))


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


def test_a_plain_body_sets_no_option() -> None:
    asked = read()
    assert asked.model == "podium"
    assert asked.response_options == DEFAULT_RESPONSE_OPTIONS
    assert not asked.stream
    assert asked.store
    assert not asked.shows_reasoning
    assert asked.params == PodiumParams()


def test_the_body_is_kept_for_what_is_repeated() -> None:
    assert read(metadata={"a": "b"}).raw_body["metadata"] == {"a": "b"}


def test_null_is_the_same_as_absent_for_all_that_is_optional() -> None:
    names = get_type_hints(CompletionCreateParamsStreaming).keys() - {"model", "messages"}
    assert read(**dict.fromkeys(names)).response_options == DEFAULT_RESPONSE_OPTIONS


def test_every_field_of_the_sdk_is_known_here() -> None:
    hints = get_type_hints(CompletionCreateParamsStreaming)
    names = {*hints, *get_type_hints(CompletionCreateParamsNonStreaming)}
    fields = CHAT.fields
    assert names - {"prediction"} <= {
        *fields.supported,
        *fields.without_effect,
        *fields.unsupported,
    }
    for name in names:
        if found := _refused(body(**{name: object()})):
            assert (found.field or "").startswith(name)


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"something_new": True}, ["something_new"]),
        ({"prediction": {"type": "content", "content": "a"}}, ["prediction"]),
        ({"frequency_penalty": 0.5, "presence_penalty": 1}, PENALTIES),
        ({"top_k": 4, "min_p": 0.1}, ["top_k", "min_p"]),
        ({"service_tier": "flex"}, ["service_tier"]),
        ({"tools": [{**CLOCK, "x": 1}]}, ["tools.0.x"]),
        ({"tools": [CLOCK], "tool_choice": {**CHOSEN, "y": 2}}, ["tool_choice.y"]),
        ({"response_format": {"type": "text", "z": 3}}, ["response_format.z"]),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, [PADDING]),
    ],
)
def test_a_tier_ignores_what_it_does_not_know_and_names_it(
    fields: dict[str, Any], ignored: list[str]
) -> None:
    assert ignored_keys(CHAT, body(**fields)) == ignored


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "logprobs": False, "top_logprobs": 0, "logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "modalities": ["text"]},
        {"functions": [], "function_call": "auto", "service_tier": "auto"},
        {"user": 7, "prompt_cache_retention": "9h", "prompt_cache_options": {"ttl": "9h"}},
        {"something_new": None},
    ],
)
def test_no_change_prints_nothing(fields: dict[str, Any]) -> None:
    assert read(**fields).response_options == DEFAULT_RESPONSE_OPTIONS
    assert ignored_keys(CHAT, body(**fields)) == []


def test_options_for_single_workers_are_kept() -> None:
    asked = CHAT.read(body(n=3, min_p=0.1, functions=[], top_k=None, seed=7))
    assert asked.extra == {"n": 3, "min_p": 0.1, "functions": []}


def _refused(value: Any) -> ApiError | None:
    try:
        asked = read_strictly(CHAT, value)
    except ApiError as found:
        return found
    assert isinstance(asked, ApiRequest)
    return None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", "someone"),
        ("safety_identifier", "hash"),
        ("service_tier", "auto"),
        ("service_tier", "default"),
        ("metadata", {"topic": "sums"}),
        ("prompt_cache_options", {"mode": "implicit", "ttl": "30m"}),
        ("prompt_cache_retention", "24h"),
        ("prompt_cache_retention", "in_memory"),
        ("n", 1),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("frequency_penalty", 0.0),
        ("presence_penalty", 0),
        ("logit_bias", {}),
        ("modalities", ["text"]),
        ("verbosity", "medium"),
        ("parallel_tool_calls", True),
        ("parallel_tool_calls", False),
        ("tool_choice", "auto"),
        ("tool_choice", "none"),
        ("response_format", {"type": "text"}),
        ("tools", []),
    ],
)
def test_options_without_effect_are_accepted(field: str, value: object) -> None:
    assert read(**{field: value}).response_options == DEFAULT_RESPONSE_OPTIONS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", "one"),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -1),
        ("logit_bias", {"50256": -100}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("moderation", {"model": "omni-moderation-latest"}),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("service_tier", "flex"),
        ("verbosity", "endless"),
        ("metadata", {"a": 1}),
        ("temperature", 2.5),
        ("temperature", "hot"),
        ("top_p", 1.5),
        ("seed", 0.5),
        ("seed", 2**63),
        ("max_tokens", 0),
        ("max_completion_tokens", -1),
        ("reasoning_effort", "extreme"),
        ("stream", "yes"),
        ("store", 1),
        ("stop", ""),
        ("stop", 3),
        ("stop", list("abcde")),
        ("tools", {}),
        ("tools", [WEATHER] * 200),
        ("tool_choice", "any"),
        ("tool_choice", "required"),
        ("response_format", "json"),
        ("response_format", {"type": "xml"}),
        ("model", ""),
        ("model", None),
        ("model", ["podium"]),
        ("podium", {"budgets": {}}),
    ],
)
def test_unsupported_options_are_refused_and_named(field: str, value: object) -> None:
    found = refusal(**{field: value})
    assert found.status == 400
    assert (found.field or "").split(".")[0] == field
    assert field in str(found)


def test_a_misspelt_field_is_reported_with_the_nearest_name() -> None:
    assert "did you mean 'max_completion_tokens'?" in str(refusal(max_completion_token=5))


def test_sampling_is_passed_on() -> None:
    response_options = read(
        temperature=0.5, top_p=0.9, seed=7, stop=["END", "\n\n"]
    ).response_options
    assert response_options == ResponseOptions(
        temperature=0.5, top_p=0.9, seed=7, stop=("END", "\n\n")
    )


def test_a_single_stop_is_one_stop() -> None:
    assert read(stop="END").response_options.stop == ("END",)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_length_has_an_old_and_a_new_name(field: str) -> None:
    assert read(**{field: 9}).response_options.max_tokens == 9


def test_both_names_may_say_the_same() -> None:
    assert read(max_tokens=9, max_completion_tokens=9).response_options.max_tokens == 9


def test_two_different_lengths_are_refused() -> None:
    found = refusal(max_tokens=9, max_completion_tokens=10)
    assert found.field == "max_tokens"
    assert "9" in str(found)
    assert "10" in str(found)


@pytest.mark.parametrize(
    ("effort", "means", "shows"),
    [
        ("none", "none", False),
        ("minimal", "minimal", True),
        ("high", "high", True),
        ("xhigh", "high", True),
        ("max", "high", True),
    ],
)
def test_effort_is_passed_on_and_asks_to_see_reasoning(
    effort: str, means: str, shows: bool
) -> None:
    asked = read(reasoning_effort=effort)
    assert asked.response_options.effort == means
    assert asked.shows_reasoning is shows


def test_a_stream_ends_with_usage_only_where_it_is_asked_for() -> None:
    assert not read(stream=True).shows_usage
    assert read(stream=True, stream_options={"include_usage": True}).shows_usage
    assert not read(stream=True, stream_options={"include_usage": False}).shows_usage


def test_an_answer_in_one_piece_always_has_usage() -> None:
    assert read().shows_usage


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
    ],
)
def test_stream_options_are_for_streams(fields: dict[str, Any], field: str) -> None:
    assert refusal(**fields).field == field


def test_a_stream_need_not_be_padded() -> None:
    assert read(stream=True, stream_options={"include_obfuscation": False}).stream


def test_a_run_need_not_be_kept() -> None:
    assert not read(store=False).store
    assert read(store=True).store


def test_tools_are_passed_on() -> None:
    response_options = read(tools=[WEATHER, CLOCK]).response_options
    assert response_options.tools == (
        Tool("weather", "Tells the weather", WEATHER["function"]["parameters"]),  # type: ignore[index]
        Tool("clock", "", {"type": "object", "properties": {}}),
    )
    assert response_options.tool_choice == ""


def test_a_strict_function_is_taken() -> None:
    strict = {"type": "function", "function": {"name": "clock", "strict": True}}
    assert [tool.name for tool in read(tools=[strict]).response_options.tools] == ["clock"]


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_choice_of_tools_is_passed_on(choice: str) -> None:
    assert read(tools=[WEATHER], tool_choice=choice).response_options.tool_choice == choice


def test_a_named_tool_may_be_demanded() -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    assert read(tools=[WEATHER, CLOCK], tool_choice=named).response_options.tool_choice == "clock"


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_the_allowed_tools_reach_the_workers(mode: str) -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [CLOCK]}}
    response_options = read(tools=[WEATHER, CLOCK], tool_choice=allowed).response_options
    assert [tool.name for tool in response_options.tools] == ["clock"]
    assert response_options.tool_choice == mode


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ([{"type": "custom", "custom": {"name": "x"}}], "tools.0.type"),
        ([{"type": "function"}], "tools.0.function"),
        ([{"function": {"name": "x"}}], "tools.0.type"),
        ([{"type": "function", "function": {}}], "tools.0.function.name"),
        ([{"type": "function", "function": {"name": "a b"}}], "tools.0.function.name"),
        ([{"type": "function", "function": {"name": "a", "args": {}}}], "tools.0.function.args"),
        (
            [{"type": "function", "function": {"name": "a", "parameters": {"type": "text"}}}],
            "tools.0.function.parameters.type",
        ),
        ([CLOCK, CLOCK], "tools.1"),
    ],
)
def test_tool_definition_errors_are_named(tools: list[Any], field: str) -> None:
    assert refusal(tools=tools).field == field


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ({"type": "function", "function": {"name": "nobody"}}, "tool_choice.function.name"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "custom", "custom": {"name": "clock"}}, "tool_choice.type"),
        ({"type": "function", "function": {"name": "clock"}, "more": 1}, "tool_choice.more"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
            "tool_choice.allowed_tools.tools",
        ),
    ],
)
def test_an_unknown_choice_is_refused(choice: Any, field: str) -> None:
    assert refusal(tools=[CLOCK], tool_choice=choice).field == field


def test_a_tool_that_is_named_as_a_choice_cannot_be_demanded() -> None:
    auto = {"type": "function", "function": {"name": "auto"}}
    assert refusal(tools=[auto], tool_choice=auto).field == "tool_choice.function.name"


def test_parallel_tool_calls_may_be_disabled() -> None:
    assert not read(tools=[CLOCK], parallel_tool_calls=False).response_options.parallel_tools
    assert read(tools=[CLOCK], parallel_tool_calls=True).response_options.parallel_tools
    assert refusal(parallel_tool_calls="no").field == "parallel_tool_calls"


def test_a_json_object_is_a_schema_of_any_object() -> None:
    assert read(response_format={"type": "json_object"}).response_options.schema == {
        "type": "object"
    }


def test_a_schema_takes_its_name_and_description_along() -> None:
    form = {"name": "sum", "description": "A sum", "strict": True, "schema": {"type": "object"}}
    response_options = read(
        response_format={"type": "json_schema", "json_schema": form}
    ).response_options
    assert response_options.schema == {"title": "sum", "description": "A sum", "type": "object"}


def test_the_words_of_the_schema_itself_come_first() -> None:
    form = {"name": "sum", "description": "A sum", "schema": {"title": "T", "description": "D"}}
    response_options = read(
        response_format={"type": "json_schema", "json_schema": form}
    ).response_options
    assert response_options.schema == {"title": "T", "description": "D"}


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": []}}, "json_schema.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "what"}}},
            "json_schema.schema.type",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": 1}},
            "json_schema.strict",
        ),
        ({"type": "json_object", "schema": {}}, "schema"),
    ],
)
def test_an_invalid_response_format_is_refused(form: Any, field: str) -> None:
    assert refusal(response_format=form).field == f"response_format.{field}"


def test_verbosity_becomes_an_instruction() -> None:
    messages = read(verbosity="low").messages
    assert [message.role for message in messages] == ["system", "user"]
    assert "short" in messages[0].text


def test_the_podium_object_is_read() -> None:
    assert read(podium={"rounds": 2, "exclude": ["openai"]}).params == PodiumParams(
        rounds=2, exclude=frozenset({"openai"})
    )


@pytest.mark.parametrize("value", [None, [], "text", 1, True, {}])
def test_invalid_bodies_are_refused(value: Any) -> None:
    found = _refused(value)
    assert found is not None
    assert json.dumps(CHAT.format_error(found))


KEYS = [
    *("role", "content", "type", "text", "image_url", "url", "function", "name", "id"),
    *("tool_calls", "tool_call_id", "arguments", "parameters", "schema", "json_schema"),
]
SCRAP = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.sampled_from(["user", "assistant", "tool", "function", "json_schema", "a", "auto"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=16,
)
FIELDS = sorted(get_type_hints(CompletionCreateParamsStreaming))


@given(st.dictionaries(st.sampled_from(FIELDS), SCRAP, max_size=6), st.lists(SCRAP, max_size=3))
def test_any_body_is_read_or_refused_and_nothing_else(fields: dict[str, Any], said: Any) -> None:
    whole = body(**fields)
    if "messages" not in fields:
        whole["messages"] += said
    if found := _refused(whole):
        result = CHAT.format_error(found)
        assert json.dumps(result, ensure_ascii=False).encode()
        assert result["error"]["message"]


@given(SCRAP)
def test_any_value_is_read_or_refused_and_nothing_else(value: Any) -> None:
    if found := _refused(value):
        assert json.dumps(CHAT.format_error(found), ensure_ascii=False).encode()


def _seconds(turns: int) -> float:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said: list[dict[str, Any]] = []
    for _ in range(turns):
        said += [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": [{"type": "text", "text": "words " * 20}] * 4},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ]
    whole = body(messages=said)
    times = []
    for _ in range(3):
        started = time.process_time()
        read_strictly(CHAT, whole)
        times.append(time.process_time() - started)
    return min(times)


def test_a_body_of_ten_times_the_length_takes_about_ten_times_as_long() -> None:
    assert _seconds(2400) < 40 * _seconds(240)


def test_the_key_of_the_prompt_cache_is_passed_on() -> None:
    assert read(prompt_cache_key="mine").response_options == ResponseOptions(cache_key="mine")
