"""Google's Gemini API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from podium.core.errors import BadReply, RateLimited, RequestRefused, Unavailable
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
    user,
)
from podium.core.worker import Worker

if TYPE_CHECKING:
    from workers.conftest import Hire, Streamed, Vendor

ASKED = Request((user("hello"),))
USAGE = {
    "promptTokenCount": 90,
    "toolUsePromptTokenCount": 10,
    "cachedContentTokenCount": 64,
    "candidatesTokenCount": 8,
    "thoughtsTokenCount": 12,
    "totalTokenCount": 120,
}
COUNTED = Usage(100, 20, 64, 12, 0)


def chunk(*parts: dict[str, Any], finish: str | None = None, **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": USAGE,
        "modelVersion": "gemini-3.5-flash",
        "responseId": "r",
        **rest,
    }


def answer(*parts: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return chunk(*parts, finish="STOP", **rest)


@pytest.fixture
def ada(hire: Hire) -> Worker:
    return hire("google", path="/v1beta")


async def test_a_request_is_in_googles_own_words(
    vendor: Vendor, ada: Worker, plain: Request
) -> None:
    vendor.says(answer({"text": "Yes."}))
    request = replace(
        plain,
        max_tokens=9,
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop=("END",),
        effort="low",
        schema={"type": "object", "properties": {}},
    )
    assert await ada.reply(request) == Reply("Yes.", COUNTED, model="gemini-3.5-flash")
    assert vendor.received[0].path == "/v1beta/models/some-model:generateContent"
    assert vendor.received[0].headers["x-goog-api-key"] == "sk-a-secret-key"
    assert vendor.body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hi."}]},
            {"role": "user", "parts": [{"text": "Again?"}]},
        ],
        "generationConfig": {
            "temperature": 0.2,
            "topP": 0.9,
            "seed": 7,
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object", "properties": {}},
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
        },
    }


async def test_any_object_is_a_media_type_without_a_schema(vendor: Vendor, ada: Worker) -> None:
    vendor.says(answer({"text": "{}"}))
    await ada.reply(replace(ASKED, schema=ANY_OBJECT))
    assert vendor.body["generationConfig"] == {"responseMimeType": "application/json"}


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3.5-flash", "/models/gemini-3.5-flash"),
        ("tunedModels/mine", "/tunedModels/mine"),
        ("odd name?", "/models/odd%20name%3F"),
    ],
)
async def test_the_model_is_in_the_address_and_the_key_is_not(
    vendor: Vendor, hire: Hire, streamed: Streamed, model: str, path: str
) -> None:
    vendor.streams(answer({"text": "ok"}), done=False)
    await streamed(hire("google", model=model), ASKED)
    assert vendor.received[0].path == f"{path}:streamGenerateContent?alt=sse"


async def test_unsupported_parameters_are_not_sent(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"text": "ok"}))
    worker = hire("google", without=("sampling", "reasoning", "prefill"))
    await worker.reply(replace(ASKED, temperature=0.2, seed=7, effort="high", prefill="x"))
    assert vendor.body == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


@pytest.mark.parametrize(
    ("style", "effort", "sent"),
    [
        ("level", "none", {"includeThoughts": False, "thinkingLevel": "minimal"}),
        ("level", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("budget", "none", {"includeThoughts": False, "thinkingBudget": 0}),
        ("budget", "minimal", {"includeThoughts": True, "thinkingBudget": 128}),
        ("budget", "high", {"includeThoughts": True, "thinkingBudget": 24576}),
    ],
)
async def test_effort_is_translated_for_the_models_generation(
    vendor: Vendor, hire: Hire, style: str, effort: Effort, sent: dict[str, Any]
) -> None:
    vendor.says(answer({"text": "ok"}))
    await hire("google", thinking_style=style).reply(replace(ASKED, effort=effort))
    assert vendor.body["generationConfig"] == {"thinkingConfig": sent}


@pytest.mark.parametrize(
    ("effort", "sent"),
    [
        ("low", {"includeThoughts": True, "thinkingBudget": 3000}),
        ("none", {"includeThoughts": False, "thinkingBudget": 0}),
    ],
)
async def test_a_budget_for_thinking_goes_to_models_that_take_one(
    vendor: Vendor, hire: Hire, effort: Effort, sent: dict[str, Any]
) -> None:
    vendor.says(answer({"text": "ok"}))
    asked = replace(ASKED, effort=effort, thinking_tokens=3000)
    await hire("google", thinking_style="budget").reply(asked)
    assert vendor.body["generationConfig"] == {"thinkingConfig": sent}


async def test_a_generation_config_in_the_options_is_added_and_keeps_the_bound(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"text": "ok"}))
    ada = hire("google", generationConfig={"temperature": 1, "topK": 40})
    await ada.reply(replace(ASKED, max_tokens=300, temperature=0.5))
    assert vendor.body["generationConfig"] == {
        "temperature": 1,
        "topK": 40,
        "maxOutputTokens": 300,
    }


async def test_turns_alternate_and_hold_nothing_empty(vendor: Vendor, ada: Worker) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(Request((user("a"), user("b"), assistant(""), user("c"))))
    assert vendor.body["contents"] == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}
    ]


async def test_pictures_are_sent_inline_or_by_address(
    vendor: Vendor, ada: Worker, pictured: Request
) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(pictured)
    assert vendor.body["contents"][0]["parts"][1:] == [
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
        {"fileData": {"fileUri": "https://example.com/cat.jpg", "mimeType": "image/jpeg"}},
    ]
    await ada.reply(Request((Message("user", (Image(url="https://example.com/cat"),)),)))
    assert vendor.body["contents"][0]["parts"] == [
        {"fileData": {"fileUri": "https://example.com/cat"}}
    ]


async def test_tool_calls_and_their_results_are_sent_back(
    vendor: Vendor, hire: Hire, tooled: Request
) -> None:
    vendor.says(answer({"text": "ok"}))
    await hire("google", thinking_style="budget").reply(tooled)
    assert vendor.body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"functionCall": {"id": "call_a", "name": "weather", "args": {"city": "Paris"}}},
                {"functionCall": {"id": "call_b", "name": "clock", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_a",
                        "name": "weather",
                        "response": {"output": "sunny"},
                    }
                },
                {
                    "functionResponse": {
                        "id": "call_b",
                        "name": "clock",
                        "response": {"error": "no clock"},
                    }
                },
                {"text": "Quickly."},
            ],
        },
    ]
    assert vendor.body["tools"][0]["functionDeclarations"][0] == {
        "name": "weather",
        "description": "The weather of a city",
        "parametersJsonSchema": {"type": "object", "properties": {}},
    }
    assert vendor.body["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("clock", {"mode": "ANY", "allowedFunctionNames": ["clock"]}),
    ],
)
async def test_a_tool_can_be_forbidden_required_or_named(
    vendor: Vendor, ada: Worker, tooled: Request, choice: str, sent: Any
) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(replace(tooled, tool_choice=choice))
    assert vendor.body["toolConfig"] == {"functionCallingConfig": sent}


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (Message("assistant", (Image(url="http://x"),)), "takes no image in assistant"),
        (Message("system", (Image(url="http://x"),)), "takes no image in system"),
        (Message("user", (ToolCall("a", "b", "{}"),)), "takes no tool call in user"),
        (Message("user", (Thinking("hm"),)), "takes no thinking in user"),
        (Message("tool", (ToolResult("a", "x"),)), "the result of call 'a', but not the call"),
        (Message("assistant", (ToolCall("a", "b", "oops"),)), "arguments of tool 'b'"),
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


async def test_a_stream_carries_thinking_words_calls_and_usage(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.streams(
        chunk({"text": "Let me ", "thought": True}, usageMetadata={"promptTokenCount": 90}),
        chunk({"text": "see.", "thought": True}),
        chunk({"text": "Grü"}),
        chunk({"text": "ße"}),
        chunk({"functionCall": {"id": "a", "name": "weather", "args": {"city": "Paris"}}}),
        chunk({"functionCall": {"name": "clock"}}),
        chunk({"text": ""}, finish="STOP"),
        done=False,
    )
    deltas, reply = await streamed(ada, ASKED)
    assert deltas == [
        Delta("Let me ", "thinking"),
        Delta("see.", "thinking"),
        Delta("Grü"),
        Delta("ße"),
    ]
    assert reply.text == "Grüße"
    assert reply.tool_calls[0] == ToolCall("a", "weather", '{"city": "Paris"}')
    assert reply.tool_calls[1].name == "clock"
    assert reply.tool_calls[1].id.startswith("call_")
    assert (reply.finish, reply.usage) == ("tool", COUNTED)
    assert reply.thinking == (Thinking("Let me see.", model="some-model"),)


async def test_signatures_go_back_to_their_own_parts_and_only_to_their_model(
    vendor: Vendor, hire: Hire, ada: Worker
) -> None:
    spoken = {"text": "Let me look.", "thoughtSignature": "c2ln"}
    called = {
        "functionCall": {"id": "a", "name": "weather", "args": {}},
        "thoughtSignature": "Y2FsbA==",
    }
    second = {"functionCall": {"id": "b", "name": "clock", "args": {}}}
    vendor.says(answer({"text": "Hm.", "thought": True}, spoken, called, second))
    reply = await ada.reply(ASKED)
    turn = Message("assistant", (*reply.thinking, Text(reply.text), *reply.tool_calls))
    results = tuple(ToolResult(call.id, "x") for call in reply.tool_calls)
    again = Request((*ASKED.messages, turn, Message("tool", results)))
    await ada.reply(again)
    assert vendor.body["contents"][1]["parts"] == [spoken, called, second]
    await hire("google", model="other-model", thinking_style="budget").reply(again)
    assert vendor.body["contents"][1]["parts"] == [
        {"text": "Let me look."},
        {"functionCall": called["functionCall"]},
        second,
    ]


async def test_another_models_calls_are_marked_as_such_for_newer_models(
    vendor: Vendor, ada: Worker, tooled: Request
) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(tooled)
    marks = [part.get("thoughtSignature") for part in vendor.body["contents"][1]["parts"]]
    assert marks == [None, "skip_thought_signature_validator", None]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, UNKNOWN_USAGE),
        ({"promptTokenCount": 5, "totalTokenCount": 5}, Usage(5, 0, 0, 0, 0)),
        (USAGE, COUNTED),
        ({**USAGE, "promptTokenCount": -5}, UNKNOWN_USAGE),
    ],
    ids=["not said", "zeros are left out", "everything", "below zero"],
)
async def test_output_includes_the_thoughts(
    vendor: Vendor, ada: Worker, usage: dict[str, Any] | None, counted: Usage
) -> None:
    vendor.says(answer({"text": "ok"}, usageMetadata=usage))
    assert (await ada.reply(ASKED)).usage == counted


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
        ("PROHIBITED_CONTENT", "refused"),
        ("SPII", "refused"),
        ("BLOCKLIST", "refused"),
        ("SOMETHING_NEW", "stop"),
    ],
)
async def test_a_reply_says_why_it_ended(
    vendor: Vendor, ada: Worker, reason: str, finish: str
) -> None:
    vendor.says(chunk({"text": "ok"}, finish=reason))
    assert (await ada.reply(ASKED)).finish == finish


async def test_a_blocked_candidate_may_have_no_content(vendor: Vendor, ada: Worker) -> None:
    vendor.says({"candidates": [{"finishReason": "SAFETY"}]})
    assert (await ada.reply(ASKED)).finish == "refused"


async def test_a_blocked_prompt_is_a_refusal_that_says_why(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    vendor.says(blocked)
    reply = await ada.reply(ASKED)
    assert (reply.text, reply.finish) == ("The prompt was blocked: SAFETY.", "refused")
    vendor.streams(blocked, done=False)
    assert (await streamed(ada, ASKED))[1].finish == "refused"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_a_call_that_the_model_botched_is_a_bad_reply(
    vendor: Vendor, ada: Worker, reason: str
) -> None:
    vendor.says(chunk(finish=reason))
    with pytest.raises(BadReply, match=f"wrote invalid output: {reason}"):
        await ada.reply(ASKED)


async def test_a_wait_is_found_in_the_errors_details(vendor: Vendor, ada: Worker) -> None:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
    ]
    error = {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    for body in ({"error": error}, [{"error": error}]):
        vendor.says(body, status=429)
        with pytest.raises(RateLimited, match="HTTP 429: Quota") as caught:
            await ada.reply(ASKED)
        assert caught.value.retry_after == 34.5


async def test_an_error_in_mid_stream_is_raised(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    vendor.streams(chunk({"text": "The"}), {"error": error}, done=False)
    with pytest.raises(Unavailable, match="UNAVAILABLE: The model is overloaded") as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


async def test_a_stream_without_a_reason_to_end_was_broken_off(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.streams(chunk({"text": "The"}), done=False)
    with pytest.raises(Unavailable) as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


async def test_a_reply_without_a_candidate_is_bad(vendor: Vendor, ada: Worker) -> None:
    vendor.says({"candidates": []})
    with pytest.raises(BadReply, match="expected a candidate with a finishReason"):
        await ada.reply(ASKED)


async def test_tool_images_follow_all_results(vendor: Vendor, ada: Worker, shown: Request) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(shown)
    kinds = [next(iter(part)) for part in vendor.body["contents"][2]["parts"]]
    assert kinds == ["functionResponse"] * 2 + ["inlineData", "fileData", "fileData"]
