"""Amazon Bedrock, checked against botocore: its service model, its serializer, its signer."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator

from podium.core.errors import (
    AuthenticationFailed,
    BadReply,
    ConfigError,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from podium.core.pool import CAPABILITIES, Limits, WorkerProfile
from podium.core.request import (
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
    assistant,
    user,
)
from podium.workers import Endpoint, Http, connect
from podium.workers.bedrock import BedrockWorker
from podium.workers.credentials import AwsSignature, aws_region

if TYPE_CHECKING:
    from workers.conftest import Hire, Streamed, Vendor

SERVICE = botocore.session.Session().get_service_model("bedrock-runtime")
CONVERSE = SERVICE.operation_model("Converse")
MODEL = "us.anthropic.claude-sonnet-5-5-v1:0"
ASKED = Request((user("hello"),))
USAGE = {
    "inputTokens": 26,
    "outputTokens": 20,
    "totalTokens": 110,
    "cacheReadInputTokens": 64,
    "cacheWriteInputTokens": 10,
}
COUNTED = Usage(100, 20, 64, None, 10)


def answer(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {
        "output": {"message": {"role": "assistant", "content": list(content)}},
        "stopReason": stop,
        "usage": USAGE,
        "metrics": {"latencyMs": 5},
    }


def frame(kind: str, document: Any, message_type: str = "event") -> bytes:
    """One message of AWS's event stream, as its documentation lays it out."""
    headers = b""
    named = {
        ":message-type": message_type,
        f":{message_type}-type": kind,
        ":content-type": "application/json",
    }
    for name, value in named.items():
        headers += bytes([len(name)]) + name.encode()
        headers += b"\x07" + struct.pack(">H", len(value)) + value.encode()
    payload = json.dumps(document).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def streams(vendor: Vendor, *events: tuple[str, Any], raw: bytes = b"") -> None:
    body = b"".join(frame(kind, document) for kind, document in events) + raw
    kind = {"Content-Type": "application/vnd.amazon.eventstream"}
    vendor.says_bytes(body, headers=kind)


def delta(index: int, **delta: Any) -> tuple[str, Any]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def stopped(reason: str = "end_turn") -> list[tuple[str, Any]]:
    return [
        ("messageStop", {"stopReason": reason}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 5}}),
    ]


def decoded(value: Any) -> Any:
    """The parameters that a user of botocore would give for a body: its blobs as bytes."""
    if isinstance(value, dict):
        return {
            key: base64.b64decode(member)
            if key in ("bytes", "redactedContent")
            else decoded(member)
            for key, member in value.items()
        }
    return [decoded(member) for member in value] if isinstance(value, list) else value


def check(vendor: Vendor, model: str = "some-model") -> dict[str, Any]:
    """Check the last request by botocore's own model and serializer."""
    received = vendor.received[-1]
    parameters = decoded({"modelId": model, **received.body})
    report = ParamValidator().validate(parameters, CONVERSE.input_shape)
    assert not report.has_errors(), report.generate_report()
    serializer = create_serializer(SERVICE.metadata["protocol"], include_validation=False)
    serialized = serializer.serialize_to_request(parameters, CONVERSE)
    assert json.loads(serialized["body"]) == received.body
    assert received.path.removesuffix("-stream") == serialized["url_path"].replace("%3A", ":")
    body: dict[str, Any] = received.body
    return body


@pytest.fixture
def ada(hire: Hire) -> BedrockWorker:
    worker = hire("bedrock")
    assert isinstance(worker, BedrockWorker)
    return worker


async def test_a_request_fits_the_service_model(
    vendor: Vendor, ada: BedrockWorker, plain: Request
) -> None:
    vendor.says(answer({"text": "Yes."}))
    request = replace(plain, max_tokens=9, temperature=0.2, top_p=0.9, stop=("END",))
    assert await ada.reply(request) == Reply("Yes.", COUNTED, model="some-model")
    assert vendor.received[0].headers["authorization"] == "Bearer sk-a-secret-key"
    assert check(vendor) == {
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "Hello"}]},
            {"role": "assistant", "content": [{"text": "Hi."}]},
            {"role": "user", "content": [{"text": "Again?"}]},
        ],
        "inferenceConfig": {
            "maxTokens": 9,
            "temperature": 0.2,
            "topP": 0.9,
            "stopSequences": ["END"],
        },
    }


