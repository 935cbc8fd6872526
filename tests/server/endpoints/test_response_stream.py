from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from podium.core.request import Delta, ToolCall, Usage, user
from podium.server.answers.result import ApiResult
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.endpoints import response_stream
from podium.server.endpoints.http import HttpExchange
from podium.server.endpoints.response_stream import FIRST_KEEP_ALIVE_SECONDS, ResponseStream
from support.plain_dialect import PlainDialect, lines

RUN = "run_0123456789abcdef"


class Client:
    """A client that reads a stream."""

    def __init__(self, *, keep_alive_seconds: float = 60, **asked: Any) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._body = b""
        exchange = HttpExchange({"headers": []}, asyncio.Event().wait, self._take)  # type: ignore[arg-type]
        wanted = ApiRequest(model="podium", messages=(user("Why?"),), stream=True, **asked)
        self.stream = ResponseStream(exchange, PlainDialect(), wanted, keep_alive_seconds)

    async def _take(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self._body += message.get("body", b"")

    @property
    def got(self) -> list[list[Any]]:
        return lines(self._body)

    @property
    def text(self) -> str:
        return "".join(item[1] for item in self.got if item[0] == "text")

    async def reads(
        self, tell: Callable[[ResponseStream], str | ApiError], *calls: ToolCall
    ) -> None:
        """Carry what `tell` tells; what it returns is the whole answer in the end, with `calls`."""

        async def work() -> ApiResult:
            self.stream.open(RUN, stored=True)
            outcome = tell(self.stream)
            if isinstance(outcome, ApiError):
                raise outcome
            await asyncio.sleep(0)
            answer = ApiResponse(id=RUN, model="podium", created=0, text=outcome, tool_calls=calls)
            return ApiResult(response=answer)

        await self.stream.run(work())


async def test_deltas_are_sent_and_the_rest_at_the_end() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.text("forty")
        return "forty two"

    client = Client()
    await client.reads(tell)
    assert client.got == [
        ["begin", RUN],
        ["text", "forty"],
        ["text", " two"],
        ["end", "stop", 0],
    ]
    assert client.headers[b"x-podium-run"] == RUN.encode()


async def test_a_failure_before_the_first_piece_leaves_the_response_unsent() -> None:
    client = Client()
    with pytest.raises(ApiError):
        await client.reads(lambda stream: ApiError("upstream", "no"))
    assert client.status == 0


async def test_a_failure_after_it_is_reported_in_the_stream() -> None:
    def tell(stream: ResponseStream) -> ApiError:
        stream.text("forty")
        return ApiError("upstream", "no")

    client = Client()
    # The piece and the failure come in the same moment: the piece is sent first all the same.
    with pytest.raises(ApiError):
        await client.reads(tell)
    assert client.status == 200
    assert client.got[1:] == [["text", "forty"], ["fail", "upstream"]]


async def test_a_fault_of_our_own_after_it_is_reported_in_the_stream_as_well() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.text("forty")
        raise ZeroDivisionError("nothing for the client's eyes")

    client = Client()
    with pytest.raises(ApiError, match="internal server error: ZeroDivisionError") as caught:
        await client.reads(tell)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert client.got[1:] == [["text", "forty"], ["fail", "failed"]]


async def test_an_answer_that_begins_again_continues_where_the_client_is() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.text("for")
        stream.text("ty")
        stream.restart()
        stream.text("f")
        stream.text("orty tw")
        stream.text("o")
        return "forty two"

    client = Client()
    await client.reads(tell)
    assert client.text == "forty two"
    assert client.got[-1][0] == "end"


async def test_an_answer_that_begins_again_with_other_words_is_an_error() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.text("forty")
        stream.restart()
        stream.text("four")
        stream.text("teen")
        return "fourteen"

    client = Client()
    with pytest.raises(ApiError, match="does not continue it"):
        await client.reads(tell)
    assert client.text == "forty"
    assert client.got[-1] == ["fail", "upstream"]


async def test_an_answer_that_differs_from_its_stream_is_an_error() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.text("forty")
        return "fifty"

    client = Client()
    with pytest.raises(ApiError):
        await client.reads(tell)
    assert client.got[-1] == ["fail", "upstream"]


async def test_progress_and_thinking_come_before_the_answer_and_only_where_they_are_shown() -> None:
    def tell(stream: ResponseStream) -> str:
        stream.progress("planning")
        stream.thinking("hmm")
        stream.text("yes")
        stream.progress("too late")
        return "yes"

    shown, silent = Client(shows_reasoning=True), Client()
    await shown.reads(tell)
    await silent.reads(tell)
    assert shown.got[1:3] == [["progress", "planning"], ["thinking", "hmm"]]
    assert [item[0] for item in silent.got] == ["begin", "text", "end"]
    assert "too late" not in str(shown.got)


async def test_a_silent_stream_shows_that_it_lives() -> None:
    client = Client(keep_alive_seconds=0.001)

    async def work() -> ApiResult:
        client.stream.open(RUN, stored=False)
        async with asyncio.timeout(5):
            while len(client.got) < 3:
                await asyncio.sleep(0.001)
        return ApiResult(response=ApiResponse(id=RUN, model="podium", created=0, text="yes"))

    await client.stream.run(work())
    assert client.got[:3] == [["begin", RUN], ["alive"], ["alive"]]
    assert client.got[-2:] == [["text", "yes"], ["end", "stop", 0]]
    assert b"x-podium-run" not in client.headers


async def test_a_client_that_disconnects_cancels_the_work() -> None:
    client = Client()
    stopped = asyncio.Event()

    async def work() -> ApiResult:
        client.stream.open(RUN, stored=False)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError("nobody waits")

    carrying = asyncio.create_task(client.stream.run(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert stopped.is_set()


def calls(*pieces: tuple[int, str], name: str = "add") -> Callable[[ResponseStream], str]:
    def tell(stream: ResponseStream) -> str:
        for number, text in pieces:
            stream.tool_call(Delta(text, "tool_call", number, f"c{number}", name))
        return ""

    return tell


ADD = (ToolCall("c0", "add", '{"x": 1}'), ToolCall("c1", "add", '{"x": 2}'))


async def test_calls_are_sent_in_pieces_and_their_rest_at_the_end() -> None:
    client = Client(shows_reasoning=True)

    def tell(stream: ResponseStream) -> str:
        result = calls((0, '{"x'), (0, '": 1}'), (1, '{"x": '))(stream)
        stream.progress("too late")
        return result

    await client.reads(tell, *ADD)
    assert [tuple(item) for item in client.got if item[0] in ("call", "progress")] == [
        ("call", 0, "c0", "add", '{"x'),
        ("call", 0, "c0", "add", '": 1}'),
        ("call", 1, "c1", "add", '{"x": '),
        ("call", 1, "c1", "add", "2}"),
    ]


async def test_a_call_that_begins_before_the_last_is_complete_is_sent_whole() -> None:
    client = Client()
    await client.reads(calls((0, '{"x'), (1, '{"x'), (0, '": 1}'), (1, '": 2}')), *ADD)
    assert [item[4] for item in client.got if item[0] == "call"] == ['{"x', '": 1}', '{"x": 2}']


async def test_a_call_that_the_dialect_rewrites_is_sent_whole() -> None:
    client = Client()
    whole = ToolCall("c0", "whole", "{}")
    await client.reads(calls((0, "{"), (0, "}"), name="whole"), whole)
    assert [item[4] for item in client.got if item[0] == "call"] == ["{}"]


@pytest.mark.parametrize("ending", [(), (ToolCall("c0", "add", "[]"),)])
async def test_a_call_that_ends_otherwise_than_it_was_sent_is_an_error(
    ending: tuple[ToolCall, ...],
) -> None:
    client = Client()
    with pytest.raises(ApiError, match="differs from the tool call"):
        await client.reads(calls((0, "{")), *ending)
    assert client.got[-1] == ["fail", "upstream"]


async def test_an_answer_that_begins_again_after_a_call_is_an_error() -> None:
    def tell(stream: ResponseStream) -> str:
        calls((0, "{"))(stream)
        stream.restart()
        return ""

    client = Client()
    with pytest.raises(ApiError, match="does not continue it"):
        await client.reads(tell, ADD[0])


async def test_headers_go_out_when_a_worker_accepts_or_after_two_seconds() -> None:
    client = Client()
    sent = asyncio.Event()

    async def work() -> ApiResult:
        client.stream.open(RUN, stored=False)
        client.stream.start(Usage(7, 0))
        async with asyncio.timeout(5):
            while not client.status:
                await asyncio.sleep(0)
        sent.set()
        return ApiResult(response=ApiResponse(id=RUN, model="podium", created=0, text="yes"))

    await client.stream.run(work())
    assert sent.is_set()
    assert client.got[0] == ["begin", RUN]
    assert FIRST_KEEP_ALIVE_SECONDS == 2.0


async def test_the_first_keep_alive_does_not_wait_for_the_usual_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_stream, "FIRST_KEEP_ALIVE_SECONDS", 0.001)
    client = Client(keep_alive_seconds=60)

    async def work() -> ApiResult:
        client.stream.open(RUN, stored=False)
        async with asyncio.timeout(5):
            while not client.status:
                await asyncio.sleep(0.001)
        return ApiResult(response=ApiResponse(id=RUN, model="podium", created=0, text="yes"))

    await client.stream.run(work())
    assert client.got[:2] == [["begin", RUN], ["alive"]]
