"""The border to the network, seen through a worker that speaks the plainest protocol."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from podium.core.errors import (
    AuthenticationFailed,
    BadReply,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    TimedOut,
    Unavailable,
    WorkerError,
)
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Price, Request, user
from podium.core.worker import Worker
from podium.workers import Endpoint, Http, connect, errors
from podium.workers import http as border
from podium.workers.http import HOP, HOP_HEADER, MAX_REPLY_BYTES, translate_errors

if TYPE_CHECKING:
    from workers.conftest import Hire, Vendor

ASKED = Request((user("hello"),))
ANSWER = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
CHUNK = {"choices": [{"delta": {"content": "hi"}}]}
LAST = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.fixture
def ada(hire: Hire) -> Worker:
    return hire("openai-compatible")


async def drained(worker: Worker) -> list[Any]:
    return [piece async for piece in worker.stream(ASKED)]


async def failure(worker: Worker, *, stream: bool) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await (drained(worker) if stream else worker.reply(ASKED))
    return caught.value


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def test_a_forwarded_call_has_the_hop_count(vendor: Vendor, ada: Worker) -> None:
    vendor.says(ANSWER)

    hop = HOP.set({HOP_HEADER: "2"})
    await ada.reply(ASKED)
    HOP.reset(hop)
    await ada.reply(ASKED)
    first, second = vendor.received
    assert first.headers["x-podium-hop"] == "2"
    assert "x-podium-hop" not in second.headers


@both_ways
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, RequestRefused, False),
        (401, AuthenticationFailed, False),
        (402, AuthenticationFailed, False),
        (403, AuthenticationFailed, False),
        (404, RequestRefused, False),
        (408, Unavailable, True),
        (409, Unavailable, True),
        (413, RequestRefused, False),
        (422, RequestRefused, False),
        (425, Unavailable, True),
        (429, RateLimited, True),
        (500, Unavailable, True),
        (502, Unavailable, True),
        (503, Unavailable, True),
        (529, Unavailable, True),
    ],
)
async def test_each_status_maps_to_the_error_of_its_responsible_party(
    vendor: Vendor,
    ada: Worker,
    status: int,
    kind: type[WorkerError],
    retryable: bool,
    stream: bool,
) -> None:
    vendor.says({"error": {"message": "because", "type": "some_error"}}, status=status)
    error = await failure(ada, stream=stream)
    assert type(error) is kind
    assert error.retryable is retryable
    assert str(error).startswith(f"worker 'ada' (openai-compatible) answered HTTP {status}")
    assert str(error).endswith(": because")


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "Shorten it."},
        {"message": "This model's maximum context length is 8192 tokens, and you sent 9000"},
        {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"},
        {"message": "input length and `max_tokens` exceed context limit: 199000 + 9000 > 200000"},
        {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)"},
        {"type": "exceed_context_size_error", "message": "the request exceeds the available room"},
        {"message": "the request exceeds the available context size, try increasing it"},
    ],
)
async def test_a_prompt_that_is_too_long_is_known_whichever_way_a_vendor_says_so(
    vendor: Vendor, ada: Worker, error: dict[str, str]
) -> None:
    vendor.says({"error": error}, status=400)
    fault = await failure(ada, stream=False)
    assert type(fault) is PromptTooLong
    assert not fault.retryable
    assert str(fault).endswith(f"HTTP 400, the prompt is too long: {error['message']}")


@pytest.mark.parametrize(("status", "billed"), [(500, False), (408, True), (504, True)])
async def test_a_gateway_error_may_be_billed(
    vendor: Vendor, ada: Worker, status: int, billed: bool
) -> None:
    vendor.says({}, status=status)
    assert (await failure(ada, stream=False)).billed is billed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "no such model", "code": null}}', "no such model"),
        (b'{"type": "error", "error": {"type": "x", "message": "bad key"}}', "bad key"),
        (b'[{"error": {"code": 400, "message": "bad\\nfield"}}]', "bad field"),
        (b'{"error": "model not found"}', "model not found"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"detail": [{"msg": "extra"}]}', '[{"msg": "extra"}]'),
        (b"<html>Bad  Request</html>", "<html>Bad Request</html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
async def test_a_message_quotes_the_vendor_whatever_shape_its_error_has(
    vendor: Vendor, ada: Worker, body: bytes, said: str
) -> None:
    vendor.says_bytes(body, status=400)
    error = await failure(ada, stream=False)
    assert str(error) == f"worker 'ada' (openai-compatible) answered HTTP 400: {said}"


async def test_a_message_is_one_line_of_bounded_length(vendor: Vendor, ada: Worker) -> None:
    vendor.says_bytes(b"line\n" * 1_000_000, status=500)
    message = str(await failure(ada, stream=False))
    assert "\n" not in message
    assert len(message) == 400


async def test_credit_that_is_used_up_is_not_worth_a_retry(vendor: Vendor, ada: Worker) -> None:
    vendor.says({"error": {"message": "quota", "code": "insufficient_quota"}}, status=429)
    assert type(await failure(ada, stream=False)) is AuthenticationFailed


async def test_a_message_never_holds_the_key_in_mid_stream_either(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.streams(CHUNK, {"error": {"message": "x" * 390 + "sk-a-secret-key"}})
    assert "sk-" not in str(await failure(ada, stream=True))


async def test_a_message_never_holds_the_key(vendor: Vendor, ada: Worker) -> None:
    vendor.says({"error": {"message": "bad key sk-a-secret-key given"}}, status=401)
    error = await failure(ada, stream=False)
    assert "sk-a-secret-key" not in f"{error} {error!r}"
    assert "bad key <key> given" in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_that_the_vendor_asks_for_is_passed_on(
    vendor: Vendor, ada: Worker, status: int, headers: Mapping[str, str], seconds: float | None
) -> None:
    vendor.says({}, status=status, headers=headers)
    assert (await failure(ada, stream=False)).retry_after == seconds


async def test_a_wait_may_be_given_as_a_date(vendor: Vendor, ada: Worker) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    vendor.says({}, status=429, headers={"Retry-After": soon})
    wait = (await failure(ada, stream=False)).retry_after
    assert wait is not None
    assert 50 < wait <= 60


async def test_a_date_in_the_past_asks_for_no_wait(vendor: Vendor, ada: Worker) -> None:
    vendor.says({}, status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert (await failure(ada, stream=False)).retry_after == 0.0


async def test_a_redirect_is_not_followed_with_the_key(vendor: Vendor, ada: Worker) -> None:
    vendor.says({}, status=307, headers={"Location": "http://elsewhere.example/v1"})
    error = await failure(ada, stream=False)
    assert type(error) is RequestRefused
    assert "redirected to http://elsewhere.example/v1; set base_url" in str(error)
    assert len(vendor.received) == 1


@both_ways
async def test_a_refused_connection_is_unavailable_and_free(
    http: Http, stream: bool, vendor: Vendor
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        error = await failure(connect(profile, Endpoint(url), http), stream=stream)
    assert type(error) is Unavailable
    assert not error.billed
    assert "worker 'ada' (openai-compatible) cannot be reached" in str(error)


@pytest.mark.parametrize(
    ("raised", "kind", "billed"),
    [
        ("ConnectionTimeoutError", Unavailable, False),
        ("ServerTimeoutError", TimedOut, True),
        ("ServerDisconnectedError", Unavailable, True),
        ("ClientPayloadError", Unavailable, True),
        ("ClientError", BadReply, True),
    ],
)
def test_http_exceptions_become_worker_errors(
    raised: str, kind: type[WorkerError], billed: bool
) -> None:
    import aiohttp

    with pytest.raises(WorkerError) as caught, translate_errors("worker 'ada'"):
        raise getattr(aiohttp, raised)()
    assert type(caught.value) is kind
    assert caught.value.billed is billed
    assert str(caught.value).startswith("worker 'ada' ")


def test_cancellation_and_worker_errors_pass_the_border_untouched() -> None:
    for error in (asyncio.CancelledError(), RequestRefused("no")):
        with pytest.raises(type(error)) as caught, translate_errors("worker 'ada'"):
            raise error
        assert caught.value is error


async def test_a_connection_that_breaks_before_the_reply_may_have_cost_money(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.says_bytes(b"", length=5)
    error = await failure(ada, stream=False)
    assert type(error) is Unavailable
    assert error.billed


async def test_a_reply_shorter_than_announced_was_broken_off(vendor: Vendor, ada: Worker) -> None:
    vendor.says_bytes(b'{"choices": [', length=1000)
    error = await failure(ada, stream=False)
    assert type(error) is Unavailable
    assert error.billed
    assert "lost the connection" in str(error)


async def test_a_stream_cut_in_mid_reply_was_broken_off(vendor: Vendor, ada: Worker) -> None:
    vendor.streams(CHUNK, done=False, whole=False)
    error = await failure(ada, stream=True)
    assert type(error) is Unavailable
    assert error.billed


async def test_a_stream_that_ends_before_its_reply_was_broken_off(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.streams(CHUNK, b'data: {"choices": [{"del', done=False)
    error = await failure(ada, stream=True)
    assert type(error) is Unavailable
    assert error.billed
    assert "stopped streaming before its reply was complete" in str(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>hello</html>", "expected JSON, got"),
        (b'{"choices": [', "expected JSON, got"),
        (b"[]", "expected an object as the reply, got list"),
        (b"\xff\xfe{}", "not UTF-8"),
        ('{"choices": []}'.encode("utf-16"), "not UTF-8"),
        (b'{"usage": ' + b"9" * 5000 + b"}", "expected JSON, got"),
        (b"[" * 100_000, "expected JSON, got"),
        (b'{"choices": {}}', "expected a list as choices, got dict"),
        (b'{"choices": [3]}', "expected an object as choices, got int"),
        (b'{"choices": [{"message": {"content": 3}}]}', "expected text as content, got int"),
        (b'{"choices": []}', "expected choices with a message, got none"),
    ],
)
async def test_a_reply_that_is_not_one_is_named_as_bad(
    vendor: Vendor, ada: Worker, body: bytes, said: str
) -> None:
    vendor.says_bytes(body)
    error = await failure(ada, stream=False)
    assert type(error) is BadReply
    assert error.billed
    assert said in str(error)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"data: {oops}\n\n", "expected JSON, got"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
        (b"data: [1]\n\n", "expected an object as the reply"),
    ],
)
async def test_an_event_that_is_not_one_is_named_as_bad(
    vendor: Vendor, ada: Worker, event: bytes, said: str
) -> None:
    vendor.streams(CHUNK, event)
    error = await failure(ada, stream=True)
    assert type(error) is BadReply
    assert said in str(error)


MESSAGE = {
    "type": "message",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
}
RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
}
CONTENT = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}

every_protocol = pytest.mark.parametrize(
    ("provider", "options", "whole"),
    [
        ("openai-compatible", {}, ANSWER),
        ("openai", {"api": "responses"}, RESPONSE),
        ("anthropic", {}, MESSAGE),
        ("google", {}, CONTENT),
    ],
)


@every_protocol
async def test_a_server_that_does_not_stream_is_understood(
    vendor: Vendor, hire: Hire, provider: str, options: dict[str, Any], whole: dict[str, Any]
) -> None:
    vendor.says(whole)
    *deltas, reply = await drained(hire(provider, **options))
    assert deltas == [Delta("hi")]
    assert reply.text == "hi"


@both_ways
@every_protocol
async def test_an_error_under_a_good_status_is_sorted_by_its_name(
    vendor: Vendor,
    hire: Hire,
    provider: str,
    options: dict[str, Any],
    whole: dict[str, Any],
    stream: bool,
) -> None:
    vendor.says({"error": {"message": "slow down", "type": "rate_limit_error"}})
    error = await failure(hire(provider, **options), stream=stream)
    assert type(error) is RateLimited
    assert "slow down" in str(error)


@pytest.mark.parametrize(
    ("provider", "options", "events"),
    [
        (
            "openai",
            {"api": "responses"},
            [{"type": "response.completed", "response": RESPONSE}],
        ),
        (
            "anthropic",
            {},
            [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
                {"type": "content_block_delta", "index": 0, "delta": {"text": "hi"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
                {"type": "message_stop"},
            ],
        ),
        ("google", {}, [CONTENT]),
    ],
)
async def test_no_protocol_waits_for_the_connections_end_after_the_last_event(
    vendor: Vendor,
    hire: Hire,
    provider: str,
    options: dict[str, Any],
    events: list[dict[str, Any]],
) -> None:
    vendor.streams(*events, done=False, then_hang=True)
    async with asyncio.timeout(5):
        *_, reply = await drained(hire(provider, **options))
        assert reply.text == "hi"
        await vendor.hung_up.wait()


async def test_a_gigantic_reply_is_not_read_on(
    vendor: Vendor, ada: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(border, "MAX_REPLY_BYTES", 1024 * 1024)
    vendor.says_bytes(b" " * 1024 * 1025, length=10**12)
    error = await failure(ada, stream=False)
    assert type(error) is BadReply
    assert "sent more than 1 MiB" in str(error)


async def test_a_gigantic_stream_is_not_read_on(
    vendor: Vendor, ada: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(border, "MAX_REPLY_BYTES", 1000)
    vendor.streams(*[CHUNK] * 100, then_hang=True)
    error = await failure(ada, stream=True)
    assert type(error) is BadReply
    async with asyncio.timeout(5):
        await vendor.hung_up.wait()


async def test_a_reply_just_within_the_bound_is_read(vendor: Vendor, ada: Worker) -> None:
    whole = json.dumps(ANSWER).encode()
    vendor.says_bytes(whole + b" " * (MAX_REPLY_BYTES - len(whole)))
    assert (await ada.reply(ASKED)).text == "hi"


async def test_an_error_that_stalls_is_not_waited_for(
    http: Http, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(border, "ERROR_SECONDS", 0.05)
    vendor.stalls(status=503)
    async with asyncio.timeout(5):
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        error = await failure(connect(profile, Endpoint(vendor.url), http), stream=False)
    assert type(error) is Unavailable


@both_ways
async def test_a_cancelled_call_closes_its_connection(
    vendor: Vendor, ada: Worker, stream: bool
) -> None:
    vendor.hangs()
    call = asyncio.create_task(drained(ada) if stream else _reply(ada))
    async with asyncio.timeout(5):
        while not vendor.received:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await vendor.hung_up.wait()


async def _reply(worker: Worker) -> Any:
    return await worker.reply(ASKED)


async def test_a_stream_cancelled_in_its_middle_closes_its_connection(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.streams(CHUNK, then_hang=True)
    arrived = asyncio.Event()

    async def watch() -> None:
        async for _ in ada.stream(ASKED):
            arrived.set()

    call = asyncio.create_task(watch())
    async with asyncio.timeout(5):
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await vendor.hung_up.wait()


async def test_a_stream_left_early_closes_its_connection_and_leaves_no_task(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.streams(CHUNK, then_hang=True)
    async with asyncio.timeout(5):
        async with aclosing(ada.stream(ASKED)) as pieces:
            assert await anext(pieces) == Delta("hi")
            tasks = asyncio.all_tasks()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= tasks
        await vendor.hung_up.wait()


async def test_pieces_arrive_as_they_are_sent(vendor: Vendor, ada: Worker) -> None:
    vendor.streams(CHUNK, then_hang=True)  # the stream never ends, and the piece is here
    async with asyncio.timeout(5), aclosing(ada.stream(ASKED)) as pieces:
        assert await anext(pieces) == Delta("hi")


async def test_an_error_that_arrives_in_pieces_is_read_whole(http: Http, vendor: Vendor) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        for piece in (b"HTTP/1.1 400 Bad\r\n\r\n", b'{"error": {"mess', b'age": "because"}}'):
            writer.write(piece)
            await asyncio.sleep(0.01)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        error = await failure(connect(profile, Endpoint(url), http), stream=False)
    assert str(error).endswith("HTTP 400: because")


async def test_a_stream_that_stays_open_after_its_end_is_not_waited_for(
    vendor: Vendor, ada: Worker
) -> None:
    vendor.streams(CHUNK, LAST, then_hang=True)
    async with asyncio.timeout(5):
        *_, reply = await drained(ada)
        assert reply.text == "hi"
        await vendor.hung_up.wait()


async def test_a_stream_that_breaks_after_its_end_is_complete(http: Http) -> None:
    values = (json.dumps(CHUNK), json.dumps(LAST), "[DONE]")
    events = "".join(f"data: {one}\n\n" for one in values).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"true}}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(events), events))
        await writer.drain()
        writer.close()  # without the chunk that ends the body

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        *_, reply = await drained(connect(profile, Endpoint(url), http))
    assert reply.text == "hi"


@both_ways
async def test_connections_are_used_again(http: Http, vendor: Vendor, stream: bool) -> None:
    connections = 0
    whole = json.dumps(ANSWER).encode()
    events = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(CHUNK | LAST).encode()
    body, kind = (events, b"text/event-stream") if stream else (whole, b"application/json")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"]}" if not stream else b"true}}")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n" % kind)
                writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
                writer.write(b"%x\r\n%s\r\n" % (len(body), body))
                await asyncio.sleep(0.01)  # the end comes in a packet of its own
                writer.write(b"0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        worker = connect(profile, Endpoint(url), http)
        for _ in range(3):
            await (drained(worker) if stream else worker.reply(ASKED))
        await http.close()
    assert connections == 1


async def test_a_closed_client_can_be_used_again(vendor: Vendor, http: Http, ada: Worker) -> None:
    vendor.says(ANSWER)
    assert (await ada.reply(ASKED)).text == "hi"
    await http.close()
    assert (await ada.reply(ASKED)).text == "hi"


@pytest.mark.parametrize("closes", [True, False])
def test_one_client_serves_one_event_loop_after_another(closes: bool) -> None:
    http = Http()
    profile = WorkerProfile(name="ada", provider="openai-compatible")
    body = json.dumps(ANSWER).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def ask() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            reply = await connect(profile, Endpoint(url), http).reply(ASKED)
            if closes:
                await http.close()
            return reply.text

    assert [asyncio.run(ask()) for _ in range(2)] == ["hi", "hi"]
    asyncio.run(http.close())


async def test_no_proxy_comes_between_podium_and_its_own_machine(
    monkeypatch: pytest.MonkeyPatch, vendor: Vendor, ada: Worker
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    vendor.says(ANSWER)
    assert (await ada.reply(ASKED)).text == "hi"


async def test_a_proxy_of_the_environment_is_used(
    vendor: Vendor, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", vendor.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    vendor.says(ANSWER)
    profile = WorkerProfile(name="ada", provider="openai-compatible")
    worker = connect(profile, Endpoint("http://models.example/v1"), http)
    assert (await worker.reply(ASKED)).text == "hi"
    assert vendor.received[0].path == "http://models.example/v1/chat/completions"


SECRET = "secretpw"


@pytest.mark.parametrize(
    "proxy",
    [f"u:{SECRET}@127.0.0.1:9", f"http://u:{SECRET}@127.0.0.1:9", f"http://u:{SECRET}@h:999999"],
)
async def test_a_proxys_password_is_in_no_message(
    vendor: Vendor, http: Http, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    profile = WorkerProfile(name="ada", provider="openai-compatible")
    error = await failure(connect(profile, Endpoint("http://models.example"), http), stream=False)
    assert SECRET not in "".join(traceback.format_exception(error))


async def test_a_proxy_that_refuses_is_named_without_its_password(
    vendor: Vendor, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://u:{SECRET}@127.0.0.1:{port}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        profile = WorkerProfile(name="ada", provider="openai-compatible")
        worker = connect(profile, Endpoint("https://models.example"), http)
        error = await failure(worker, stream=False)
    assert type(error) is Unavailable
    assert f"127.0.0.1:{port}" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("address", ["http://host:999999", "http://[::1", "http://host:port"])
@both_ways
async def test_an_address_that_is_none_is_refused(http: Http, address: str, stream: bool) -> None:
    profile = WorkerProfile(name="ada", provider="openai-compatible")
    error = await failure(connect(profile, Endpoint(address), http), stream=stream)
    assert type(error) is RequestRefused
    assert not error.billed
    assert "check" in str(error) or "is not valid" in str(error)


async def test_a_redirects_signature_is_not_shown(vendor: Vendor, ada: Worker) -> None:
    location = {"Location": f"https://u:{SECRET}@elsewhere.example/v1?signature={SECRET}"}
    vendor.says({}, status=307, headers=location)
    error = await failure(ada, stream=False)
    assert "redirected to https://elsewhere.example/v1; set base_url" in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize("name", [["a"], {"a": 1}, 3.5, True])
@both_ways
async def test_an_error_with_an_odd_name_is_still_that_error(
    vendor: Vendor, ada: Worker, name: Any, stream: bool
) -> None:
    vendor.says({"error": {"message": "because", "code": name, "type": name}}, status=429)
    assert type(await failure(ada, stream=stream)) is RateLimited


def test_short_strings_are_not_redacted_as_keys() -> None:
    assert errors.clean_message("x marks the box", "x") == "x marks the box"


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
async def test_a_request_that_is_not_json_is_refused(ada: Worker, value: Any) -> None:
    with pytest.raises(RequestRefused, match="not JSON"):
        await ada.reply(Request(ASKED.messages, schema={"default": value}))


def test_the_http_library_is_not_imported_before_the_first_call() -> None:
    code = "import sys, podium.workers; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("provider", "options", "reply"),
    [
        (
            "openai",
            {},
            ANSWER
            | {
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 1,
                    "prompt_tokens_details": {"cached_tokens": 1000},
                }
            },
        ),
        (
            "openai",
            {"api": "responses"},
            RESPONSE
            | {
                "usage": {
                    "input_tokens": 10,
                    "output_tokens": 1,
                    "input_tokens_details": {"cached_tokens": 1000},
                }
            },
        ),
        (
            "google",
            {},
            CONTENT
            | {
                "usageMetadata": {
                    "promptTokenCount": 10,
                    "candidatesTokenCount": 1,
                    "cachedContentTokenCount": 1000,
                }
            },
        ),
    ],
)
async def test_a_vendor_that_read_more_from_its_cache_than_at_all_costs_an_unknown_sum(
    vendor: Vendor, hire: Hire, provider: str, options: dict[str, Any], reply: dict[str, Any]
) -> None:
    vendor.says(reply)
    usage = (await hire(provider, **options).reply(ASKED)).usage
    assert (usage.input_tokens, usage.cached_input_tokens) == (10, None)
    assert Price(input=1, output=1, cached=0.1).cost(usage) is None