async def test_an_arn_is_one_segment_of_the_address(vendor: Vendor, hire: Hire) -> None:
    arn = "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.amazon.nova-2-lite-v1:0"
    vendor.says(answer({"text": "ok"}))
    await hire("bedrock", model=arn).reply(ASKED)
    check(vendor, arn)


async def test_tools_their_calls_and_their_results_fit(
    vendor: Vendor, ada: BedrockWorker, tooled: Request, shown: Request
) -> None:
    call = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rome"}}}
    vendor.says(answer({"text": "Let me see."}, call, stop="tool_use"))
    reply = await ada.reply(tooled)
    assert reply.tool_calls == (ToolCall("t1", "weather", '{"city": "Rome"}'),)
    assert (reply.finish, reply.text) == ("tool", "Let me see.")
    body = check(vendor)
    assert body["toolConfig"]["toolChoice"] == {"auto": {}}
    assert body["messages"][2]["content"][1]["toolResult"] == {
        "toolUseId": "call_b",
        "content": [{"text": "no clock"}],
        "status": "error",
    }
    pictures = replace(shown, messages=(*shown.messages[:2], shown.messages[2]))
    only_sent = ToolResult("call_a", "radar", images=(Image("image/jpg", "QUJD"),))
    other = ToolResult("call_b", "noon")
    messages = (*pictures.messages[:2], Message("tool", (only_sent, other)))
    await ada.reply(replace(shown, messages=messages, tool_choice="clock"))
    body = check(vendor)
    assert body["toolConfig"]["toolChoice"] == {"tool": {"name": "clock"}}
    assert body["messages"][2]["content"][0]["toolResult"]["content"] == [
        {"text": "radar"},
        {"image": {"format": "jpeg", "source": {"bytes": "QUJD"}}},
    ]


@pytest.mark.parametrize("change", [{"tools": ()}, {"tool_choice": "none"}])
async def test_calls_are_text_where_no_tool_may_be_called(
    vendor: Vendor, ada: BedrockWorker, tooled: Request, change: dict[str, Any]
) -> None:
    vendor.says(answer({"text": "ok"}))
    await ada.reply(replace(tooled, **change))
    body = check(vendor)
    assert "toolConfig" not in body
    assert {"text": '[Called weather with {"city": "Paris"}]'} in body["messages"][1]["content"]
    assert {"text": "[Result (error): no clock]"} in body["messages"][2]["content"]


async def test_thinking_goes_back_to_its_model_as_it_came(vendor: Vendor, hire: Hire) -> None:
    thought = {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}
    redacted = {"redactedContent": "c2VjcmV0"}
    blocks: list[dict[str, Any]] = [{"reasoningContent": thought}, {"reasoningContent": redacted}]
    vendor.says(answer(*blocks, {"text": "4"}))
    worker = hire("bedrock", thinking_style="budget")
    request = replace(ASKED, effort="low", max_tokens=9000)
    reply = await worker.reply(request)
    assert [thinking.text for thinking in reply.thinking] == ["Hm.", ""]
    sent = check(vendor)["additionalModelRequestFields"]
    assert sent == {"thinking": {"type": "enabled", "budget_tokens": 2048}}
    again = (*request.messages, Message("assistant", (*reply.thinking, Text("4"))), user("Sure?"))
    await worker.reply(replace(request, messages=again))
    assert check(vendor)["messages"][1]["content"] == [*blocks, {"text": "4"}]
    foreign = Message("assistant", (Thinking("Hm.", '{"signature": "x"}', "other"), Text("4")))
    await worker.reply(replace(request, messages=(user("2+2"), foreign, user("Sure?"))))
    assert check(vendor)["messages"][1]["content"] == [{"text": "4"}]


async def test_effort_is_a_word_for_models_that_take_one(vendor: Vendor, hire: Hire) -> None:
    vendor.says(answer({"text": "ok"}))
    more = {"additionalModelRequestFields": {"top_k": 5}}
    await hire("bedrock", thinking_style="effort", **more).reply(replace(ASKED, effort="high"))
    sent = check(vendor)["additionalModelRequestFields"]
    assert sent == {"reasoning_effort": "high", "top_k": 5}


