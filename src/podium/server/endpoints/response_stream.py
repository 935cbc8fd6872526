"""An answer on its way to the client, piece by piece.

Nothing is sent before there is something to send, so that what fails early fails with a status
of its own. What was sent stands: where a worker failed in the middle and another call began
anew, its words are sent only from where they go beyond what the client has; where they say
something else, the stream ends with the dialect's error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from podium.server.access.concurrency import RETRY_AFTER_SECONDS
from podium.server.answers.result import ApiResult
from podium.server.api_error import ApiError, to_api_error
from podium.server.dialects.request import ApiRequest, ApiResponse, Dialect, StreamWriter
from podium.server.endpoints.auth import error_headers
from podium.server.endpoints.http import HttpExchange


def server_stopped_error(run: str | None = None) -> ApiError:
    """What a client is told whose answer was cut off; `run` is on record with what was done."""
    record = f"; what was done is kept as {run}" if run else ""
    return ApiError(
        "overloaded",
        f"the server stopped before the answer was complete{record}; ask again",
        retry_after=RETRY_AFTER_SECONDS,
    )


class ResponseTracker:
    """Sends a response, and knows how much of it is out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._is_over = False

    async def send(self, message: Message) -> None:
        """Send the next part."""
        if message["type"] == "http.response.start":
            self._started = True
        elif message["type"] == "http.response.body":
            self._is_over = not message.get("more_body", False)
        await self._send(message)

    async def cut_off(self, scope: Scope, receive: Receive, dialect: Dialect) -> None:
        """End the response: a stream as it stands, what has not begun with the refusal."""
        if self._is_over:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b""})
            return
        refusal = server_stopped_error()
        exchange = HttpExchange(scope, receive, self._send)
        await exchange.respond_json(
            refusal.status, dialect.refused(refusal), error_headers(refusal)
        )


class ResponseStream:
    """One answer being streamed. It is the `StreamSink` of whoever answers."""

    def __init__(
        self, exchange: HttpExchange, dialect: Dialect, asked: ApiRequest, keep_alive_seconds: float
    ) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self._asked = asked
        self._keep_alive_seconds = keep_alive_seconds
        self._writer: StreamWriter | None = None
        self._has_begun = False
        self._sent: list[str] = []
        self._whole: str | None = None
        self._matched = 0
        self._diverged = False
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._work: asyncio.Task[ApiResult] | None = None
        self._is_over = False
        self.first_piece_at: float | None = None

    def opened(self, run: str, *, kept: bool) -> None:
        """The answer has an id now."""
        if kept:
            self._exchange.notes["X-Podium-Run"] = run
        opening = ApiResponse(id=run, model=self._asked.model, created=int(time.time()))
        self._writer = self._dialect.writer(self._asked, opening)

    def progress(self, line: str) -> None:
        """A line on what is being done, for whoever wants to see that."""
        if self._asked.shows_reasoning and not self._sent:
            self._put(self._begun().progress(line))

    def thinking(self, text: str) -> None:
        """A piece of thinking, unless words of the answer are out already."""
        if self._asked.shows_reasoning and not self._sent:
            self._put(self._begun().thinking(text))

    def text(self, text: str) -> None:
        """A piece of the answer."""
        if self._diverged:
            return
        if self._whole is not None:
            text = self._beyond_what_was_sent(text)
        if text:
            self._sent.append(text)
            self._put(self._begun().text(text))

    def anew(self) -> None:
        """The answer begins again; what was sent of it cannot be taken back."""
        if self._sent:
            self._whole = "".join(self._sent)
            self._matched = 0

    def _beyond_what_was_sent(self, text: str) -> str:
        """The part of the text that the client does not have; where it contradicts what the
        client has, nothing, and the work is given up."""
        assert self._whole is not None, "only an answer that began again is compared"
        known = self._whole[self._matched : self._matched + len(text)]
        if not text.startswith(known):
            self._diverged = True
            if self._work is not None:
                self._work.cancel()
            return ""
        self._matched += len(known)
        if self._matched == len(self._whole):
            self._whole = None
        return text[len(known) :]

    async def carry(self, work: Coroutine[Any, Any, ApiResult]) -> ApiResult:
        """Send what the work tells, as it comes, and its end. Raises `ApiError` where it failed
        before anything was sent; afterwards a failure is told in the stream, and raised too."""
        self._work = task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._rouse())
        try:
            await self._send_until(task)
            answered = self._result(task)
            await self._end(answered)
        except Exception as error:
            await self.fail(to_api_error(error))
            raise
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return answered

    async def fail(self, refusal: ApiError) -> None:
        """Tell a client that has a part of the answer why there is no more of it."""
        if self._exchange.started and not self._is_over:
            self._put(self._begun().fail(refusal))
            await self._finish()

    async def _send_until(self, task: asyncio.Task[ApiResult]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._send()
            if task.done():
                return
            self._waiter = loop.create_future()
            timer = loop.call_later(self._keep_alive_seconds, self._rouse)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            silent = not self._pieces and not task.done()
            if silent and self._writer is not None:
                self._put(self._begun().keep_alive())

    def _result(self, task: asyncio.Task[ApiResult]) -> ApiResult:
        if self._diverged:
            raise ApiError(
                "upstream",
                "a worker failed after a part of its answer had been sent, and what was said "
                "instead does not go on from there; ask again",
            )
        return task.result()

    async def _end(self, answered: ApiResult) -> None:
        rest = self._rest(answered.answer.text)
        self._put(self._begun().end(answered.answer, rest))
        await self._finish()

    async def _finish(self) -> None:
        """Send what is left, and nothing after it."""
        await self._send()
        self._is_over = True
        await self._exchange.end_stream()

    def _rest(self, text: str) -> str:
        """What of the whole answer was not told piece by piece."""
        sent = "".join(self._sent)
        if not text.startswith(sent):
            raise ApiError(
                "upstream", "the answer is not what its pieces came to; ask again for it"
            )
        return text[len(sent) :]

    async def _send(self) -> None:
        """Send the pieces that there are, and those that come meanwhile."""
        while self._pieces:
            pieces, self._pieces = self._pieces, []
            if not self._exchange.started:
                self.first_piece_at = time.perf_counter()
                await self._exchange.begin_stream()
            await self._exchange.piece(b"".join(pieces))

    def _begun(self) -> StreamWriter:
        """The writer, whose first words are on their way before any others."""
        assert self._writer is not None, "whoever answers opens the stream first"
        if not self._has_begun:
            self._has_begun = True
            self._put(self._writer.begin())
        return self._writer

    def _put(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._rouse()

    def _rouse(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
