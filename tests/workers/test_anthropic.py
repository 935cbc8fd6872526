"""Anthropic's Messages, checked against the types of Anthropic's own package."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from pydantic import TypeAdapter

from podium.core.errors import BadReply, RateLimited, RequestRefused, Unavailable, WorkerError
from podium.core.pool import Limits
from podium.core.request import (
    ANY_OBJECT,
    UNKNOWN_USAGE,
    Delta,
    Effort,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    user,
)
from podium.core.worker import Worker

if TYPE_CHECKING:
    from workers.conftest import Fits, Hire, Streamed, Vendor

ASKED = Request((user("hello"),))
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
USAGE = {
    "input_tokens": 10,
    "output_tokens": 20,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 30,
    "cache_creation": {"ephemeral_5m_input_tokens": 22, "ephemeral_1h_input_tokens": 8},
    "output_tokens_details": {"thinking_tokens": 12},
}
COUNTED = Usage(100, 20, 60, 12, 30, 8)
ANSWER_SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer", "minimum": 1}}}


def message(*content: dict[str, Any], stop: str | None = "end_turn", **rest: Any) -> dict[str, Any]:
    document = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-20260601",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": USAGE,
        **rest,
    }
    AnthropicMessage.model_validate(document)
    return document


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "citations": None}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    document = {"type": kind, **fields}
    EVENT.validate_python(document)
    return document


def start(**usage: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 1, **usage}
    return event("message_start", message=message(stop=None, usage=usage))


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        event("content_block_start", index=index, content_block=content),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def said(index: int, *words: str) -> list[dict[str, Any]]:
    return block(index, text(""), *({"type": "text_delta", "text": word} for word in words))


def end(stop: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        event("message_delta", delta=delta, usage={"output_tokens": 20, **usage}),
        event("message_stop"),
    ]


@pytest.fixture
def ada(hire: Hire) -> Worker:
    return hire("anthropic")


async def test_a_request_is_in_anthropics_own_words(
    vendor: Vendor, ada: Worker, plain: Request, fits: Fits
) -> None:
    vendor.says(message(text("Yes.")))
    request = replace(plain, max_tokens=9, stop=("END",), effort="medium", schema=ANSWER_SCHEMA)
    assert await ada.reply(request) == Reply("Yes.", COUNTED, model="claude-sonnet-5-20260601")
    received = vendor.received[0]
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == "sk-a-secret-key"
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in received.headers
    assert vendor.body == {
        "model": "some-model",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
            {"role": "user", "content": [{"type": "text", "text": "Again?"}]},
        ],
        "stop_sequences": ["END"],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {
            "effort": "medium",
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"answer": {"type": "integer", "description": "(minimum: 1)"}},
                    "additionalProperties": False,
                },
            },
        },
    }
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize(
    ("limits", "sent"), [(Limits(), 4096), (Limits(max_output_tokens=64000), 64000)]
)
async def test_an_output_limit_is_always_sent(
    vendor: Vendor, hire: Hire, limits: Limits, sent: int
) -> None:
    vendor.says(message(text("ok")))
    await hire("anthropic", limits=limits).reply(ASKED)
    assert vendor.body["max_tokens"] == sent


async def test_sampling_is_sent_only_to_models_that_take_it(vendor: Vendor, hire: Hire) -> None:
    vendor.says(message(text("ok")))
    request = replace(ASKED, temperature=0.2, top_p=0.9)
    await hire("anthropic").reply(request)
    assert (vendor.body["temperature"], vendor.body["top_p"]) == (0.2, 0.9)
    await hire("anthropic", without=("sampling",)).reply(request)
    assert set(vendor.body) == {"model", "max_tokens", "messages"}


async def test_turns_alternate_and_hold_nothing_empty(vendor: Vendor, ada: Worker) -> None:
    vendor.says(message(text("ok")))
    turns = (user("a"), user("b"), assistant(""), system("s1"), user("c"), system("s2"))
    await ada.reply(Request(turns))
    assert vendor.body["system"] == "s1\n\ns2"
    assert vendor.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": word} for word in "abc"]}
    ]


async def test_pictures_are_sent_as_they_are(
    vendor: Vendor, ada: Worker, pictured: Request, fits: Fits
) -> None:
    vendor.says(message(text("Yes")))
    await ada.reply(pictured)
    assert vendor.body["messages"][0]["content"] == [
        {"type": "text", "text": "Same cat?"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
        },
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.jpg"}},
    ]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_documents_are_sent_as_documents(vendor: Vendor, ada: Worker, fits: Fits) -> None:
    vendor.says(message(text("Yes")))
    titled = Text("[document: Cats]\nTom is a cat.\n\n", title="Cats")
    redacted = Text("[document: …]\nTom is a cat.", title="Cats")
    linked = Image("application/pdf", url="https://example.com/a.pdf")
    parts = (titled, redacted, Image("application/pdf", "QUJD"), linked)
    await ada.reply(Request((Message("user", parts),)))
    plain = {"type": "text", "media_type": "text/plain", "data": "Tom is a cat."}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
    assert vendor.body["messages"][0]["content"] == [
        {"type": "document", "source": plain, "title": "Cats"},
        {"type": "text", "text": redacted.text},
        {"type": "document", "source": pdf},
        {"type": "document", "source": {"type": "url", "url": linked.url}},
    ]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_tool_calls_and_their_results_are_sent_back(
    vendor: Vendor, ada: Worker, tooled: Request, fits: Fits
) -> None:
    vendor.says(message(text("Sunny.")))
    await ada.reply(tooled)
    assert vendor.body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {
                    "type": "tool_use",
                    "id": "call_a",
                    "name": "weather",
                    "input": {"city": "Paris"},
                },
                {"type": "tool_use", "id": "call_b", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_a", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "call_b",
                    "content": "no clock",
                    "is_error": True,
                },
                {"type": "text", "text": "Quickly."},
            ],
        },
    ]
    assert vendor.body["tools"][0] == {
        "name": "weather",
        "description": "The weather of a city",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert vendor.body["tool_choice"] == {"type": "auto"}
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("clock", {"type": "tool", "name": "clock"}),
    ],
)
async def test_a_tool_can_be_forbidden_required_or_named(
    vendor: Vendor, ada: Worker, tooled: Request, fits: Fits, choice: str, sent: Any
) -> None:
    vendor.says(message(text("ok")))
    await ada.reply(replace(tooled, tool_choice=choice))
    assert vendor.body["tool_choice"] == sent
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_results_come_before_the_words_beside_them(vendor: Vendor, ada: Worker) -> None:
    vendor.says(message(text("ok")))
    mixed = Message("user", (Text("here"), ToolResult("a", "1")))
    await ada.reply(Request((mixed,)))
    kinds = [part["type"] for part in vendor.body["messages"][0]["content"]]
    assert kinds == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (Message("assistant", (Image(url="http://x"),)), "takes no image in assistant"),
        (Message("system", (Image(url="http://x"),)), "takes no image in system"),
        (Message("user", (ToolCall("a", "b", "{}"),)), "takes no tool call in user"),
        (Message("user", (Thinking("hm"),)), "takes no thinking in user"),
        (Message("assistant", (ToolCall("a", "b", "{oops"),)), "arguments of tool 'b' as a JSON"),
        (Message("assistant", (ToolCall("a", "b", "[1]"),)), "arguments of tool 'b' as a JSON"),
    ],
)
async def test_an_unsupported_part_is_refused_and_never_dropped(
    ada: Worker, bad: Message, what: str
) -> None:
    with pytest.raises(RequestRefused, match=what):
        await ada.reply(Request((bad,)))


async def test_a_grammar_is_refused(ada: Worker) -> None:
    with pytest.raises(RequestRefused, match="cannot follow a grammar"):
        await ada.reply(replace(ASKED, grammar="root ::= x"))


@pytest.mark.parametrize(
    ("style", "effort", "sent"),
    [
        ("adaptive", None, {}),
        ("adaptive", "none", {"thinking": {"type": "disabled"}}),
        (
            "adaptive",
            "minimal",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
        (
            "always",
            "none",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
        ("budget", "none", {}),
        ("budget", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("budget", "high", {"thinking": {"type": "enabled", "budget_tokens": 4000}}),
    ],
)
async def test_effort_is_translated_for_the_models_generation(
    vendor: Vendor,
    hire: Hire,
    fits: Fits,
    style: str,
    effort: Effort | None,
    sent: dict[str, Any],
) -> None:
    vendor.says(message(text("ok")))
    worker = hire("anthropic", thinking_style=style)
    await worker.reply(replace(ASKED, effort=effort, max_tokens=8000))
    plain = {"model", "max_tokens", "messages"}
    assert {key: vendor.body[key] for key in vendor.body.keys() - plain} == sent
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize(
    ("style", "effort", "tokens", "sent"),
    [
        ("budget", "high", 1500, {"type": "enabled", "budget_tokens": 1500}),
        ("budget", "low", 6000, {"type": "enabled", "budget_tokens": 6000}),
        ("budget", "low", 9000, {"type": "enabled", "budget_tokens": 7999}),
        ("budget", "none", 1500, None),
        ("adaptive", "low", 1500, {"type": "adaptive", "display": "summarized"}),
    ],
)
async def test_a_budget_for_thinking_goes_to_models_that_take_one(
    vendor: Vendor,
    hire: Hire,
    style: str,
    effort: Effort,
    tokens: int,
    sent: dict[str, Any] | None,
) -> None:
    vendor.says(message(text("ok")))
    asked = replace(ASKED, effort=effort, thinking_tokens=tokens, max_tokens=8000)
    await hire("anthropic", thinking_style=style).reply(asked)
    assert vendor.body.get("thinking") == sent


async def test_a_model_that_does_not_reason_is_not_asked_to(vendor: Vendor, hire: Hire) -> None:
    vendor.says(message(text("ok")))
    await hire("anthropic", without=("reasoning",)).reply(replace(ASKED, effort="high"))
    assert "thinking" not in vendor.body
    assert "output_config" not in vendor.body


async def test_too_little_room_or_a_forced_tool_leaves_an_older_model_without_thinking(
    vendor: Vendor, hire: Hire, tooled: Request
) -> None:
    vendor.says(message(text("ok")))
    worker = hire("anthropic", thinking_style="budget")
    await worker.reply(replace(ASKED, effort="high", max_tokens=2000))
    assert "thinking" not in vendor.body
    await worker.reply(replace(tooled, effort="high", tool_choice="required", max_tokens=9000))
    assert "thinking" not in vendor.body


async def test_a_forced_tool_leaves_a_model_that_decides_itself_without_thinking(
    vendor: Vendor, hire: Hire, tooled: Request
) -> None:
    vendor.says(message(text("ok")))
    asked = replace(tooled, effort="high")
    await hire("anthropic").reply(replace(asked, tool_choice="weather"))
    assert vendor.body["thinking"] == {"type": "disabled"}
    assert "output_config" not in vendor.body
    await hire("anthropic").reply(asked)
    assert vendor.body["thinking"]["type"] == "adaptive"


async def test_a_model_that_thinks_does_not_get_the_beginning_of_its_reply(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(message(text("ok")))
    worker = hire("anthropic", thinking_style="budget")
    request = replace(ASKED, effort="low", max_tokens=8000, temperature=1.0, prefill="Sure")
    assert (await worker.reply(request)).text == "ok"
    assert "temperature" not in vendor.body
    assert len(vendor.body["messages"]) == 1


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        ({"seed": 7}, "takes no seed"),
        ({"effort": "low", "temperature": 0.2}, "does not accept temperature while it thinks"),
        ({"effort": "low", "top_p": 0.2}, "does not accept top_p while it thinks"),
    ],
)
async def test_parts_unsupported_by_the_api_are_refused(
    ada: Worker, wish: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RequestRefused, match=problem):
        await ada.reply(replace(ASKED, **wish))


async def test_an_older_model_continues_without_thinking_where_it_called_without_it(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(message(text("ok")))
    worker = hire("anthropic", thinking_style="budget")
    call, result = ToolCall("1", "look", "{}"), Message("tool", (ToolResult("1", "42"),))
    own = Thinking("hm", '{"signature": "s"}', "some-model")
    for thought, thinks in (((), False), ((own,), True), ((replace(own, model="x"),), False)):
        called = Message("assistant", (*thought, call))
        request = Request((*ASKED.messages, called, result), max_tokens=8000, effort="low")
        await worker.reply(request)
        assert ("thinking" in vendor.body) is thinks


async def test_a_reply_that_podium_began_starts_with_its_words(
    vendor: Vendor, ada: Worker, hire: Hire, streamed: Streamed
) -> None:
    request = replace(ASKED, prefill="Sure, ")
    vendor.says(message(text(" why not")))
    assert (await ada.reply(request)).text == "Sure, why not"
    assert vendor.body["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Sure,"}],
    }
    vendor.streams(start(), *said(0, " why", " not"), *end())
    deltas, reply = await streamed(ada, request)
    assert deltas == [Delta("Sure, why"), Delta(" not")]
    assert reply.text == "Sure, why not"
    await streamed(hire("anthropic", without=("prefill",)), request)
    assert vendor.body["messages"][-1]["role"] == "user"


async def test_an_older_model_gives_a_schemas_reply_through_a_tool(
    vendor: Vendor, hire: Hire, streamed: Streamed, fits: Fits, tooled: Request
) -> None:
    worker = hire("anthropic", schema_style="tool")
    request = replace(ASKED, schema=ANSWER_SCHEMA, effort="high", prefill="x")
    call = {"type": "tool_use", "id": "t", "name": "reply", "input": {"answer": 42}}
    vendor.says(message(call, stop="tool_use"))
    reply = await hire("anthropic", schema_style="tool", without=("prefill",)).reply(request)
    assert (json.loads(reply.text), reply.finish, reply.tool_calls) == ({"answer": 42}, "stop", ())
    assert vendor.body["tools"][0]["input_schema"] == ANSWER_SCHEMA
    assert vendor.body["tool_choice"] == {"type": "tool", "name": "reply"}
    assert fits(MessageCreateParamsNonStreaming, vendor.body)
    pieces = [
        {"type": "input_json_delta", "partial_json": piece} for piece in ('{"answer"', ":42}")
    ]
    vendor.streams(start(), *block(0, call | {"input": {}}, *pieces), *end("tool_use"))
    deltas, reply = await streamed(worker, replace(request, prefill=""))
    assert [delta.text for delta in deltas] == ['{"answer"', ":42}"]
    assert reply.text == '{"answer":42}'
    with pytest.raises(RequestRefused, match="both tools and a schema"):
        await worker.reply(replace(tooled, schema=ANSWER_SCHEMA))


async def test_any_object_is_asked_for_by_an_open_tool(
    vendor: Vendor, ada: Worker, tooled: Request
) -> None:
    call = {"type": "tool_use", "id": "t", "name": "reply", "input": {"answer": 42}}
    vendor.says(message(call, stop="tool_use"))
    reply = await ada.reply(replace(ASKED, schema=ANY_OBJECT))
    assert json.loads(reply.text) == {"answer": 42}
    assert vendor.body["tools"][0]["input_schema"] == {"type": "object"}
    assert "output_config" not in vendor.body


async def test_an_empty_object_is_a_reply(vendor: Vendor, ada: Worker) -> None:
    call = {"type": "tool_use", "id": "t", "name": "reply", "input": {}}
    vendor.says(message(call, stop="tool_use"))
    reply = await ada.reply(replace(ASKED, schema=ANY_OBJECT))
    assert (reply.text, reply.finish) == ("{}", "stop")
    vendor.says(message(call, stop="max_tokens"))
    assert (await ada.reply(replace(ASKED, schema=ANY_OBJECT))).text == ""


async def test_any_object_beside_tools_is_left_to_the_model(
    vendor: Vendor, ada: Worker, tooled: Request
) -> None:
    vendor.says(message(text("{}")))
    await ada.reply(tooled)
    plain = vendor.body
    await ada.reply(replace(tooled, schema=ANY_OBJECT))
    assert vendor.body == plain


async def test_options_are_added_to_the_body_and_settings_are_not(
    vendor: Vendor, hire: Hire, fits: Fits
) -> None:
    vendor.says(message(text("ok")))
    cached = {"cache_control": {"type": "ephemeral"}}
    await hire("anthropic", thinking_style="always", schema_style="tool", **cached).reply(ASKED)
    assert set(vendor.body) == {"model", "max_tokens", "messages", "cache_control"}
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_a_stream_carries_thinking_words_calls_and_usage(
    vendor: Vendor, ada: Worker, streamed: Streamed, fits: Fits
) -> None:
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    tool = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    vendor.streams(
        start(
            cache_read_input_tokens=60,
            cache_creation_input_tokens=30,
            cache_creation=USAGE["cache_creation"],
        ),
        b'event: ping\ndata: {"type": "ping"}\n\n',
        *block(
            0,
            thought,
            {"type": "thinking_delta", "thinking": "Let me "},
            {"type": "thinking_delta", "thinking": "see."},
            {"type": "signature_delta", "signature": "s1g"},
        ),
        *said(1, "Grü", "ße"),
        *block(
            2,
            tool,
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"city": '},
            {"type": "input_json_delta", "partial_json": '"Paris"}'},
        ),
        *block(3, tool | {"id": "toolu_2", "name": "clock"}),
        *end("tool_use", output_tokens_details={"thinking_tokens": 12}),
        done=False,
    )
    deltas, reply = await streamed(ada, ASKED)
    assert deltas == [
        Delta("Let me ", "thinking"),
        Delta("see.", "thinking"),
        Delta("Grü"),
        Delta("ße"),
        Delta("", "tool_call", 0, "toolu_1", "weather"),
        Delta('{"city": ', "tool_call", 0, "toolu_1", "weather"),
        Delta('"Paris"}', "tool_call", 0, "toolu_1", "weather"),
        Delta("", "tool_call", 1, "toolu_2", "clock"),
    ]
    assert reply.text == "Grüße"
    assert reply.tool_calls == (
        ToolCall("toolu_1", "weather", '{"city": "Paris"}'),
        ToolCall("toolu_2", "clock", "{}"),
    )
    assert (reply.finish, reply.usage) == ("tool", COUNTED)
    assert [(part.text, part.model) for part in reply.thinking] == [("Let me see.", "some-model")]
    assert vendor.body["stream"] is True
    assert fits(MessageCreateParamsStreaming, vendor.body)


async def test_thinking_goes_back_as_it_came_and_only_to_its_model(
    vendor: Vendor, hire: Hire, ada: Worker, fits: Fits
) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "s1g"},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    call = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
    vendor.says(message(*blocks, call, stop="tool_use"))
    reply = await ada.reply(ASKED)
    turn = Message("assistant", (*reply.thinking, *reply.tool_calls))
    again = Request((*ASKED.messages, turn, Message("tool", (ToolResult("a", "noon"),))))
    await ada.reply(again)
    assert vendor.body["messages"][1]["content"] == [*blocks, call]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)
    late = Message("assistant", (*reply.tool_calls, *reply.thinking))
    await ada.reply(replace(again, messages=(ASKED.messages[0], late, again.messages[2])))
    assert vendor.body["messages"][1]["content"] == [*blocks, call], "thinking comes first"
    await hire("anthropic", model="other-model").reply(again)
    assert vendor.body["messages"][1]["content"] == [call]


async def test_thinking_without_a_signature_is_not_sent_back(vendor: Vendor, ada: Worker) -> None:
    vendor.says(message(text("ok")))
    turn = Message("assistant", (Thinking("hm", model="some-model"), Text("42")))
    await ada.reply(Request((user("?"), turn, user("Sure?"))))
    assert vendor.body["messages"][1]["content"] == [{"type": "text", "text": "42"}]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"input_tokens": 10, "output_tokens": 2}, Usage(10, 2, None, None, None)),
        (
            {
                "input_tokens": 10,
                "output_tokens": 2,
                "cache_read_input_tokens": None,
                "cache_creation_input_tokens": None,
            },
            Usage(10, 2, 0, None, 0),
        ),
        (USAGE, COUNTED),
        ({**USAGE, "output_tokens": -2}, UNKNOWN_USAGE),
    ],
    ids=["not said", "cache not used", "everything", "below zero"],
)
async def test_input_includes_what_the_cache_read_and_wrote(
    vendor: Vendor, ada: Worker, usage: dict[str, Any], counted: Usage
) -> None:
    vendor.says(message(text("ok"), usage=usage))
    assert (await ada.reply(ASKED)).usage == counted


async def test_counts_at_the_end_of_a_stream_replace_those_at_its_start(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    later = end(input_tokens=11, cache_read_input_tokens=61, cache_creation_input_tokens=0)
    vendor.streams(start(), *said(0, "ok"), *later)
    _, reply = await streamed(ada, ASKED)
    assert reply.usage == Usage(72, 20, 61, None, 0)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refused"),
    ],
)
async def test_a_reply_says_why_it_ended(
    vendor: Vendor, ada: Worker, stop: str, finish: str
) -> None:
    vendor.says(message(text("ok"), stop=stop))
    assert (await ada.reply(ASKED)).finish == finish


async def test_a_refusal_without_words_is_explained(vendor: Vendor, ada: Worker) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    vendor.says(message(stop="refusal", stop_details=details))
    reply = await ada.reply(ASKED)
    assert (reply.text, reply.finish) == ("Not this.", "refused")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("overloaded_error", Unavailable),
        ("api_error", Unavailable),
        ("timeout_error", Unavailable),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", RequestRefused),
    ],
)
async def test_an_error_event_in_mid_stream_is_raised(
    vendor: Vendor, ada: Worker, streamed: Streamed, name: str, kind: type[WorkerError]
) -> None:
    error = {"type": "error", "error": {"type": name, "message": "Too busy"}, "request_id": "r"}
    vendor.streams(start(), *said(0, "The an"), error, done=False)
    with pytest.raises(kind, match=f"{name}: Too busy") as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


async def test_a_status_of_529_is_an_overload(vendor: Vendor, ada: Worker) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    vendor.says(error, status=529, headers={"retry-after": "2"})
    with pytest.raises(Unavailable, match="HTTP 529: Overloaded") as caught:
        await ada.reply(ASKED)
    assert caught.value.retry_after == 2.0


async def test_a_stream_without_its_last_event_was_broken_off(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.streams(start(), *said(0, "The an"), done=False)
    with pytest.raises(Unavailable) as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


@pytest.mark.parametrize(
    "document",
    [
        {"type": "message", "content": [{"type": "text", "text": "ok"}]},
        {"content": "ok", "stop_reason": "end_turn"},
    ],
)
async def test_a_message_that_is_not_one_is_bad(
    vendor: Vendor, ada: Worker, document: dict[str, Any]
) -> None:
    vendor.says(document)
    with pytest.raises(BadReply):
        await ada.reply(ASKED)


async def test_a_delta_of_a_block_that_never_began_is_bad(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.streams(start(), said(0, "ok")[1])
    with pytest.raises(BadReply, match="expected content block 0 to start"):
        await streamed(ada, ASKED)


async def test_a_message_without_usage_leaves_it_unknown(vendor: Vendor, ada: Worker) -> None:
    vendor.says({"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"})
    assert (await ada.reply(ASKED)).usage == UNKNOWN_USAGE


MARK = {"type": "ephemeral", "ttl": "1h"}


async def test_a_prompt_worth_keeping_is_marked_where_the_next_can_begin(
    vendor: Vendor, ada: Worker, tooled: Request, fits: Fits
) -> None:
    vendor.says(message(text("ok")))
    turns = (system("Be brief."), user("a"), assistant("b"), user("c"))
    await ada.reply(Request(turns, cache_ttl="1h"))
    assert vendor.body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    marks = [turn["content"][-1].get("cache_control") for turn in vendor.body["messages"]]
    assert marks == [None, MARK, MARK]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)
    await ada.reply(replace(tooled, cache_ttl="1h"))
    assert [tool.get("cache_control") for tool in vendor.body["tools"]] == [None, MARK]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_a_prompt_is_not_marked_unasked_nor_where_the_endpoint_has_its_own_mark(
    vendor: Vendor, hire: Hire, plain: Request
) -> None:
    vendor.says(message(text("ok")))
    await hire("anthropic").reply(replace(plain, cache_key="mine"))
    assert "cache_control" not in json.dumps(vendor.body)
    assert "mine" not in json.dumps(vendor.body)
    await hire("anthropic", cache_control={"type": "ephemeral"}).reply(
        replace(plain, cache_ttl="5m")
    )
    assert json.dumps(vendor.body).count("cache_control") == 1


async def test_tool_images_are_in_their_results(
    vendor: Vendor, ada: Worker, shown: Request, fits: Fits
) -> None:
    vendor.says(message(text("ok")))
    await ada.reply(shown)
    sent = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
    }
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.jpg"}}
    first, second = vendor.body["messages"][2]["content"]
    assert first["content"] == [{"type": "text", "text": "radar"}, sent, linked]
    assert second["content"] == [linked]
    assert fits(MessageCreateParamsNonStreaming, vendor.body)


async def test_the_stop_sequence_that_ended_a_reply_is_reported(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.says(message(text("a"), stop="stop_sequence", stop_sequence="END"))
    reply = await ada.reply(ASKED)
    assert (reply.finish, reply.stop_sequence) == ("stop", "END")
    ended = {"stop_reason": "stop_sequence", "stop_sequence": "END", "stop_details": None}
    vendor.streams(
        start(),
        event("content_block_start", index=0, content_block=text("a")),
        event("message_delta", delta=ended, usage={"output_tokens": 1}),
        event("message_stop"),
    )
    _, reply = await streamed(ada, ASKED)
    assert (reply.finish, reply.stop_sequence) == ("stop", "END")


async def test_one_tool_at_a_time_is_demanded_where_tools_may_be_called(
    vendor: Vendor, ada: Worker, tooled: Request, fits: Fits
) -> None:
    vendor.says(message(text("ok")))
    for choice, kind in (("", "auto"), ("auto", "auto"), ("required", "any"), ("clock", "tool")):
        await ada.reply(replace(tooled, parallel_tools=False, tool_choice=choice))
        chosen = vendor.body["tool_choice"]
        assert (chosen["type"], chosen["disable_parallel_tool_use"]) == (kind, True)
        assert fits(MessageCreateParamsNonStreaming, vendor.body)
    await ada.reply(replace(tooled, parallel_tools=False, tool_choice="none"))
    assert vendor.body["tool_choice"] == {"type": "none"}


async def test_extra_fields_go_into_the_body_and_replace_nothing(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(message(text("ok")))
    await ada.reply(replace(ASKED, max_tokens=9, extra={"top_k": 4, "max_tokens": 10_000}))
    assert (vendor.body["top_k"], vendor.body["max_tokens"]) == (4, 9)


async def test_a_stream_starts_with_the_usage_of_the_input(vendor: Vendor, ada: Worker) -> None:
    vendor.streams(start(cache_read_input_tokens=60), *said(0, "Hi"), *end("end_turn"), done=False)
    first = await anext(aiter(ada.stream(ASKED)))
    assert isinstance(first, Delta)
    assert (first.kind, first.usage.cached_input_tokens) == ("start", 60)