async def test_cache_points_follow_what_they_close(
    vendor: Vendor, hire: Hire, plain: Request, tooled: Request
) -> None:
    vendor.says(answer({"text": "ok"}))
    ada = hire("bedrock", model=MODEL)
    await ada.reply(replace(plain, cache_ttl="1h"))
    body, point = check(vendor, MODEL), {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"][-1] == point
    assert [turn["content"][-1] for turn in body["messages"][-2:]] == [point, point]
    await ada.reply(replace(tooled, cache_ttl="1h"))
    assert check(vendor, MODEL)["toolConfig"]["tools"][-1] == point


@pytest.mark.parametrize(
    ("model", "setting", "caches"),
    [
        ("eu.amazon.nova-2-lite-v1:0", "auto", True),
        ("meta.llama4-maverick-v1:0", "auto", False),
        ("arn:aws:bedrock:eu-west-1:1:application-inference-profile/x", "on", True),
        (MODEL, "off", False),
    ],
)
async def test_cache_points_are_not_sent_to_models_that_refuse_them(
    vendor: Vendor, hire: Hire, plain: Request, model: str, setting: str, caches: bool
) -> None:
    vendor.says(answer({"text": "ok"}))
    worker = hire("bedrock", model=model, cache_points=setting)
    await worker.reply(replace(plain, cache_ttl="5m"))
    assert ("cachePoint" in str(check(vendor, model))) is caches


async def test_blank_text_is_not_sent(vendor: Vendor, ada: BedrockWorker, tooled: Request) -> None:
    vendor.says(answer({"text": "ok"}))
    blank = Message("user", (Text(" \n"), Text("hello")))
    results = (ToolResult("call_a", ""), ToolResult("call_b", "noon"))
    messages = (blank, tooled.messages[1], Message("tool", results))
    await ada.reply(replace(tooled, messages=messages))
    sent = check(vendor)["messages"]
    assert sent[0]["content"] == [{"text": "hello"}]
    assert sent[2]["content"][0]["toolResult"]["content"] == [{"text": "(no output)"}]


@pytest.mark.parametrize("style", ["format", "tool"])
async def test_a_schema_is_enforced(
    vendor: Vendor, hire: Hire, streamed: Streamed, style: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    worker, request = hire("bedrock", schema_style=style), replace(ASKED, schema=schema)
    if style == "format":
        vendor.says(answer({"text": '{"a": 1}'}))
        assert (await worker.reply(request)).text == '{"a": 1}'
        form = check(vendor)["outputConfig"]["textFormat"]
        assert (
            json.loads(form["structure"]["jsonSchema"]["schema"])["additionalProperties"] is False
        )
        return
    start = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "reply"}}}
    pieces = [delta(0, toolUse={"input": piece}) for piece in ('{"a"', ": 1}")]
    streams(vendor, ("contentBlockStart", start), *pieces, *stopped("tool_use"))
    deltas, reply = await streamed(worker, request)
    assert (reply.text, reply.finish, deltas[0]) == ('{"a": 1}', "stop", Delta('{"a"'))
    assert check(vendor)["toolConfig"]["toolChoice"] == {"tool": {"name": "reply"}}


