"""The border to the network, seen through a worker that speaks the plainest protocol."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from podium.errors import (
    AuthenticationFailed,
    BadReply,
    RateLimited,
    RequestRefused,
    TimedOut,
    Unavailable,
    WorkerError,
)
from podium.pool import WorkerProfile
from podium.providers import Endpoint, Http, connect
from podium.providers import http as border
from podium.providers.http import MAX_REPLY_BYTES, boundary
from podium.request import Delta, Request, user
from podium.worker import Worker

if TYPE_CHECKING:
    from providers.conftest import Hire, Vendor

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


@both_ways
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, RequestRefused, False),
        (401, AuthenticationFailed, False),
        (402, RequestRefused, False),
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
async def test_a_status_is_the_error_of_whoever_must_act(
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


@pytest.mark.parametrize(("status", "billed"), [(500, False), (408, True), (504, True)])
async def test_a_gateway_that_gave_up_may_have_cost_money(
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
async def test_nobody_listening_is_unavailable_and_cost_nothing(
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
def test_what_the_http_library_raises_becomes_a_worker_error(
    raised: str, kind: type[WorkerError], billed: bool
) -> None:
    import aiohttp

    with pytest.raises(WorkerError) as caught, boundary("worker 'ada'"):
        raise getattr(aiohttp, raised)()
    assert type(caught.value) is kind
    assert caught.value.billed is billed
    assert str(caught.value).startswith("worker 'ada' ")


def test_cancellation_and_worker_errors_pass_the_border_untouched() -> None:
    for error in (asyncio.CancelledError(), RequestRefused("no")):
        with pytest.raises(type(error)) as caught, boundary("worker 'ada'"):
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
    assert "broke the connection off" in str(error)


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
        (b'{"usage": {"prompt_tokens": ' + b"9" * 400 + b"}}", "expected a count"),
        (b"[" * 100_000, "expected JSON, got"),
        (b'{"choices": {}}', "expected a list as choices, got dict"),
        (b'{"choices": [3]}', "expected an object as choices, got int"),
        (b'{"choices": [{"message": {"content": 3}}]}', "expected text as content, got int"),
        (b'{"choices": []}', "expected choices with a message, got none"),
        (b'{"usage": {"prompt_tokens": -1}}', "expected a count as prompt_tokens, got int '-1'"),
        (b'{"usage": {"prompt_tokens": true}}', "expected a count as prompt_tokens"),
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


async def test_a_stream_answered_with_one_object_is_bad(vendor: Vendor, ada: Worker) -> None:
    vendor.says(ANSWER)
    error = await failure(ada, stream=True)
    assert type(error) is BadReply
    assert "was asked to stream and sent one object" in str(error)


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


def test_the_bound_on_replies_is_generous() -> None:
    assert MAX_REPLY_BYTES == 16 * 1024 * 1024


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


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
async def test_a_request_that_is_not_json_is_refused(ada: Worker, value: Any) -> None:
    with pytest.raises(RequestRefused, match="not JSON"):
        await ada.reply(Request(ASKED.messages, schema={"default": value}))


def test_the_http_library_is_not_imported_before_the_first_call() -> None:
    code = "import sys, podium.providers; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
