"""The Messages dialect as a whole: with Anthropic's SDK, Claude Code and plain HTTP."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from podium.core.request import Text, ToolCall, ToolResult
from podium.server.api_error import ApiError
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.request import ApiRequest, ApiResponse, Dialect, PodiumParams
from support.messages_sdk import Desk, answer, asked, body, refusal
from support.readers import ignored_keys

HELLO = {"role": "user", "content": "Hello"}
STRANGE = {"type": "text", "text": "Hello", "x": 1, "citations": None}
TASK_BUDGET = "output_config.task_budget"
FORM: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}


class City(BaseModel):
    name: str


def test_it_is_a_dialect() -> None:
    dialect: Dialect = MESSAGES
    assert dialect.read(body()).model == "podium"


def test_an_asked_keeps_the_body_for_what_is_only_echoed() -> None:
    assert asked(metadata={"user_id": "u"}).raw_body["metadata"] == {"user_id": "u"}


def test_a_stream_is_asked_for() -> None:
    assert (asked().stream, asked(stream=True).stream) == (False, True)


def test_podium_fields_are_read() -> None:
    params = asked(podium={"budget": {"usd": 0.5}, "exclude": ["openai"], "rounds": 1}).params
    assert params == PodiumParams(budget={"usd": 0.5}, exclude=frozenset({"openai"}), rounds=1)


def test_the_sdk_reads_an_answer() -> None:
    desk = Desk(answer(text="Hi"))
    message = desk.client.messages.create(
        model="podium", max_tokens=9, messages=[{"role": "user", "content": "Hello"}]
    )
    assert message.content[0].type == "text"
    assert message.content[0].text == "Hi"


def test_the_sdk_continues_after_a_call_with_the_message_as_it_came() -> None:
    desk = Desk(answer(text="Hm.", tool_calls=(ToolCall("c1", "weather", '{"city": "Rome"}'),)))
    hello: anthropic.types.MessageParam = {"role": "user", "content": "Hello"}
    first = desk.client.messages.create(
        model="podium",
        max_tokens=9,
        tools=[{"name": "weather", "input_schema": FORM}],
        messages=[hello],
    )
    desk.client.messages.create(
        model="podium",
        max_tokens=9,
        messages=[
            hello,
            first.to_param(),
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}],
            },
        ],
    )
    turns = desk.asked[1].messages
    assert turns[1].parts == (Text("Hm."), ToolCall("c1", "weather", '{"city": "Rome"}'))
    assert turns[2].parts == (ToolResult("c1", "sunny"),)


class ToolDesk(Desk):
    """Asks for a tool first, and answers when it has its result."""

    def respond(self, asked: ApiRequest) -> ApiResponse:
        if asked.messages[-1].role == "tool":
            return answer(text="It is sunny.")
        return answer(tool_calls=(ToolCall("c1", "weather", '{"city": "Rome"}'),), finish="tool")


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdks_tool_runner_continues_without_the_thread_that_it_asked_for(stream: bool) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    desk = ToolDesk(answer())
    runner = desk.client.beta.messages.tool_runner(
        model="podium",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hello"}],
        tools=[weather],
        stream=stream,
    )
    final = runner.until_done()
    assert final.content[0].type == "text"
    assert final.content[0].text == "It is sunny."
    assert desk.asked[-1].messages[-1].parts == (ToolResult("c1", "sunny in Rome"),)


def test_the_sdk_parses_structured_output() -> None:
    desk = Desk(answer(text='{"name": "Rome"}'))
    parsed = desk.client.messages.parse(
        model="podium",
        max_tokens=9,
        messages=[{"role": "user", "content": "Where?"}],
        output_format=City,
    )
    assert parsed.parsed_output == City(name="Rome")
    assert desk.asked[0].response_options.schema is not None
    assert desk.asked[0].response_options.schema["properties"]["name"]["type"] == "string"


def test_the_sdk_raises_its_own_error_with_the_field() -> None:
    with pytest.raises(anthropic.BadRequestError, match="thinking.budget_tokens") as caught:
        Desk(answer()).client.messages.create(
            model="podium",
            max_tokens=9,
            messages=[{"role": "user", "content": "Hello"}],
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    assert caught.value.type == "invalid_request_error"


def test_the_sdk_counts_tokens() -> None:
    desk = Desk(answer())
    count = desk.client.messages.count_tokens(
        model="podium",
        system="Be brief.",
        messages=[{"role": "user", "content": "Hello"}],
        tools=[{"name": "weather", "input_schema": FORM}],
        thinking={"type": "enabled", "budget_tokens": 5000},
    )
    assert count.input_tokens == 42
    assert [turn.text for turn in desk.asked[0].messages] == ["Be brief.", "Hello"]
    assert desk.asked[0].response_options.tools[0].name == "weather"


def test_tokens_may_be_counted_up_to_the_assistants_turn() -> None:
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    assert len(MESSAGES.read_count({"model": "podium", "messages": turns}).messages) == 2


def claude_code(**fields: Any) -> dict[str, Any]:
    """A request as Claude Code sends it, to `/v1/messages?beta=true`."""
    hint = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
    return {
        "model": "podium-ultra",
        "max_tokens": 32000,
        "stream": True,
        "metadata": {"user_id": '{"device_id":"ab","account_uuid":"","session_id":"cd"}'},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.165; cch=fa690;"},
            {"type": "text", "text": "You are Claude Code.", **hint},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>Today.</system-reminder>"},
                    {"type": "text", "text": "Fix the bug", **hint},
                ],
            },
            {"role": "system", "content": "Prefer small changes."},
        ],
        "tools": [
            {
                "name": "Bash",
                "description": "Runs a command.",
                "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **FORM},
                "eager_input_streaming": True,
                **hint,
            }
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    } | fields


def test_claude_codes_requests_are_served() -> None:
    read = MESSAGES.read(claude_code())
    assert [turn.role for turn in read.messages] == ["system", "user", "system"]
    assert read.messages[0].text == "You are Claude Code."
    assert [tool.name for tool in read.response_options.tools] == ["Bash"]
    assert (read.stream, read.shows_reasoning, read.response_options.effort) == (True, True, "high")


def test_claude_codes_small_questions_are_served() -> None:
    form = {"type": "json_schema", "schema": FORM}
    read = MESSAGES.read(
        claude_code(tools=[], thinking={"type": "disabled"}, output_config={"format": form})
        | {"temperature": 1}
    )
    assert (
        read.response_options.schema,
        read.response_options.effort,
        read.response_options.temperature,
    ) == (FORM, "none", 1)


def test_claude_codes_counts_are_served() -> None:
    sent = {name: claude_code()[name] for name in ("model", "messages", "tools")}
    assert MESSAGES.read_count(sent).response_options.max_tokens is None


@pytest.mark.parametrize(
    ("fields", "setting"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "WebSearch"),
        (
            {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "search"}]},
            "ENABLE_TOOL_SEARCH=false",
        ),
    ],
)
def test_unsupported_claude_code_fields_name_the_setting_to_change(
    fields: dict[str, Any], setting: str
) -> None:
    assert setting in str(refusal(**claude_code(**fields)))


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management.edits.0.type",
        ),
        ({"diagnostics": {"previous_message_id": None}}, "diagnostics"),
        ({"speed": "fast"}, "speed"),
        ({"top_k": 40}, "top_k"),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 1}}}, TASK_BUDGET),
        ({"thinking": {"type": "adaptive", "block_binding": {"x": 1}}}, "thinking.block_binding"),
        ({"messages": [{**HELLO, "id": "m1"}]}, "messages.0.id"),
        ({"messages": [{"role": "user", "content": [STRANGE]}]}, "messages.0.content.0.x"),
    ],
)
def test_options_without_effect_are_ignored_and_named(fields: Any, ignored: str) -> None:
    assert ignored_keys(MESSAGES, body(**fields)) == [ignored]


NAMES = st.sampled_from(
    [
        "type", "role", "content", "text", "messages", "model", "max_tokens", "system", "tools",
        "tool_choice", "name", "input_schema", "thinking", "signature", "data", "source", "id",
        "input", "tool_use_id", "output_config", "format", "schema", "effort", "edits", "keep",
        "value", "context_management", "budget_tokens", "display", "metadata", "user_id", "podium",
        "stop_sequences", "is_error", "url", "media_type", "cache_control",
    ]
)  # fmt: skip
WORDS = st.sampled_from(
    [
        "user", "assistant", "system", "text", "image", "thinking", "redacted_thinking", "tool_use",
        "tool_result", "document", "base64", "url", "adaptive", "enabled", "tool", "any", "custom",
        "json_schema", "ephemeral", "clear_thinking_20251015", "podium.opaque.W10=", "all",
    ]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=9)
    | WORDS
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=30,
)
BLOCKS = st.dictionaries(NAMES, ANYTHING, max_size=5).flatmap(
    lambda block: WORDS.map(lambda kind: block | {"type": kind})
)
TURNS = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "system"]),
    st.text(max_size=5) | st.lists(BLOCKS, max_size=3),
)


def reads_or_refuses(value: Any) -> None:
    for read in (MESSAGES.read, MESSAGES.read_count):
        came: ApiRequest | ApiError
        try:
            came = read(value)
        except ApiError as refused:
            came = refused
        assert isinstance(came, ApiRequest) or came.status in (400, 413)


@settings(max_examples=300, deadline=None)
@given(ANYTHING)
def test_any_json_is_read_or_refused(value: Any) -> None:
    reads_or_refuses(value)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, ANYTHING, max_size=3), st.lists(TURNS, max_size=4))
def test_any_body_that_is_nearly_right_is_read_or_refused(
    fields: dict[str, Any], turns: list[Any]
) -> None:
    reads_or_refuses(body(messages=turns) | fields)
