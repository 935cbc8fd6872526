"""OpenAI's Responses, checked against the types of OpenAI's own package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from podium.core.errors import BadReply, RateLimited, RequestRefused, Unavailable, WorkerError
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
    Usage,
    user,
)
from podium.core.worker import Worker

if TYPE_CHECKING:
    from workers.conftest import Fits, Hire, Streamed, Vendor

ASKED = Request((user("hello"),))
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "I add."}],
    "encrypted_content": "gAAAA",
}
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 120,
}


def response(*output: dict[str, Any], status: str = "completed", **rest: Any) -> dict[str, Any]:
    document = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-5-2025-08-07",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": USAGE,
        **rest,
    }
    Response.model_validate(document)
    return document


def message(*content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": list(content),
    }


def words(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def call(id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{id_}",
        "type": "function_call",
        "call_id": id_,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def event(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    document = {"type": kind, "sequence_number": number, **fields}
    EVENT.validate_python(document)
    return document


def piece(kind: str, number: int, delta: str, **fields: Any) -> dict[str, Any]:
    where = {"item_id": "x", "output_index": 0, "content_index": 0, "logprobs": []}
    return event(kind, number, delta=delta, **where, **fields)


@pytest.fixture
def ada(hire: Hire) -> Worker:
    return hire("openai", api="responses", path="/v1")


async def test_a_request_is_in_openais_own_words(
    vendor: Vendor, ada: Worker, plain: Request, fits: Fits
) -> None:
    vendor.says(response(message(words("{}"))))
    request = replace(
        plain,
        max_tokens=9,
        temperature=0.2,
        top_p=0.9,
        effort="high",
        schema={"type": "object", "properties": {}},
    )
    assert await ada.reply(request) == Reply(
        "{}", Usage(100, 20, 64, 12, 30), model="gpt-5-2025-08-07"
    )
    assert vendor.received[0].path == "/v1/responses"
    assert vendor.received[0].headers["authorization"] == "Bearer sk-a-secret-key"

    def said(role: str, text: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text}]
        return {"type": "message", "role": role, "content": content}

    assert vendor.body == {
        "model": "some-model",
        "input": [
            said("system", "Be brief."),
            said("user", "Hello"),
            {"type": "message", "role": "assistant", "content": "Hi."},
            said("user", "Again?"),
        ],
        "store": False,
        "max_output_tokens": 9,
        "temperature": 0.2,
        "top_p": 0.9,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "reply",
                "schema": {"type": "object", "properties": {}},
                "strict": False,
            }
        },
    }
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_any_object_goes_out_as_json_mode(vendor: Vendor, ada: Worker) -> None:
    vendor.says(response(message(words("{}"))))
    await ada.reply(replace(ASKED, schema=ANY_OBJECT))
    assert vendor.body["text"] == {"format": {"type": "json_object"}}


async def test_a_model_that_does_not_reason_is_not_asked_to(vendor: Vendor, hire: Hire) -> None:
    vendor.says(response(message(words("ok"))))
    worker = hire("openai", api="responses", without=("reasoning", "sampling"))
    await worker.reply(replace(ASKED, effort="high", temperature=0.2))
    assert set(vendor.body) == {"model", "input", "store"}


async def test_pictures_are_sent_as_addresses(
    vendor: Vendor, ada: Worker, pictured: Request, fits: Fits
) -> None:
    vendor.says(response(message(words("ok"))))
    await ada.reply(pictured)
    assert vendor.body["input"][0]["content"][1:] == [
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.com/cat.jpg", "detail": "auto"},
    ]
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_pdfs_are_sent_as_files(vendor: Vendor, ada: Worker, fits: Fits) -> None:
    vendor.says(response(message(words("ok"))))
    linked = Image("application/pdf", url="https://example.com/a.pdf")
    parts = (Image("application/pdf", "QUJD"), linked)
    await ada.reply(Request((Message("user", parts),)))
    data = "data:application/pdf;base64,QUJD"
    assert vendor.body["input"][0]["content"] == [
        {"type": "input_file", "filename": "document.pdf", "file_data": data},
        {"type": "input_file", "file_url": linked.url},
    ]
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_tool_calls_and_their_results_are_sent_back(
    vendor: Vendor, ada: Worker, tooled: Request, fits: Fits
) -> None:
    vendor.says(response(message(words("ok"))))
    await ada.reply(replace(tooled, tool_choice="clock"))
    assert vendor.body["input"][1:5] == [
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {
            "type": "function_call",
            "call_id": "call_a",
            "name": "weather",
            "arguments": '{"city": "Paris"}',
        },
        {"type": "function_call", "call_id": "call_b", "name": "clock", "arguments": ""},
        {"type": "function_call_output", "call_id": "call_a", "output": "sunny"},
    ]
    assert vendor.body["input"][5]["output"] == "Error: no clock"
    assert vendor.body["tools"][0] == {
        "type": "function",
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    assert vendor.body["tool_choice"] == {"type": "function", "name": "clock"}
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_a_reply_ends_at_a_stop_sequence_though_the_api_has_none(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(response(message(words("one, two, three")), call("a", "weather", "{}")))
    reply = await ada.reply(replace(ASKED, stop=("three", ", t")))
    assert "stop" not in vendor.body
    assert (reply.text, reply.finish, reply.stop_sequence) == ("one", "stop", ", t")
    assert (reply.tool_calls, reply.usage.output_tokens) == ((), 20)
    vendor.says(response(message(words("one"))))
    reply = await ada.reply(replace(ASKED, stop=("two",)))
    assert (reply.text, reply.stop_sequence) == ("one", "")


@pytest.mark.parametrize(
    ("stops", "seen", "whole"),
    [
        (("ab",), ["x", "a"], "xa"),
        (("aab", "nothing"), ["x"], "x"),
        (("bc", "b"), ["x", "a", "a"], "xaa"),
        (("yz", "x"), [], ""),
        (("abz", "by"), ["x", "a"], "xaab"),
    ],
)
async def test_no_start_of_a_stop_sequence_is_streamed(
    vendor: Vendor,
    ada: Worker,
    streamed: Streamed,
    stops: tuple[str, ...],
    seen: list[str],
    whole: str,
) -> None:
    end = response(message(words("xaab")))
    pieces = [piece("response.output_text.delta", n, text) for n, text in enumerate("xaab")]
    vendor.streams(*pieces, event("response.completed", 9, response=end), done=False)
    deltas, reply = await streamed(ada, replace(ASKED, stop=stops))
    assert deltas == [Delta(text) for text in seen]
    assert (reply.text, reply.usage.output_tokens) == (whole, 20)


async def test_seeds_are_refused_for_the_api_has_none(ada: Worker) -> None:
    with pytest.raises(RequestRefused, match="takes no seed"):
        await ada.reply(replace(ASKED, seed=7))


async def test_an_unsupported_part_is_refused(ada: Worker) -> None:
    said = Message("assistant", (Image(url="http://x"),))
    with pytest.raises(RequestRefused, match="takes no image in assistant messages"):
        await ada.reply(Request((said,)))


async def test_parallel_calls_come_back_whole(vendor: Vendor, ada: Worker) -> None:
    vendor.says(response(REASONING, call("a", "weather", '{"x":1}'), call("b", "clock", "")))
    reply = await ada.reply(ASKED)
    assert reply.tool_calls == (ToolCall("a", "weather", '{"x":1}'), ToolCall("b", "clock", "{}"))
    assert reply.finish == "tool"
    assert reply.text == ""


async def test_reasoning_goes_back_encrypted_and_only_to_its_model(
    vendor: Vendor, hire: Hire, ada: Worker, fits: Fits
) -> None:
    vendor.says(response(REASONING, message(words("42"))))
    reply = await ada.reply(ASKED)
    assert reply.thinking[0].text == "I add."
    assert reply.thinking[0].model == "some-model"
    said = Message("assistant", (*reply.thinking, Text(reply.text)))
    again = Request((user("?"), said, user("Sure?")))
    await ada.reply(again)
    assert vendor.body["input"][1] == REASONING
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)
    await hire("openai", api="responses", model="other-model").reply(again)
    assert [item["type"] for item in vendor.body["input"]] == ["message"] * 3


async def test_reasoning_without_its_encrypted_state_is_not_sent_back(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(response(message(words("ok"))))
    said = Message("assistant", (Thinking("hm", model="some-model"), Text("42")))
    await ada.reply(Request((user("?"), said, user("Sure?"))))
    assert [item["type"] for item in vendor.body["input"]] == ["message"] * 3


async def test_a_summary_of_the_thinking_is_asked_for_by_a_setting(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(response(message(words("ok"))))
    await hire("openai", api="responses", reasoning_summary="auto").reply(ASKED)
    assert vendor.body["reasoning"] == {"summary": "auto"}
    assert "reasoning_summary" not in vendor.body


async def test_a_stream_carries_words_thinking_and_usage(
    vendor: Vendor, ada: Worker, streamed: Streamed, fits: Fits
) -> None:
    whole = response(REASONING, message(words("It is 42")), call("a", "clock", "{}"))
    vendor.streams(
        event("response.created", 0, response=response(status="in_progress", usage=None)),
        piece("response.reasoning_summary_text.delta", 1, "I ", summary_index=0),
        piece("response.reasoning_summary_text.delta", 2, "add.", summary_index=0),
        piece("response.output_text.delta", 3, "It is "),
        piece("response.output_text.delta", 4, "42"),
        event(
            "response.output_item.added",
            5,
            output_index=2,
            item=call("a", "clock", "") | {"status": "in_progress"},
        ),
        piece("response.function_call_arguments.delta", 5, "{}") | {"output_index": 2},
        event("response.completed", 6, response=whole),
        done=False,
    )
    deltas, reply = await streamed(ada, ASKED)
    assert deltas == [
        Delta("I ", "thinking"),
        Delta("add.", "thinking"),
        Delta("It is "),
        Delta("42"),
        Delta("", "tool_call", 0, "a", "clock"),
        Delta("{}", "tool_call", 0, "a", "clock"),
    ]
    assert reply.text == "It is 42"
    assert reply.tool_calls == (ToolCall("a", "clock", "{}"),)
    assert reply.usage == Usage(100, 20, 64, 12, 30)
    assert fits(ResponseCreateParamsStreaming, vendor.body)


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "refused")]
)
async def test_an_incomplete_response_says_why(
    vendor: Vendor, ada: Worker, streamed: Streamed, reason: str, finish: str
) -> None:
    cut = response(message(words("It")), status="incomplete", incomplete_details={"reason": reason})
    vendor.says(cut)
    assert (await ada.reply(ASKED)).finish == finish
    vendor.streams(event("response.incomplete", 0, response=cut), done=False)
    assert (await streamed(ada, ASKED))[1].finish == finish


async def test_a_refusal_is_a_reply_that_says_so(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    refused = response(message({"type": "refusal", "refusal": "I cannot."}))
    vendor.streams(
        piece("response.refusal.delta", 0, "I cannot."),
        event("response.completed", 1, response=refused),
        done=False,
    )
    deltas, reply = await streamed(ada, ASKED)
    assert deltas == [Delta("I cannot.")]
    assert (reply.text, reply.finish) == ("I cannot.", "refused")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", Unavailable),
        ("rate_limit_exceeded", RateLimited),
        ("invalid_prompt", RequestRefused),
    ],
)
async def test_a_response_that_failed_is_raised(
    vendor: Vendor, ada: Worker, streamed: Streamed, code: str, kind: type[WorkerError]
) -> None:
    error = {"code": code, "message": "because"}
    failed = response(status="failed", error=error, usage=None)
    vendor.streams(
        piece("response.output_text.delta", 0, "It"),
        event("response.failed", 1, response=failed),
        done=False,
    )
    with pytest.raises(kind, match=f"{code}: because"):
        await streamed(ada, ASKED)
    vendor.says(failed)
    with pytest.raises(kind, match=f"{code}: because"):
        await ada.reply(ASKED)


async def test_an_error_event_is_raised(vendor: Vendor, ada: Worker, streamed: Streamed) -> None:
    vendor.streams(
        piece("response.output_text.delta", 0, "It"),
        event("error", 1, code="server_error", message="gone", param=None),
        done=False,
    )
    with pytest.raises(Unavailable, match="server_error: gone") as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


async def test_a_stream_without_its_last_event_was_broken_off(
    vendor: Vendor, ada: Worker, streamed: Streamed
) -> None:
    vendor.streams(piece("response.output_text.delta", 0, "It"), done=False)
    with pytest.raises(Unavailable) as caught:
        await streamed(ada, ASKED)
    assert caught.value.billed


async def test_a_response_that_is_not_complete_is_bad(vendor: Vendor, ada: Worker) -> None:
    vendor.says(response(status="in_progress", usage=None))
    with pytest.raises(BadReply, match="expected a completed response, got status 'in_progress'"):
        await ada.reply(ASKED)


async def test_a_response_without_usage_or_with_an_impossible_one_leaves_it_unknown(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(response(message(words("ok")), usage=None))
    assert (await ada.reply(ASKED)).usage == UNKNOWN_USAGE
    vendor.says(response(message(words("ok")), usage={**USAGE, "input_tokens": -1}))
    reply = await ada.reply(ASKED)
    assert (reply.text, reply.usage) == ("ok", UNKNOWN_USAGE)


async def test_the_key_of_the_prompt_cache_is_passed_on(
    vendor: Vendor, hire: Hire, fits: Fits
) -> None:
    vendor.says(response(message(words("ok"))))
    await hire("openai", api="responses").reply(replace(ASKED, cache_key="mine"))
    assert vendor.body["prompt_cache_key"] == "mine"
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_tool_images_are_in_their_outputs(
    vendor: Vendor, ada: Worker, shown: Request, fits: Fits
) -> None:
    vendor.says(response(message(words("ok"))))
    await ada.reply(shown)
    sent, linked = "data:image/png;base64,QUJD", "https://example.com/cat.jpg"
    first, second = vendor.body["input"][-2:]
    assert first["output"][0] == {"type": "input_text", "text": "radar"}
    assert [part["image_url"] for part in first["output"][1:]] == [sent, linked]
    assert [part["image_url"] for part in second["output"]] == [linked]
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_one_tool_at_a_time_is_demanded_where_there_are_tools(
    vendor: Vendor, ada: Worker, tooled: Request
) -> None:
    vendor.says(response(message(words("ok"))))
    await ada.reply(replace(tooled, parallel_tools=False))
    assert vendor.body["parallel_tool_calls"] is False
    await ada.reply(replace(tooled, parallel_tools=False, tools=(), tool_choice=""))
    assert "parallel_tool_calls" not in vendor.body


async def test_image_detail_is_sent(vendor: Vendor, ada: Worker, fits: Fits) -> None:
    vendor.says(response(message(words("ok"))))
    pictures = (Image(url="https://a.org/b", detail="low"), Image(url="https://a.org/c"))
    await ada.reply(Request((Message("user", pictures),)))
    content = vendor.body["input"][0]["content"]
    assert [part["detail"] for part in content] == ["low", "auto"]
    assert fits(ResponseCreateParamsNonStreaming, vendor.body)


async def test_extra_fields_go_into_the_body_and_replace_nothing(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(response(message(words("ok"))))
    extra = {"top_logprobs": 2, "store": True, "max_output_tokens": 9, "n": 3}
    await ada.reply(replace(ASKED, extra=extra))
    assert vendor.body["top_logprobs"] == 2
    assert vendor.body["store"] is False
    assert not {"max_output_tokens", "n"} & set(vendor.body)


async def test_a_summary_that_the_client_asks_for_stands_before_the_setting(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says(response(message(words("ok"))))
    asked = {"reasoning": {"effort": "low", "summary": "detailed"}}
    await ada.reply(replace(ASKED, effort="low", extra=asked))
    assert vendor.body["reasoning"] == {"effort": "low", "summary": "detailed"}