async def test_a_stream_is_read_from_the_binary_framing(
    vendor: Vendor, ada: BedrockWorker, streamed: Streamed, tooled: Request
) -> None:
    start = {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t1", "name": "weather"}}}
    streams(
        vendor,
        ("messageStart", {"role": "assistant"}),
        delta(0, reasoningContent={"text": "Hm."}),
        delta(0, reasoningContent={"signature": "c2ln"}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        delta(1, text="Let me "),
        delta(1, text="löok."),
        ("contentBlockStart", start),
        delta(2, toolUse={"input": '{"city": '}),
        delta(2, toolUse={"input": '"Rome"}'}),
        *stopped("tool_use"),
    )
    deltas, reply = await streamed(ada, tooled)
    assert deltas == [
        Delta("Hm.", "thinking"),
        Delta("Let me "),
        Delta("löok."),
        Delta("", "tool_call", 0, "t1", "weather"),
        Delta('{"city": ', "tool_call", 0, "t1", "weather"),
        Delta('"Rome"}', "tool_call", 0, "t1", "weather"),
    ]
    assert reply == Reply(
        "Let me löok.",
        COUNTED,
        "tool",
        (ToolCall("t1", "weather", '{"city": "Rome"}'),),
        (Thinking("Hm.", '{"signature": "c2ln"}', "some-model"),),
        "some-model",
    )
    assert vendor.received[0].path == "/model/some-model/converse-stream"
    check(vendor)


async def test_the_frames_of_these_tests_are_those_that_botocore_reads(vendor: Vendor) -> None:
    events = [("messageStart", {"role": "assistant"}), delta(0, text="Hi."), *stopped()]
    streams(vendor, *events)
    client = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="eu-central-1",
        endpoint_url=vendor.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    asked = [{"role": "user", "content": [{"text": "hello"}]}]

    def read() -> list[Any]:
        return list(client.converse_stream(modelId=MODEL, messages=asked)["stream"])

    assert await asyncio.to_thread(read) == [{kind: document} for kind, document in events]


async def test_a_stream_without_its_usage_has_an_unknown_one(
    vendor: Vendor, ada: BedrockWorker, streamed: Streamed
) -> None:
    streams(vendor, delta(0, text="ok"), stopped()[0])
    assert (await streamed(ada, ASKED))[1].usage == UNKNOWN_USAGE


async def test_a_stream_that_breaks_off_or_is_damaged_is_no_reply(
    vendor: Vendor, ada: BedrockWorker, streamed: Streamed
) -> None:
    whole = frame("messageStop", {"stopReason": "end_turn"})
    streams(vendor, delta(0, text="ok"), raw=whole[:-6])
    streams(vendor, delta(0, text="ok"), raw=whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(Unavailable, match="before its reply was complete|stopped streaming"):
        await streamed(ada, ASKED)
    with pytest.raises(BadReply, match="event stream"):
        await streamed(ada, ASKED)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttlingException", RateLimited),
        ("serviceUnavailableException", Unavailable),
        ("modelStreamErrorException", Unavailable),
        ("validationException", RequestRefused),
    ],
)
async def test_an_exception_in_a_stream_keeps_its_meaning(
    vendor: Vendor, ada: BedrockWorker, streamed: Streamed, kind: str, error: type[Exception]
) -> None:
    streams(vendor, delta(0, text="o"), raw=frame(kind, {"message": "too bad"}, "exception"))
    with pytest.raises(error, match="too bad"):
        await streamed(ada, ASKED)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "refused"),
        ("content_filtered", "refused"),
    ],
)
async def test_the_end_of_a_reply_has_its_reason(
    vendor: Vendor, ada: BedrockWorker, stop: str, finish: str
) -> None:
    vendor.says(answer({"text": "so"}, stop=stop))
    assert (await ada.reply(ASKED)).finish == finish


async def test_output_that_bedrock_cannot_read_is_no_reply(
    vendor: Vendor, ada: BedrockWorker
) -> None:
    vendor.says(answer({"text": "so"}, stop="malformed_tool_use"))
    with pytest.raises(BadReply, match="malformed_tool_use"):
        await ada.reply(ASKED)


async def test_an_image_goes_as_bytes_and_its_url_is_refused(
    vendor: Vendor, ada: BedrockWorker, pictured: Request
) -> None:
    vendor.says(answer({"text": "ok"}))
    with pytest.raises(RequestRefused, match="takes no image URLs; send the image itself"):
        await ada.reply(pictured)
    sent = Message("user", (Text("Cat?"), Image("image/png", "QUJD")))
    await ada.reply(Request((sent,)))
    image = {"image": {"format": "png", "source": {"bytes": "QUJD"}}}
    assert check(vendor)["messages"][0]["content"] == [{"text": "Cat?"}, image]


async def test_documents_go_as_text_or_bytes(vendor: Vendor, ada: BedrockWorker) -> None:
    vendor.says(answer({"text": "ok"}))
    titled = Text("[document: Cats]\nTom is a cat.\n\n", title="Cats")
    parts = (titled, Image("application/pdf", "QUJD"), Image("application/pdf", "REVG"))
    await ada.reply(Request((Message("user", parts),)))
    first, *pdfs = check(vendor)["messages"][0]["content"]
    assert first == {"text": "[document: Cats]\nTom is a cat."}
    assert [pdf["document"]["source"] for pdf in pdfs] == [{"bytes": "QUJD"}, {"bytes": "REVG"}]
    assert len({pdf["document"]["name"] for pdf in pdfs}) == 2


async def test_a_limit_of_the_worker_is_sent_and_none_is_made_up(
    vendor: Vendor, hire: Hire
) -> None:
    vendor.says(answer({"text": "ok"}))
    await hire("bedrock").reply(ASKED)
    assert check(vendor)["inferenceConfig"] == {}
    await hire("bedrock", limits=Limits(max_output_tokens=7)).reply(ASKED)
    assert check(vendor)["inferenceConfig"] == {"maxTokens": 7}


