"""What Messages bodies demand, and what of it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from podium.core.request import Effort, Tool
from podium.server.dialects.anthropic import FIELDS
from support.messages_sdk import asked, refusal

FORM = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": FORM}
ANSWER_FORM = {"type": "json_schema", "schema": FORM}


def test_a_small_body_sets_only_its_limit() -> None:
    response_options = asked().response_options
    assert response_options.max_tokens == 2000
    assert (
        response_options.temperature,
        response_options.top_p,
        response_options.stop,
        response_options.tools,
    ) == (None, None, (), ())
    assert (response_options.tool_choice, response_options.schema, response_options.effort) == (
        "",
        None,
        None,
    )


def test_length_sampling_and_stops_are_honoured() -> None:
    response_options = asked(
        max_tokens=7, temperature=0.5, top_p=0.9, stop_sequences=["END", "\n\n"]
    ).response_options
    assert (response_options.max_tokens, response_options.temperature, response_options.top_p) == (
        7,
        0.5,
        0.9,
    )
    assert response_options.stop == ("END", "\n\n")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", "many"),
        ("temperature", 1.5),
        ("temperature", -1),
        ("top_p", 2),
        ("stop_sequences", "END"),
        ("stream", "yes"),
        ("model", ""),
        ("model", 7),
        ("system", 7),
        ("tools", {}),
        ("tool_choice", "auto"),
        ("thinking", True),
        ("service_tier", "priority"),
        ("podium", 7),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_field(field: str, value: Any) -> None:
    assert refusal(**{field: value}).field == field


def test_an_empty_stop_sequence_is_refused() -> None:
    assert refusal(stop_sequences=["END", ""]).field == "stop_sequences.1"


@pytest.mark.parametrize("field", ["model", "messages", "max_tokens"])
def test_fields_that_anthropic_requires_are_required(field: str) -> None:
    refused = refusal(**{field: None})
    assert refused.field == field
    assert "required" in str(refused)


@pytest.mark.parametrize("field", sorted(FIELDS.unsupported))
def test_options_that_must_not_be_ignored_are_refused_with_a_message(field: str) -> None:
    refused = refusal(**{field: {"some": "thing"}})
    assert refused.field == field
    assert str(refused) == f"{field}: an object is not supported: {FIELDS.unsupported[field]}"


def test_an_empty_list_of_servers_is_taken() -> None:
    assert asked(mcp_servers=[]).model == "podium"


def test_an_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    refused = refusal(max_token=7)
    assert refused.field == "max_token"
    assert "max_tokens" in str(refused)


@pytest.mark.parametrize(
    "hints",
    [
        {"metadata": {"user_id": '{"device_id":"d","session_id":"s"}'}},
        {"metadata": {"user_id": None}},
        {"service_tier": "auto"},
        {"service_tier": "standard_only"},
        {"speed": "standard"},
    ],
)
def test_hints_change_nothing(hints: dict[str, Any]) -> None:
    hinted, plain = asked(**hints), asked()
    assert (hinted.messages, hinted.response_options) == (plain.messages, plain.response_options)
    assert hinted.raw_body.items() >= hints.items()


def test_a_clients_tool_is_read() -> None:
    assert asked(tools=[WEATHER]).response_options.tools == (Tool("weather", "Tells it.", FORM),)


@pytest.mark.parametrize(
    "addition",
    [
        {"type": "custom"},
        {"eager_input_streaming": True},
        {"strict": True},
        {"defer_loading": True},
        {"allowed_callers": ["direct"]},
    ],
)
def test_harmless_additions_to_a_tool_are_taken(addition: dict[str, Any]) -> None:
    assert (
        asked(tools=[WEATHER | addition]).response_options
        == asked(tools=[WEATHER]).response_options
    )


def test_examples_of_a_tools_input_are_reported_in_its_description() -> None:
    tool = asked(tools=[WEATHER | {"input_examples": [{"city": "Rome"}]}]).response_options.tools[0]
    assert tool.description == 'Tells it.\nExample input: {"city": "Rome"}'


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "two words"}, "tools.0.name"),
        ({"name": None}, "tools.0.name"),
        ({"input_schema": None}, "tools.0.input_schema"),
        ({"input_schema": "object"}, "tools.0.input_schema"),
        ({"input_schema": {"type": "array"}}, "tools.0.input_schema.type"),
        ({"description": 7}, "tools.0.description"),
        ({"parameters": FORM}, "tools.0.parameters"),
        ({"allowed_callers": ["code_execution_20250825"]}, "tools.0.allowed_callers.0"),
    ],
)
def test_a_malformed_tool_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    assert refusal(tools=[WEATHER | change]).field == field


def test_two_tools_of_one_name_are_refused() -> None:
    assert refusal(tools=[WEATHER, WEATHER]).field == "tools.1"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("web_search_20250305", "WebSearch"),
        ("web_fetch_20260318", "custom tool"),
        ("code_execution_20260521", "custom tool"),
        ("tool_search_tool_bm25_20251119", "ENABLE_TOOL_SEARCH=false"),
        ("mcp_toolset", "podium.toml"),
        ("bash_20250124", "input_schema"),
        ("computer_toolset_20260801", "input_schema"),
    ],
)
def test_anthropics_server_tools_are_refused_with_a_reason(kind: str, words: str) -> None:
    refused = refusal(tools=[{"type": kind, "name": "x"}])
    assert refused.field == "tools.0.type"
    assert words in str(refused)


@pytest.mark.parametrize(
    ("choice", "ours"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "weather"}, "weather"),
        ({"type": "auto", "disable_parallel_tool_use": False}, "auto"),
    ],
)
def test_the_choice_of_tools_is_honoured(choice: dict[str, Any], ours: str) -> None:
    assert asked(tools=[WEATHER], tool_choice=choice).response_options.tool_choice == ours


@pytest.mark.parametrize(
    ("tools", "choice", "field"),
    [
        ([WEATHER], {"type": "tool", "name": "time"}, "tool_choice.name"),
        ([WEATHER], {"type": "tool"}, "tool_choice.name"),
        ([WEATHER], {"type": "auto", "tool": "weather"}, "tool_choice.tool"),
        ([WEATHER], {"type": "sometimes"}, "tool_choice.type"),
        ([WEATHER | {"name": "none"}], {"type": "tool", "name": "none"}, "tool_choice.name"),
        ([], {"type": "any"}, "tool_choice"),
        (None, {"type": "tool", "name": "weather"}, "tool_choice"),
    ],
)
def test_a_choice_that_cannot_be_met_is_refused(tools: Any, choice: Any, field: str) -> None:
    assert refusal(tools=tools, tool_choice=choice).field == field


@pytest.mark.parametrize("kind", ["auto", "any"])
def test_calls_one_at_a_time_may_be_demanded(kind: str) -> None:
    for wish in (True, False):
        choice = {"type": kind, "disable_parallel_tool_use": wish}
        assert (
            asked(tools=[WEATHER], tool_choice=choice).response_options.parallel_tools is not wish
        )
    wrong = {"type": kind, "disable_parallel_tool_use": 1}
    field = refusal(tools=[WEATHER], tool_choice=wrong).field
    assert field == "tool_choice.disable_parallel_tool_use"


def test_a_schema_may_be_demanded_of_the_answer() -> None:
    assert asked(output_config={"format": ANSWER_FORM}).response_options.schema == FORM


def test_a_schema_may_be_demanded_by_its_older_name() -> None:
    assert asked(output_format=ANSWER_FORM).response_options.schema == FORM


def test_an_empty_schema_is_a_schema() -> None:
    empty = {"type": "json_schema", "schema": {}}
    assert asked(output_config={"format": empty}).response_options.schema == {}


def test_two_schemas_contradict_each_other() -> None:
    refused = refusal(output_format=ANSWER_FORM, output_config={"format": ANSWER_FORM})
    assert refused.field == "output_format"


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"type": "json_object"}, "output_config.format.type"),
        ({"type": "json_schema"}, "output_config.format.schema"),
        ({"type": "json_schema", "schema": 7}, "output_config.format.schema"),
        ({"type": "json_schema", "schema": {}, "name": "x"}, "output_config.format.name"),
    ],
)
def test_a_malformed_format_is_refused_with_its_field(form: Any, field: str) -> None:
    assert refusal(output_config={"format": form}).field == field


@pytest.mark.parametrize(
    ("effort", "ours"),
    [("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")],
)
def test_effort_is_honoured_up_to_the_most_there_is(effort: str, ours: Effort) -> None:
    assert asked(output_config={"effort": effort}).response_options.effort == ours


def test_an_unknown_effort_is_refused() -> None:
    assert refusal(output_config={"effort": "none"}).field == "output_config.effort"


@pytest.mark.parametrize(
    ("thinking", "shown", "tokens", "effort"),
    [
        (None, False, None, None),
        ({"type": "enabled", "budget_tokens": 1024}, True, 1024, "low"),
        ({"type": "enabled"}, True, None, None),
        ({"type": "enabled", "budget_tokens": 1024, "display": "omitted"}, False, 1024, "low"),
        ({"type": "adaptive"}, True, None, None),
        ({"type": "adaptive", "display": None, "block_binding": None}, True, None, None),
        ({"type": "adaptive", "display": "summarized"}, True, None, None),
        ({"type": "adaptive", "display": "updates"}, True, None, None),
        ({"type": "adaptive", "display": "omitted"}, False, None, None),
        ({"type": "disabled"}, False, None, "none"),
        ({"type": "between_tools"}, True, None, "none"),
    ],
)
def test_thinking_is_honoured(
    thinking: Any, shown: bool, tokens: int | None, effort: Effort | None
) -> None:
    read = asked(thinking=thinking)
    assert (
        read.shows_reasoning,
        read.response_options.thinking_tokens,
        read.response_options.effort,
    ) == (
        shown,
        tokens,
        effort,
    )


def test_an_effort_counts_for_more_than_thinking_that_is_off() -> None:
    read = asked(thinking={"type": "disabled"}, output_config={"effort": "high"})
    assert (read.response_options.effort, read.shows_reasoning) == ("high", False)


@pytest.mark.parametrize(
    ("thinking", "field"),
    [
        ({"type": "enabled", "budget_tokens": 10}, "thinking.budget_tokens"),
        ({"type": "enabled", "budget_tokens": 2000}, "thinking.budget_tokens"),
        ({"type": "adaptive", "budget_tokens": 1024}, "thinking.budget_tokens"),
        ({"type": "hard"}, "thinking.type"),
        ({"type": "adaptive", "display": "all"}, "thinking.display"),
        ({"type": "adaptive", "block_binding": {"x": 1}}, "thinking.block_binding"),
        ({"type": "adaptive", "effort": "high"}, "thinking.effort"),
    ],
)
def test_thinking_that_contradicts_itself_is_refused(thinking: Any, field: str) -> None:
    assert refusal(thinking=thinking).field == field


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"keep": "some"}, "keep"),
        ({"keep": {"type": "thinking_turns"}}, "keep.value"),
        ({"keep": {"type": "thinking_turns", "value": 0}}, "keep.value"),
        ({"trigger": {}}, "trigger"),
    ],
)
def test_a_malformed_edit_is_refused_with_its_field(edit: dict[str, Any], field: str) -> None:
    edits = [{"type": "clear_thinking_20251015"} | edit]
    refused = refusal(context_management={"edits": edits})
    assert refused.field == f"context_management.edits.0.{field}"
