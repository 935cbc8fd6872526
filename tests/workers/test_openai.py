"""OpenAI's Chat Completions, checked against the types of OpenAI's own package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from podium.core.errors import Unavailable
from podium.core.request import Delta, Image, Message, Reply, Request, ToolCall, Usage, user

if TYPE_CHECKING:
    from workers.conftest import Fits, Hire, Streamed, Vendor

ASKED = Request((user("hello"),))
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 0},
}


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-5-2025-08-07",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "refusal": None, "annotations": [], **message},
                "logprobs": None,
                "finish_reason": finish,
            }
        ],
        "usage": USAGE,
        "service_tier": "default",
    }
    ChatCompletion.model_validate(document)
    return document


def chunk(
    delta: dict[str, Any] | None, finish: str | None = None, usage: Any = None
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "gpt-5-2025-08-07",
        "choices": choices,
        "usage": usage,
    }
    ChatCompletionChunk.model_validate(document)
    return document


async def test_a_request_is_in_openais_own_words(vendor: Vendor, hire: Hire, fits: Fits) -> None:
    vendor.says(completion({"content": '{"answer": 42}'}))
    request = replace(
        ASKED,
        max_tokens=9,
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop=("END",),
        effort="minimal",
        schema=SCHEMA,
    )
    reply = await hire("openai", path="/v1").reply(request)
    assert reply == Reply('{"answer": 42}', Usage(100, 20, 64, 12, 30), model="gpt-5-2025-08-07")
    assert vendor.received[0].path == "/v1/chat/completions"
    assert vendor.received[0].headers["authorization"] == "Bearer sk-a-secret-key"
    assert vendor.body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "hello"}],
        "max_completion_tokens": 9,
        "stop": ["END"],
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 7,
        "reasoning_effort": "minimal",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
        },
    }
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize("asked", ["plain", "pictured", "tooled"])
async def test_every_kind_of_message_fits_openais_types(
    vendor: Vendor, hire: Hire, fits: Fits, asked: str, request: pytest.FixtureRequest
) -> None:
    vendor.says(completion({"content": "ok"}))
    await hire("openai").reply(request.getfixturevalue(asked))
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize("choice", ["none", "required", "clock"])
async def test_every_choice_of_tools_fits_openais_types(
    vendor: Vendor, hire: Hire, fits: Fits, tooled: Request, choice: str
) -> None:
    vendor.says(completion({"content": "ok"}))
    await hire("openai").reply(replace(tooled, tool_choice=choice))
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)


async def test_a_stream_carries_words_calls_and_usage(
    vendor: Vendor, hire: Hire, streamed: Streamed, fits: Fits
) -> None:
    def fragment(index: int, **fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": index, **fields}]})

    vendor.streams(
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "Let me"}),
        chunk({"content": " look."}),
        fragment(0, id="call_a", type="function", function={"name": "weather", "arguments": ""}),
        fragment(0, function={"arguments": '{"city":'}),
        fragment(0, function={"arguments": '"Paris"}'}),
        fragment(1, id="call_b", type="function", function={"name": "clock", "arguments": "{}"}),
        chunk({}, finish="tool_calls"),
        chunk(None, usage=USAGE),
    )
    deltas, reply = await streamed(hire("openai"), ASKED)
    assert deltas == [
        Delta("Let me"),
        Delta(" look."),
        Delta("", "tool_call", 0, "call_a", "weather"),
        Delta('{"city":', "tool_call", 0, "call_a", "weather"),
        Delta('"Paris"}', "tool_call", 0, "call_a", "weather"),
        Delta("{}", "tool_call", 1, "call_b", "clock"),
    ]
    assert reply == Reply(
        "Let me look.",
        Usage(100, 20, 64, 12, 30),
        "tool",
        (ToolCall("call_a", "weather", '{"city":"Paris"}'), ToolCall("call_b", "clock", "{}")),
        model="gpt-5-2025-08-07",
    )
    assert fits(CompletionCreateParamsStreaming, vendor.body)


async def test_a_refusal_is_a_reply_that_says_so(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    vendor.says(completion({"content": None, "refusal": "I cannot."}))
    reply = await hire("openai").reply(ASKED)
    assert (reply.text, reply.finish) == ("I cannot.", "refused")
    vendor.streams(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop"))
    deltas, reply = await streamed(hire("openai"), ASKED)
    assert deltas == [Delta("I can"), Delta("not.")]
    assert (reply.text, reply.finish) == ("I cannot.", "refused")


async def test_a_refusal_that_breaks_off_is_not_a_reply(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    vendor.streams(chunk({"refusal": "I can"}), done=False)
    with pytest.raises(Unavailable, match="before its reply was complete"):
        await streamed(hire("openai"), ASKED)


async def test_a_filtered_reply_is_refused(vendor: Vendor, hire: Hire) -> None:
    vendor.says(completion({"content": ""}, finish="content_filter"))
    assert (await hire("openai").reply(ASKED)).finish == "refused"


async def test_counts_that_openai_did_not_send_stay_unknown(vendor: Vendor, hire: Hire) -> None:
    document = completion({"content": "ok"})
    document["usage"] = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    vendor.says(document)
    assert (await hire("openai").reply(ASKED)).usage == Usage(5, 2, None, None, None)


async def test_the_setting_that_chooses_the_wire_is_not_sent(vendor: Vendor, hire: Hire) -> None:
    vendor.says(completion({"content": "ok"}))
    await hire("openai", api="chat", service_tier="flex").reply(ASKED)
    assert "api" not in vendor.body
    assert vendor.body["service_tier"] == "flex"


async def test_an_error_in_mid_stream_is_raised(
    vendor: Vendor, hire: Hire, streamed: Streamed
) -> None:
    error = {"message": "The server had an error", "type": "server_error", "code": None}
    vendor.streams(chunk({"content": "The"}), {"error": error}, done=False)
    with pytest.raises(Unavailable, match="server_error: The server had an error") as caught:
        await streamed(hire("openai"), ASKED)
    assert caught.value.billed


async def test_the_prompt_cache_key_goes_to_vendors_that_support_it(
    vendor: Vendor, hire: Hire, fits: Fits
) -> None:
    vendor.says(completion({"content": "ok"}))
    asked = replace(ASKED, cache_key="mine", cache_ttl="1h")
    await hire("openai").reply(asked)
    assert vendor.body["prompt_cache_key"] == "mine"
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)
    await hire("groq").reply(asked)
    assert set(vendor.body) == {"model", "messages"}


async def test_tool_images_become_a_user_message_after_all_results(
    vendor: Vendor, hire: Hire, shown: Request, fits: Fits
) -> None:
    vendor.says(completion({"content": "ok"}))
    await hire("openai").reply(shown)
    first, second, pictures = vendor.body["messages"][2:]
    assert (first["content"], first["tool_call_id"]) == ("radar", "call_a")
    assert second["content"] == "The tool showed pictures, which follow."
    assert pictures["role"] == "user"
    kinds = [part["type"] for part in pictures["content"]]
    assert kinds == ["text", "image_url", "image_url", "text", "image_url"]
    assert "call_b" in pictures["content"][3]["text"]
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)


@pytest.mark.parametrize(("reason", "message"), [("END", "END"), (128009, ""), ("other", "")])
async def test_a_stop_sequence_is_returned_where_the_server_reports_it(
    vendor: Vendor, hire: Hire, reason: str | int, message: str
) -> None:
    document = completion({"content": "a"})
    document["choices"][0]["stop_reason"] = reason
    vendor.says(document)
    reply = await hire("vllm").reply(replace(ASKED, stop=("END",)))
    assert (reply.finish, reply.stop_sequence) == ("stop", message)


@pytest.mark.parametrize(("provider", "knows"), [("openai", True), ("deepseek", False)])
async def test_parallel_tool_calls_is_sent_to_vendors_that_support_it(
    vendor: Vendor, hire: Hire, tooled: Request, provider: str, knows: bool
) -> None:
    vendor.says(completion({"content": "ok"}))
    await hire(provider).reply(replace(tooled, parallel_tools=False))
    assert vendor.body.get("parallel_tool_calls") is (False if knows else None)
    await hire(provider).reply(replace(tooled, parallel_tools=False, tools=(), tool_choice=""))
    assert "parallel_tool_calls" not in vendor.body


@pytest.mark.parametrize(("provider", "knows"), [("openai", True), ("groq", False)])
async def test_image_detail_is_sent_to_vendors_that_support_it(
    vendor: Vendor, hire: Hire, fits: Fits, provider: str, knows: bool
) -> None:
    vendor.says(completion({"content": "ok"}))
    pictures = (Image(url="https://a.org/b", detail="low"), Image(url="https://a.org/c"))
    await hire(provider).reply(Request((Message("user", pictures),)))
    first, second = vendor.body["messages"][0]["content"]
    assert first["image_url"].get("detail") == ("low" if knows else None)
    assert second["image_url"] == {"url": "https://a.org/c"}
    assert fits(CompletionCreateParamsNonStreaming, vendor.body)
