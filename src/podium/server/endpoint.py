"""The endpoint of a dialect: a body in, an answer or a refusal out, whole or as a stream.

It is plain ASGI: the framework's own parsing and validation would cost more than all the rest of
a gateway call, and the dialects check every field themselves.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from podium.budget import estimated_input_tokens
from podium.document import run_document
from podium.request import Request
from podium.server.access import Visitor
from podium.server.answering import Answered, Bill
from podium.server.dialects.base import Asked, Dialect
from podium.server.exchange import ClientGone, Exchange
from podium.server.hops import hop
from podium.server.logs import LOGGER, REQUEST
from podium.server.naming import Target
from podium.server.refusal import Refusal, refusal_of
from podium.server.service import Holder, Service
from podium.server.streaming import Stream
from podium.server.visiting import headers_of, let_in
from podium.server.wishing import with_headers

TRACE: Final = "x-podium-trace"


class Endpoint:
    """`POST` in one dialect."""

    def __init__(self, holder: Holder, dialect: Dialect, path: str) -> None:
        self._holder = holder
        self._dialect = dialect
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = Exchange(scope, receive, send)
        service = self._holder()
        if service.traces is None:
            await self._serve(service, exchange)
            return
        with service.traces.request(self._path, exchange):
            await self._serve(service, exchange)

    async def _serve(self, service: Service, exchange: Exchange) -> None:
        visit = _Visit(service, self._dialect, self._path, exchange)
        try:
            await visit.serve()
        except ClientGone:
            pass
        except Refusal as refusal:
            await visit.refuse(refusal)
        except Exception as error:  # noqa: BLE001 - the border: the client is told in its dialect
            LOGGER.exception("%s failed", self._path)
            await visit.refuse(refusal_of(error))
        finally:
            visit.account()


class _Visit:
    """One request being served."""

    def __init__(self, service: Service, dialect: Dialect, path: str, exchange: Exchange) -> None:
        self._service = service
        self._dialect = dialect
        self._path = path
        self._exchange = exchange
        self._began = time.perf_counter()
        self._bill = Bill()
        self._visitor: Visitor | None = None
        self._target: Target | None = None
        self._asked: Asked | None = None
        self._answered: Answered | None = None
        self._refusal: Refusal | None = None
        self._stream: Stream | None = None

    async def serve(self) -> None:
        """Let the client in, read what is asked, and answer."""
        service, exchange = self._service, self._exchange
        self._visitor = visitor = await let_in(service, "POST", exchange)
        await service.places.take()
        try:
            body = with_headers(await exchange.json(service.settings.body_megabytes), exchange)
            self._asked = asked = self._dialect.read(body)
            self._target = target = service.names.find(asked.model)
            request = Request(asked.messages, tools=asked.terms.tools)
            tokens = estimated_input_tokens(request)
            await service.door.begin(visitor, tier_or_worker=target.name, tokens=tokens)
            try:
                with hop(exchange):
                    await exchange.while_listening(self._answer(asked, visitor, target))
            finally:
                await service.settle(visitor, target, self._bill)
        finally:
            service.places.give_back()

    async def _answer(self, asked: Asked, visitor: Visitor, target: Target) -> None:
        if asked.stream:
            await self._answer_in_pieces(asked, visitor, target)
            return
        answered = await self._service.answer(asked, visitor, target, self._bill)
        self._answered = answered
        document = self._dialect.whole(asked, answered.answer)
        run = answered.run
        if self._bill.cost_usd is not None:
            self._exchange.notes["X-Podium-Cost"] = f"{self._bill.cost_usd:.10f}"
        if run is not None:
            if asked.store:
                self._exchange.notes["X-Podium-Run"] = run.id
            if self._exchange.get(TRACE) == "1":
                document["podium"] = run_document(run)
        await self._exchange.respond_json(200, document)

    async def _answer_in_pieces(self, asked: Asked, visitor: Visitor, target: Target) -> None:
        seconds = self._service.settings.keep_alive_seconds
        self._stream = stream = Stream(self._exchange, self._dialect, asked, seconds)
        work = self._service.answer(asked, visitor, target, self._bill, stream)
        self._answered = await stream.carry(work)

    async def refuse(self, refusal: Refusal) -> None:
        """Tell the client, unless a stream has told it already."""
        self._refusal = refusal
        if self._exchange.started:
            return
        document = self._dialect.refused(refusal)
        await self._exchange.respond_json(refusal.status, document, headers_of(refusal))

    def account(self) -> None:
        """Count the request and write its line in the log."""
        seconds = time.perf_counter() - self._began
        metrics = self._service.metrics
        model = self._target.name if self._target is not None else ""
        metrics.requests.add(self._path, model, str(self._exchange.status))
        metrics.seconds.observe(seconds, self._path, model)
        if self._stream is not None and self._stream.first_piece_at is not None:
            metrics.first_token.observe(
                self._stream.first_piece_at - self._began, self._path, model
            )
        if self._answered is not None and self._answered.run is not None:
            metrics.runs.add(self._answered.run.status)
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info(REQUEST, extra=self._line(model, seconds))

    def _line(self, model: str, seconds: float) -> dict[str, Any]:
        """What the log says of the request."""
        line: dict[str, Any] = {
            "path": self._path,
            "status": self._exchange.status,
            "milliseconds": round(seconds * 1000, 2),
            "model": model,
        }
        if self._visitor is not None and self._visitor.name:
            line["key"] = self._visitor.name
        if self._answered is not None:
            line["run"] = self._answered.answer.id
            line["input_tokens"] = self._bill.usage.input_tokens
            line["output_tokens"] = self._bill.usage.output_tokens
            line["cost_usd"] = self._bill.cost_usd
            if self._answered.run is not None:
                line["run_status"] = self._answered.run.status
        if self._refusal is not None:
            line["refused"] = self._refusal.reason
            line["field"] = self._refusal.field
        if self._service.settings.log_prompts and self._asked is not None:
            line["question"] = self._asked.messages[-1].text
            line["answer"] = self._answered.answer.text if self._answered is not None else None
        return line
