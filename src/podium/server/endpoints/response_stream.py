"""A response streamed to the client.

Nothing is sent before a worker accepts the request, there is content or two seconds have passed, so
that an early failure has its own HTTP status. Text
that was sent stands: if a worker fails midway and another call starts over, only the part beyond
what the client has is sent; if the texts differ, the stream ends with the dialect's error.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from podium.core.request import UNKNOWN_USAGE, Delta, Usage
from podium.engine.reply_stream import ResumableText
from podium.server.answers.conversation import parse_response_id
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.api_error import ApiError, to_api_error
from podium.server.dialects.fields import Json
from podium.server.dialects.request import (
    ApiRequest,
    ApiResponse,
    ChoicesWriter,
    Dialect,
    StreamWriter,
)
from podium.server.endpoints.http import HttpExchange

FIRST_KEEP_ALIVE_SECONDS: Final = 2.0
"""Clients and proxies give up on a server that sends no headers."""


class ResponseStream(StreamSink):
    """One streamed response: the `StreamSink` of a tier or the gateway."""

    def __init__(
        self,
        exchange: HttpExchange,
        dialect: Dialect,
        request: ApiRequest,
        keep_alive_seconds: float,
    ) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self._request = request
        self._keep_alive_seconds = keep_alive_seconds
        self._start: ApiResponse | None = None
        self._writer: StreamWriter | None = None
        self._has_begun = False
        self._sent: list[str] = []
        self._after_prefill = ResumableText(request.prefill) if request.prefill else None
        self._calls: list[list[str]] = []
        self._calls_seen = 0
        self._has_choices = False
        self._replayed: str | None = None
        self._matched = 0
        self._diverged = False
        self._chunks: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._work: asyncio.Task[ApiResult] | None = None
        self._is_complete = False
        self.first_chunk_at: float | None = None

    def open(self, response_id: str, *, stored: bool) -> None:
        """Take the response's id; `stored` if its run is stored."""
        if stored:
            self._exchange.response_headers["X-Podium-Run"] = parse_response_id(response_id)[0]
        self._start = ApiResponse(
            id=response_id,
            model=self._request.model,
            created=int(time.time()),
            usage=UNKNOWN_USAGE,
        )
        self._writer = self._dialect.stream_writer(self._request, self._start)

    def start(self, usage: Usage) -> None:
        if not self._has_begun and self._start is not None:
            start = replace(self._start, usage=usage)
            self._writer = self._dialect.stream_writer(self._request, start)
            self._begin()

    def progress(self, line: str) -> None:
        if self._shows_reasoning:
            self._put(self._begin().progress(line))

    def thinking(self, text: str) -> None:
        if self._shows_reasoning:
            self._put(self._begin().thinking(text))

    @property
    def _shows_reasoning(self) -> bool:
        return self._request.shows_reasoning and not self._sent and not self._calls

    def text(self, text: str) -> None:
        if self._diverged:
            return
        if self._after_prefill is not None:
            text = self._after_prefill.receive(text)
        if self._replayed is not None:
            text = self._skip_sent(text)
        if text:
            self._sent.append(text)
            self._put(self._begin().text(text))

    def tool_call(self, delta: Delta) -> None:
        """Send a piece of a tool call; what cannot be streamed is sent at the end.

        Calls follow one another: while one is incomplete, the next is held back.
        """
        calls, is_new = self._calls, delta.call >= self._calls_seen
        self._calls_seen = max(self._calls_seen, delta.call + 1)
        if self._diverged or self._writer is None or not self._writer.streams_call(delta.name):
            return
        if is_new and delta.call == len(calls) and (not calls or _is_complete(calls[-1])):
            calls.append([])
        elif is_new or delta.call != len(calls) - 1 or not delta.text:
            return
        calls[-1].append(delta.text)
        self._put(self._begin().tool_call(delta))

    def choices(self, choices: Sequence[Json]) -> None:
        writer = self._begin()
        assert isinstance(writer, ChoicesWriter), "a worker of the same format wrote them"
        self._has_choices = True
        self._put(writer.choices(choices))

    def restart(self) -> None:
        """Start the answer over; text that was sent is not sent again."""
        if self._after_prefill is not None:
            self._after_prefill = ResumableText(self._request.prefill)
        if self._calls:
            self._diverge()
        if self._sent:
            self._replayed = "".join(self._sent)
            self._matched = 0

    def _skip_sent(self, text: str) -> str:
        """Return the part that the client does not have; cancel the work if the texts differ."""
        assert self._replayed is not None, "only a restarted answer is compared"
        known = self._replayed[self._matched : self._matched + len(text)]
        if not text.startswith(known):
            self._diverge()
            return ""
        self._matched += len(known)
        if self._matched == len(self._replayed):
            self._replayed = None
        return text[len(known) :]

    def _diverge(self) -> None:
        self._diverged = True
        if self._work is not None:
            self._work.cancel()

    async def run(self, work: Coroutine[Any, Any, ApiResult]) -> ApiResult:
        """Send what the work streams, then its end.

        Raises `ApiError` if it fails; once the stream has begun, the error is sent in it as well.
        """
        self._work = task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._wake())
        try:
            await self._send_until_done(task)
            if self._diverged:
                raise ApiError(
                    "upstream",
                    "a worker failed after a part of its answer had been sent, and the retry does "
                    "not continue it; send the request again",
                )
            result = task.result()
            answer = result.response
            calls = self._sent_calls(answer)
            self._put(self._begin().end(answer, self._unsent(answer.text), calls))
            await self._finish()
        except Exception as error:  # noqa: BLE001 - converted, for its caller too
            converted = to_api_error(error)
            await self.fail(converted)
            raise converted from converted.__cause__
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return result

    async def fail(self, error: ApiError) -> None:
        error.request_id = self._exchange.request_id
        if self._exchange.started and not self._is_complete:
            self._put(self._begin().fail(error))
            await self._finish()

    async def _send_until_done(self, task: asyncio.Task[ApiResult]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._send()
            if task.done():
                return
            self._waiter = loop.create_future()
            seconds = self._keep_alive_seconds
            if not self._exchange.started:
                seconds = min(seconds, FIRST_KEEP_ALIVE_SECONDS)
            timer = loop.call_later(seconds, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            if not self._chunks and not task.done() and self._writer is not None:
                self._put(self._begin().keep_alive())

    def _unsent(self, text: str) -> str:
        if self._has_choices:
            return ""
        sent = "".join(self._sent)
        if not text.startswith(sent):
            raise _differs("text")
        return text[len(sent) :]

    def _sent_calls(self, answer: ApiResponse) -> list[str]:
        """Return the arguments sent so far of each tool call; only the last may have more."""
        sent = ["".join(pieces) for pieces in self._calls]
        whole = [call.arguments for call in answer.tool_calls]
        if sent:
            *before, last = sent
            if whole[: len(before)] != before or not whole[len(before) :]:
                raise _differs("tool call")
            if not whole[len(before)].startswith(last):
                raise _differs("tool call")
        return sent

    async def _finish(self) -> None:
        await self._send()
        self._is_complete = True
        await self._exchange.end_stream()

    async def _send(self) -> None:
        while self._chunks:
            chunks, self._chunks = self._chunks, []
            if not self._exchange.started:
                self.first_chunk_at = time.perf_counter()
                await self._exchange.begin_stream()
            await self._exchange.send_chunk(b"".join(chunks))

    def _begin(self) -> StreamWriter:
        assert self._writer is not None, "a stream is opened before it is written"
        if not self._has_begun:
            self._has_begun = True
            self._put(self._writer.begin())
        return self._writer

    def _put(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _is_complete(pieces: list[str]) -> bool:
    try:
        json.loads("".join(pieces) or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _differs(what: str) -> ApiError:
    return ApiError(
        "upstream",
        f"the answer differs from the {what} that was streamed; send the request again",
    )