KEYS = Credentials("AKIDEXAMPLE", "a-secret-access-key", "a-session-token")


async def test_a_signature_is_the_one_that_botocore_makes(vendor: Vendor, http: Http) -> None:
    """The same question by botocore's own client: the same path, body and signed scope."""
    vendor.says(answer({"text": "ok"}))
    profile = WorkerProfile(
        name="ada", provider="bedrock", model=MODEL, capabilities=frozenset(CAPABILITIES)
    )
    endpoint = Endpoint(vendor.url, authorizer=AwsSignature("eu-central-1", KEYS))
    await connect(profile, endpoint, http).reply(replace(ASKED, max_tokens=9))
    session = botocore.session.Session()
    client = session.create_client(
        "bedrock-runtime",
        region_name="eu-central-1",
        endpoint_url=vendor.url,
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=KEYS.secret_key,
        aws_session_token=KEYS.token,
        config=Config(retries={"max_attempts": 0}),
    )
    await asyncio.to_thread(
        client.converse,
        modelId=MODEL,
        messages=[{"role": "user", "content": [{"text": "hello"}]}],
        inferenceConfig={"maxTokens": 9},
    )
    ours, theirs = vendor.received
    assert (ours.path, ours.body) == (theirs.path.replace("%3A", ":"), theirs.body)
    assert ours.headers["x-amz-security-token"] == "a-session-token"
    for received in (ours, theirs):
        scope, signed, signature = received.headers["authorization"].split(", ")
        assert scope.endswith("/eu-central-1/bedrock/aws4_request")
        assert signature == f"Signature={_signature(vendor.url, received, signed)}"


def _signature(url: str, received: Any, signed: str) -> str:
    """What the receiver computes from what has arrived."""
    names = signed.removeprefix("SignedHeaders=").split(";")
    data = json.dumps(received.body, separators=(",", ":")).encode()
    if "amz-sdk-request" in received.headers:  # botocore writes its JSON with spaces
        data = json.dumps(received.body).encode()
    headers = {name: received.headers[name] for name in names}
    request = AWSRequest("POST", url + received.path, headers, data)
    request.context["timestamp"] = received.headers["x-amz-date"]
    signer = SigV4Auth(KEYS, "bedrock", "eu-central-1")
    canonical = signer.canonical_request(request)
    return str(signer.signature(signer.string_to_sign(request, canonical), request))


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("https://bedrock-runtime.eu-central-1.amazonaws.com", "eu-central-1"),
        ("https://bedrock-runtime-fips.us-east-1.amazonaws.com", "us-east-1"),
        ("https://vpce-0a-b.bedrock-runtime.us-west-2.vpce.amazonaws.com", "us-west-2"),
    ],
)
def test_the_region_of_a_signature_is_in_the_address(address: str, region: str) -> None:
    assert aws_region(address) == region


def test_an_address_without_a_region_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not name its AWS region"):
        aws_region("https://example.amazonaws.com")


async def test_missing_keys_are_reported_as_missing(
    vendor: Vendor, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    endpoint = Endpoint(vendor.url, authorizer=AwsSignature("eu-central-1"))
    worker = connect(WorkerProfile(name="ada", provider="bedrock", model=MODEL), endpoint, http)
    with pytest.raises(AuthenticationFailed, match="set AWS_ACCESS_KEY_ID, AWS_PROFILE or"):
        await worker.reply(ASKED)
    assert vendor.received == []


def test_the_library_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.workers.credentials.find_spec", lambda name: None)
    endpoint = Endpoint("https://bedrock-runtime.eu-central-1.amazonaws.com", "key")
    profile = WorkerProfile(name="ada", provider="bedrock", model=MODEL)
    with pytest.raises(ConfigError, match=r"needs the extra bedrock; install it by: .*\[bedrock\]"):
        connect(profile, endpoint, Http())


async def test_a_prefill_is_the_beginning_of_the_reply(vendor: Vendor, ada: BedrockWorker) -> None:
    vendor.says(answer({"text": " is blue."}))
    reply = await ada.reply(
        replace(ASKED, prefill="The sky", messages=(user("a"), assistant("b"), user("c")))
    )
    assert reply.text == "The sky is blue."
    assert check(vendor)["messages"][-1] == {"role": "assistant", "content": [{"text": "The sky"}]}
