"""Chat Completions as everyone speaks them who is not OpenAI, quirks included."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from podium.core.errors import PromptTooLong, RateLimited, RequestRefused, Unavailable, WorkerError
from podium.core.request import (
    ANY_OBJECT,
    UNKNOWN_USAGE,
    Delta,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user,
)

if TYPE_CHECKING:
    from workers.conftest import Hire, Streamed, Vendor

ASKED = Request((user("hello"),))


def answer(message: dict[str, Any], finish: str = "stop", **rest: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **rest}


def chunk(delta: dict[str, Any], finish: str | None = None, **rest: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}


async def test_a_plain_request_goes_out_in_the_plainest_words(
    vendor: Vendor, hire: Hire, plain: Request
) -> None:
    vendor.says(answer({"role": "assistant", "content": "Yes."}, model="some-model-0815"))
    reply = await hire("openai-compatible", path="/v1").reply(plain)
    assert reply == Reply("Yes.", UNKNOWN_USAGE, model="some-model-0815")
    assert vendor.received[0].path == "/v1/chat/completions"
    assert vendor.received[0].headers["authorization"] == "Bearer sk-a-secret-key"
    assert vendor.body == {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "Again?"},
        ],
    }


NAMED = Request(
    (
        Message("user", (Text("ada: "), Text("Why?")), "ada"),
        Message("assistant", (Thinking("Hm."), Text("bot: "), Text("So.")), "bot"),
        Message("user", (Text("[redacted]: "), Text("Why?")), "ada"),
    )
)


@pytest.mark.parametrize(
    ("provider", "messages"),
    [
        (
            "openai-compatible",
            [
                {"role": "user", "content": "Why?", "name": "ada"},
                {"role": "assistant", "content": "So.", "name": "bot"},
                {"role": "user", "content": "[redacted]: Why?"},
            ],
        ),
        (
            "mistral",
            [
                {"role": "user", "content": "ada: Why?"},
                {"role": "assistant", "content": "bot: So."},
                {"role": "user", "content": "[redacted]: Why?"},
            ],
        ),
    ],
)
async def test_a_speakers_name_is_a_field_where_the_api_has_it(
    vendor: Vendor, hire: Hire, provider: str, messages: list[dict[str, str]]
) -> None:
    vendor.says(answer({"content": "Yes."}))
    await hire(provider, path="/v1").reply(NAMED)
    assert vendor.body["messages"] == messages


PDF = Image("application/pdf", "QUJD")


async def test_a_pdf_is_sent_to_workers_that_read_pdfs(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"content": "Yes."}))
    asked = Request((Message("user", (Text("Why?"), PDF)),))
    await hire("openrouter", path="/v1").reply(asked)
    file = {"filename": "document.pdf", "file_data": "data:application/pdf;base64,QUJD"}
    assert vendor.body["messages"][0]["content"][1] == {"type": "file", "file": file}
    with pytest.raises(RequestRefused, match="takes no PDF in user messages"):
        await hire("openrouter", path="/v1", without=("pdf",)).reply(asked)


async def test_a_pdf_that_a_tool_read_does_not_end_a_conversation(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"content": "Yes."}))
    called = Message("assistant", (ToolCall("c", "read", "{}"),))
    result = Message("tool", (ToolResult("c", "plan.pdf", images=(PDF,)),))
    await hire("openrouter", path="/v1", without=("pdf",)).reply(Request((called, result)))
    assert "[a PDF that you cannot read]" in vendor.body["messages"][-1]["content"]


async def test_every_setting_goes_out_under_its_name(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"content": "{}"}))
    request = replace(
        ASKED,
        max_tokens=9,
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop=("END",),
        effort="low",
        schema={"type": "object", "properties": {}},
    )
    await hire("openai-compatible").reply(request)
    assert vendor.body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 9,
        "stop": ["END"],
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 7,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": request.schema, "strict": False},
        },
    }


async def test_any_object_goes_out_as_json_mode(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"content": "{}"}))
    await hire("openai-compatible").reply(replace(ASKED, schema=ANY_OBJECT))
    assert vendor.body["response_format"] == {"type": "json_object"}


async def test_unsupported_parameters_are_not_sent(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"content": "ok"}))
    request = replace(ASKED, temperature=0.2, top_p=0.9, seed=7, effort="low", prefill="Sure")
    worker = hire("openai-compatible", without=("sampling", "reasoning", "prefill"))
    assert (await worker.reply(request)).text == "ok"
    assert set(vendor.body) == {"model", "messages"}
    assert len(vendor.body["messages"]) == 1


async def test_a_grammar_is_refused_before_anything_is_sent(vendor: Vendor, hire: Hire) -> None:
    with pytest.raises(RequestRefused, match="'ada' cannot follow a grammar"):
        await hire("openai-compatible").reply(replace(ASKED, grammar="root ::= x"))
    assert vendor.received == []


async def test_an_endpoints_headers_and_options_are_added_to_every_request(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"content": "ok"}))
    extras = {"headers": {"X-Title": "Podium"}, "route": {"order": ["x"]}, "top_p": 0.3}
    await hire("openai-compatible", **extras).reply(replace(ASKED, top_p=0.9))
    assert vendor.received[0].headers["x-title"] == "Podium"
    assert vendor.body["route"] == {"order": ["x"]}
    assert vendor.body["top_p"] == 0.3


async def test_pictures_are_sent_as_addresses(
    vendor: Vendor, hire: Hire, pictured: Request
) -> None:
    vendor.says(answer({"content": "Yes"}))
    await hire("openai-compatible").reply(pictured)
    assert vendor.body["messages"][0]["content"] == [
        {"type": "text", "text": "Same cat?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
    ]


async def test_tool_calls_and_their_results_are_sent_back(
    vendor: Vendor, hire: Hire, tooled: Request
) -> None:
    vendor.says(answer({"content": "Sunny."}))
    await hire("openai-compatible").reply(tooled)
    assert vendor.body["messages"] == [
        {"role": "user", "content": "Weather and time?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                },
                {
                    "id": "call_b",
                    "type": "function",
                    "function": {"name": "clock", "arguments": ""},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_b", "content": "Error: no clock"},
        {"role": "user", "content": "Quickly."},
    ]
    assert vendor.body["tools"][0] == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert vendor.body["tool_choice"] == "auto"


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", "none"),
        ("required", "required"),
        ("clock", {"type": "function", "function": {"name": "clock"}}),
    ],
)
async def test_a_tool_can_be_forbidden_required_or_named(
    vendor: Vendor, hire: Hire, tooled: Request, choice: str, sent: Any
) -> None:
    vendor.says(answer({"content": "ok"}))
    await hire("openai-compatible").reply(replace(tooled, tool_choice=choice))
    assert vendor.body["tool_choice"] == sent


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (Message("assistant", (Image(url="http://x"),)), "image in assistant messages"),
        (Message("assistant", (ToolResult("a", "b"),)), "tool result in assistant messages"),
        (Message("user", (ToolCall("a", "b", "{}"),)), "tool call in user messages"),
        (Message("system", (Image(url="http://x"),)), "image in system messages"),
        (Message("user", (Thinking("hm"),)), "thinking in user messages"),
    ],
)
async def test_an_unsupported_part_is_refused_and_never_dropped(
    hire: Hire, message: Message, what: str
) -> None:
    with pytest.raises(RequestRefused, match=f"'ada' takes no {what}"):
        await hire("openai-compatible").reply(Request((message,)))


async def test_tool_calls_come_back_whole(vendor: Vendor, hire: Hire) -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "weather", "arguments": {"x": 1}}},
        {"type": "function", "function": {"name": "clock"}},
    ]
    vendor.says(answer({"content": None, "tool_calls": calls}, finish="tool_calls"))
    reply = await hire("openai-compatible").reply(ASKED)
    assert reply.finish == "tool"
    assert reply.tool_calls[:2] == (
        ToolCall("a", "clock", "{}"),
        ToolCall("b", "weather", '{"x": 1}'),
    )
    assert reply.tool_calls[2].id.startswith("call_")
    assert reply.tool_calls[2].arguments == "{}"


async def test_calls_without_ids_never_get_the_same_one(vendor: Vendor, hire: Hire) -> None:
    call = {"function": {"name": "clock", "arguments": "{}"}}
    vendor.says(answer({"tool_calls": [call, call]}, finish="stop"))
    reply = await hire("openai-compatible").reply(ASKED)
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.finish == "tool"


async def test_a_stream_is_its_deltas_and_then_the_whole(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    vendor.streams(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Gr"}),
        chunk({"content": "üße"}),
        chunk({}, finish="stop"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    )
    deltas, reply = await streamed(hire("openai-compatible"), ASKED)
    assert deltas == [Delta("Gr"), Delta("üße")]
    assert reply == Reply("Grüße", Usage(5, 2, None, None, 0), model="some-model")
    assert vendor.body["stream"] is True
    assert vendor.body["stream_options"] == {"include_usage": True}


async def test_fragments_of_parallel_calls_are_put_together(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    def fragment(index: int, arguments: str, **rest: Any) -> dict[str, Any]:
        name = {"name": rest.pop("name")} if "name" in rest else {}
        function = {"arguments": arguments, **name}
        return chunk({"tool_calls": [{"index": index, "function": function, **rest}]})

    vendor.streams(
        fragment(0, "", id="a", name="weather"),
        fragment(0, '{"ci'),
        fragment(1, "{}", id="b", name="clock"),
        fragment(0, 'ty": 1}'),
        chunk({}, finish="tool_calls"),
    )
    deltas, reply = await streamed(hire("openai-compatible"), ASKED)
    assert [(delta.call, delta.id, delta.text) for delta in deltas] == [
        (0, "a", ""),
        (0, "a", '{"ci'),
        (1, "b", "{}"),
        (0, "a", 'ty": 1}'),
    ]
    assert reply.tool_calls == (
        ToolCall("a", "weather", '{"city": 1}'),
        ToolCall("b", "clock", "{}"),
    )
    assert reply.finish == "tool"


async def test_a_call_without_an_id_is_not_streamed(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    function = {"name": "clock", "arguments": "{}"}
    vendor.streams(chunk({"tool_calls": [{"index": 0, "function": function}]}, "tool_calls"))
    deltas, reply = await streamed(hire("openai-compatible"), ASKED)
    assert deltas == []
    assert reply.tool_calls[0].name == "clock"


@pytest.mark.parametrize("index", [{}, {"index": 0}], ids=["no index", "the same index"])
async def test_calls_that_share_an_index_are_distinguished_by_their_ids(
    vendor: Vendor, hire: Hire, streamed: Streamed, index: dict[str, int]
) -> None:
    vendor.streams(
        chunk({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}, **index}]}),
        chunk({"tool_calls": [{"function": {"arguments": "}"}, **index}]}),
        chunk({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}, **index}]}),
        chunk({"tool_calls": [{"id": "b", "function": {"arguments": " "}, **index}]}),
        chunk({}, finish="tool_calls"),
    )
    _, reply = await streamed(hire("openai-compatible"), ASKED)
    assert reply.tool_calls == (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{} "))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thinking_is_told_from_the_answer_whatever_it_is_called(
    vendor: Vendor, hire: Hire, streamed: Streamed, name: str
) -> None:
    vendor.streams(
        chunk({name: "Let me "}),
        chunk({name: "see."}),
        chunk({"content": "42", name: None}),
        chunk({}, finish="stop"),
    )
    deltas, reply = await streamed(hire("openai-compatible"), ASKED)
    assert deltas == [Delta("Let me ", "thinking"), Delta("see.", "thinking"), Delta("42")]
    assert reply.text == "42"
    assert reply.thinking == (Thinking("Let me see.", model="some-model"),)


async def test_content_in_parts_is_split_into_thinking_and_words(
    vendor: Vendor, hire: Hire
) -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "42"},
    ]
    vendor.says(answer({"content": content}))
    reply = await hire("mistral").reply(ASKED)
    assert (reply.text, reply.thinking[0].text) == ("42", "Hm.")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({}, UNKNOWN_USAGE),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            Usage(5, 2, None, None, 0),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 20,
                "total_tokens": 25,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            Usage(5, 20, 4, 15, 0),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 20,
                "total_tokens": 40,
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            Usage(5, 35, None, 15, 0),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "prompt_cache_hit_tokens": 3,
                "prompt_cache_miss_tokens": 2,
                "prompt_tokens_details": None,
            },
            Usage(5, 2, 3, None, 0),
        ),
        ({"prompt_tokens": -1, "completion_tokens": 2}, UNKNOWN_USAGE),
        ({"prompt_tokens": 10**400, "completion_tokens": 2}, UNKNOWN_USAGE),
        ({"prompt_tokens": "five", "completion_tokens": True}, UNKNOWN_USAGE),
    ],
    ids=[
        *("nothing", "plain", "details", "thinking counted beside", "deepseek's cache"),
        *("below zero", "beyond all measure", "no numbers"),
    ],
)
async def test_usage_is_as_reported_and_unknown_otherwise(
    vendor: Vendor, hire: Hire, usage: dict[str, Any], counted: Usage
) -> None:
    vendor.says(answer({"content": "ok"}, usage=usage))
    assert (await hire("openai-compatible").reply(ASKED)).usage == counted


async def test_openrouter_counts_what_it_writes_to_its_cache(vendor: Vendor, hire: Hire) -> None:
    details = {"cached_tokens": 0, "cache_write_tokens": 90}
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "prompt_tokens_details": details,
        "cost": 0.01,
    }
    vendor.says(answer({"content": "ok"}, usage=usage))
    assert (await hire("openrouter").reply(ASKED)).usage == Usage(100, 5, 0, None, 90)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({"content": "ok"}, "stop"), {"choices": [], "usage": {"prompt_tokens": 9}}],
        [chunk({"content": "ok"}, "stop", usage={"prompt_tokens": 9})],
        [
            chunk({"content": "ok"}, usage={"prompt_tokens": 1}),
            chunk({}, "stop", usage={"prompt_tokens": 9}),
        ],
        [chunk({"content": "ok"}), chunk({}, "stop", x_groq={"usage": {"prompt_tokens": 9}})],
        [
            {
                "choices": [
                    {
                        "delta": {"content": "ok"},
                        "finish_reason": "stop",
                        "usage": {"prompt_tokens": 9},
                    }
                ]
            }
        ],
    ],
    ids=["after the end", "at the end", "in each chunk", "groq's", "in the choice"],
)
async def test_a_streams_usage_is_found_wherever_it_is(
    vendor: Vendor, hire: Hire, streamed: Streamed, chunks: list[dict[str, Any]]
) -> None:
    vendor.streams(*chunks)
    _, reply = await streamed(hire("openai-compatible"), ASKED)
    assert reply.usage.input_tokens == 9


async def test_a_stream_may_end_without_saying_done(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    vendor.streams(chunk({"content": "ok"}, "stop"), done=False)
    _, reply = await streamed(hire("openai-compatible"), ASKED)
    assert reply.text == "ok"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refused"),
        ("eos", "stop"),
        (None, "stop"),
    ],
)
async def test_a_reply_says_why_it_ended(
    vendor: Vendor, hire: Hire, reason: str, finish: str
) -> None:
    vendor.says(answer({"content": "ok"}, finish=reason))
    assert (await hire("openai-compatible").reply(ASKED)).finish == finish


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"message": "upstream died", "code": 502}, Unavailable, ": upstream died"),
        ({"message": "slow down", "code": 429}, RateLimited, ": slow down"),
        (
            {"message": "much", "code": "context_length_exceeded"},
            PromptTooLong,
            ", the prompt is too long: context_length_exceeded",
        ),
        ({"message": "oops", "type": "server_error"}, Unavailable, ": server_error: oops"),
        ("it broke", Unavailable, ": it broke"),
    ],
)
async def test_an_error_in_mid_stream_is_raised(
    vendor: Vendor, hire: Hire, streamed: Streamed, error: Any, kind: type[WorkerError], said: str
) -> None:
    vendor.streams(chunk({"content": "The an"}), {"error": error})
    with pytest.raises(kind) as caught:
        await streamed(hire("openai-compatible"), ASKED)
    assert f"failed in the middle of its reply{said}" in str(caught.value)
    if isinstance(caught.value, Unavailable):
        assert caught.value.billed


async def test_an_error_with_a_good_status_is_raised_too(vendor: Vendor, hire: Hire) -> None:
    vendor.says({"error": {"message": "no capacity", "code": 503}})
    with pytest.raises(Unavailable, match="no capacity"):
        await hire("openai-compatible").reply(ASKED)


async def test_a_choice_that_ended_in_an_error_is_raised(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    failed = {"delta": {}, "finish_reason": "error", "error": {"message": "gone", "code": 502}}
    vendor.streams(chunk({"content": "The"}), {"choices": [failed]})
    with pytest.raises(Unavailable, match="gone"):
        await streamed(hire("openrouter"), ASKED)


@pytest.mark.parametrize(
    ("provider", "last", "extra"),
    [
        ("openai-compatible", {"role": "assistant", "content": "Sure"}, {}),
        ("deepseek", {"role": "assistant", "content": "Sure", "prefix": True}, {}),
        (
            "vllm",
            {"role": "assistant", "content": "Sure"},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
    ],
)
async def test_a_reply_that_podium_began_starts_with_its_words(
    vendor: Vendor,
    hire: Hire,
    streamed: Streamed,
    provider: str,
    last: dict[str, Any],
    extra: dict[str, Any],
) -> None:
    request = replace(ASKED, prefill="Sure")
    vendor.streams(chunk({"content": ", why"}), chunk({"content": " not"}, "stop"))
    deltas, reply = await streamed(hire(provider), request)
    assert deltas == [Delta("Sure, why"), Delta(" not")]
    assert reply.text == "Sure, why not"
    assert vendor.body["messages"][-1] == last
    assert extra.items() <= vendor.body.items()


async def test_mistral_repeats_the_words_and_has_its_own_names(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    vendor.streams(chunk({"content": "Sure, ok"}, "stop", usage={"prompt_tokens": 3}))
    request = replace(ASKED, prefill="Sure", seed=7)
    deltas, reply = await streamed(hire("mistral"), request)
    assert deltas == [Delta("Sure, ok")]
    assert reply.text == "Sure, ok"
    assert vendor.body == {
        "model": "some-model",
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "Sure", "prefix": True},
        ],
        "random_seed": 7,
        "stream": True,
    }


async def test_openrouters_reasoning_state_goes_back_to_the_model_that_made_it(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    def part(**fields: Any) -> dict[str, Any]:
        return chunk({"reasoning_details": [fields]})

    vendor.streams(
        part(type="reasoning.text", index=0, text="Let me ", signature=None),
        part(type="reasoning.text", index=0, text="see.", signature=None),
        part(type="reasoning.text", index=0, signature="s1g"),
        part(type="reasoning.encrypted", index=1, data="xyz"),
        chunk({"content": "42"}, "stop"),
    )
    worker = hire("openrouter")
    _, reply = await streamed(worker, ASKED)
    vendor.says(answer({"content": "ok"}))
    said = Message("assistant", (*reply.thinking, Text(reply.text)))
    await worker.reply(Request((user("?"), said, user("Sure?"))))
    assert vendor.body["messages"][1]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Let me see.", "signature": "s1g"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    await hire("openrouter", model="other-model").reply(Request((user("?"), said, user("Sure?"))))
    assert vendor.body["messages"][1] == {"role": "assistant", "content": "42"}


async def test_deepseeks_thinking_goes_back_to_the_model_that_made_it(
    vendor: Vendor, hire: Hire, tooled: Request
) -> None:
    vendor.says(answer({"content": "ok"}))
    await hire("deepseek").reply(tooled)
    assert vendor.body["messages"][1]["reasoning_content"] == "I need both."
    await hire("deepseek", model="other-model").reply(tooled)
    assert "reasoning_content" not in vendor.body["messages"][1]


EXTRA = {"top_k": 4, "n": 2, "chat_template_kwargs": {"enable_thinking": False}}


async def test_extra_fields_go_into_the_body_and_replace_nothing(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"content": "yes"}))
    owned = {"model": "dear", "messages": [], "stream": True, "max_tokens": 9, "best_of": 5}
    request = replace(ASKED, temperature=0.5, extra={**EXTRA, **owned, "temperature": 2})
    await hire("openai-compatible", min_p=0.1).reply(request)
    assert vendor.body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "min_p": 0.1,
        **EXTRA,
    }


async def test_an_option_of_the_worker_stands_before_an_extra_field(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"content": "yes"}))
    await hire("openai-compatible", top_k=1).reply(replace(ASKED, extra={"top_k": 40}))
    assert vendor.body["top_k"] == 1


@pytest.mark.parametrize("extra", [{"n": 2}, {"logprobs": True}])
async def test_choices_are_kept_as_they_were_written(
    vendor: Vendor, hire: Hire, streamed: Streamed, extra: dict[str, Any]
) -> None:
    first, second = ({"index": i, "message": {"content": f"{i}"}} for i in (0, 1))
    choices = [first | {"finish_reason": "stop", "logprobs": {}}, second]
    vendor.says({"choices": choices})
    reply = await hire("openai-compatible").reply(replace(ASKED, extra=extra))
    assert (reply.text, reply.choices) == ("0", tuple(choices))
    pieces = [
        {"index": index, "delta": {"content": text}, "finish_reason": finish}
        for index, text, finish in ((1, "b", None), (0, "a", None), (0, "", "stop"))
    ]
    vendor.streams(*({"choices": [piece]} for piece in pieces))
    deltas, reply = await streamed(hire("openai-compatible"), replace(ASKED, extra=extra))
    assert [delta.choices[0] for delta in deltas] == pieces
    assert (reply.text, reply.finish, reply.choices) == ("a", "stop", ())


async def test_one_plain_answer_keeps_no_choices(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"content": "yes"}))
    reply = await hire("openai-compatible").reply(replace(ASKED, extra={"n": 1, "top_k": 4}))
    assert reply.choices == ()


async def test_a_stream_says_that_the_server_accepted_it_before_there_is_content(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.streams(chunk({"role": "assistant"}), chunk({"content": "Hi"}, "stop"))
    pieces = [piece async for piece in hire("openai-compatible").stream(ASKED)]
    kinds = [piece.kind for piece in pieces if isinstance(piece, Delta)]
    assert kinds == ["start", "text"]
