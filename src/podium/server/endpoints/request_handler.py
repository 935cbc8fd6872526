"""The endpoint of a dialect: a body in, an answer or a refusal out, whole or as a stream. What else
is asked and paid for in the same way is a kind of visit too.

It is plain ASGI: the framework's own parsing and validation would cost more than all the rest of
a gateway call, and the dialects check every field themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from podium.client.documents import run_document
from podium.core.budget import estimate_input_tokens
from podium.core.errors import StoreError
from podium.core.request import Request
from podium.core.run import GuardrailCheck, Run
from podium.core.usage import NO_USAGE
from podium.server.access import Principal
from podium.server.access.request_checks import check_image_urls, enter_hop
from podium.server.answers.result import ApiResult
from podium.server.answers.tiers import HEADER
from podium.server.api_error import ApiError, invalid, to_api_error
from podium.server.dialects.request import ApiRequest, Dialect, IdempotencyKey, merge_podium_headers
from podium.server.endpoints.auth import authenticate, error_headers
from podium.server.endpoints.http import CLIENT_CLOSED_REQUEST, ClientDisconnected, HttpExchange
from podium.server.endpoints.response_stream import ResponseStream, server_stopped_error
from podium.server.logs import LOGGER, REQUEST_MESSAGE
from podium.server.model_catalog import ModelTarget
from podium.server.records.metrics import RequestCost
from podium.server.service import Service, ServiceHolder
from podium.store.keys import Scope as KeyScope

TRACE: Final = "x-podium-trace"
NAME: Final = HEADER.lower()

LONGEST_NAME: Final = 255
"""Characters of what a client calls a request."""


class DialectEndpoint:
    """`POST` in one dialect. `visit` is how each request is served."""

    def __init__(
        self,
        holder: ServiceHolder,
        dialect: Dialect,
        path: str,
        visit: type[RequestHandler] | None = None,
    ) -> None:
        self._holder = holder
        self._dialect = dialect
        self._path = path
        self._visit = visit or RequestHandler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = HttpExchange(scope, receive, send)
        service = self._holder()
        if service.traces is None:
            await self._serve(service, exchange)
            return
        with service.traces.request(self._path, exchange):
            await self._serve(service, exchange)

    async def _serve(self, service: Service, exchange: HttpExchange) -> None:
        visit = self._visit(service, self._dialect, self._path, exchange)
        try:
            await visit.serve()
        except ClientDisconnected:
            visit.is_gone = True
            exchange.status = CLIENT_CLOSED_REQUEST
        except ApiError as refusal:
            await visit.refuse(refusal)
        except asyncio.CancelledError:  # by the server, which stops
            await visit.cut_off()
        except Exception as error:  # noqa: BLE001 - the border: the client is told in its dialect
            LOGGER.exception("%s failed", self._path)
            await visit.refuse(to_api_error(error))
        finally:
            visit.account()


class RequestHandler:
    """One request being served. `is_gone` says that nobody waited for the end of it."""

    scope: KeyScope | None = None
    """What the request takes, where it is not what its model says."""

    def __init__(
        self, service: Service, dialect: Dialect, path: str, exchange: HttpExchange
    ) -> None:
        self.service = service
        self.exchange = exchange
        self.cost = RequestCost()
        self.is_gone = False
        self._dialect = dialect
        self._path = path
        self._began = time.perf_counter()
        self._principal: Principal | None = None
        self._target: ModelTarget | None = None
        self._asked: ApiRequest | None = None
        self._answered: ApiResult | None = None
        self._refusal: ApiError | None = None
        self._traces = False
        self._stream: ResponseStream | None = None

    async def serve(self) -> None:
        """Let the client in, read what is asked, and answer."""
        service, exchange = self.service, self.exchange
        self._principal = principal = await authenticate(
            service, "POST", exchange, exchange.address
        )
        await service.limiter.acquire()
        try:
            body = merge_podium_headers(
                await exchange.json(service.settings.body_megabytes), exchange
            )
            self._asked = asked = self.read(body)
            await check_image_urls(asked.messages, private=service.settings.private_images)
            self._target = target = service.catalog.find(asked.model)
            name = exchange.get(NAME)
            if name is not None:
                self._asked = asked = self._named(asked, target, name, body)
            self._traces = self._wants_trace(asked, target)
            request = Request(asked.messages, tools=asked.response_options.tools)
            tokens = estimate_input_tokens(request)
            principal = await service.access.reserve(
                principal, model=target.name, tokens=tokens, scope=self.scope
            )
            try:
                with enter_hop(exchange):
                    await exchange.run_until_disconnect(self.answer(asked, principal, target))
            finally:
                await service.settle(principal, target, self.cost)
        finally:
            service.limiter.release()

    def _wants_trace(self, asked: ApiRequest, target: ModelTarget) -> bool:
        """Whether the trace is to come with the answer; refused where there is no place for it."""
        value = self.exchange.get(TRACE)
        if value in (None, "0"):
            return False
        if value != "1":
            raise invalid("X-Podium-Trace", f"X-Podium-Trace is {value[:40]!r}; it is 1 or 0")
        if target.worker is not None or self.scope == "plan":
            raise invalid(
                "X-Podium-Trace",
                "only a run has a trace, and neither a plan nor a single worker's answer is one; "
                "drop X-Podium-Trace, or have a question answered by a tier",
            )
        if asked.stream:
            raise invalid(
                "X-Podium-Trace",
                "a stream has no place for the trace; drop X-Podium-Trace and read the run at "
                "GET /v1/runs/{id}, whose id is in the header X-Podium-Run, or drop stream",
            )
        return True

    def _named(
        self, asked: ApiRequest, target: ModelTarget, name: str, body: dict[str, Any]
    ) -> ApiRequest:
        """What is asked, under the name that the client gave it; refused where no run would be on
        record that the name could stand for."""
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise invalid(HEADER, f"{HEADER} is not of 1 to {LONGEST_NAME} printable characters")
        if target.worker is not None or self.scope == "plan" or not asked.store:
            raise invalid(
                HEADER,
                f"{HEADER} names a run on record, and neither a plan nor a single worker's answer "
                f"nor one that is not stored is; drop it, or have a tier answer and store that",
            )
        told = json.dumps([self._path, body], sort_keys=True, default=repr)
        digest = hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()
        return replace(asked, named=IdempotencyKey(name, digest))

    def read(self, body: dict[str, Any]) -> ApiRequest:
        """What the body asks for."""
        return self._dialect.read(body)

    async def answer(self, asked: ApiRequest, principal: Principal, target: ModelTarget) -> None:
        """Answer; `cost` is filled in however that ends."""
        if asked.stream:
            await self._answer_in_pieces(asked, principal, target)
            return
        answered = await self.service.answer(asked, principal, target, self.cost)
        self._answered = answered
        document = self._dialect.format_response(asked, answered.answer)
        run = answered.run
        if self.cost.cost_usd is not None:
            self.exchange.notes["X-Podium-Cost"] = f"{self.cost.cost_usd:.10f}"
        if run is not None:
            if asked.store:
                self.exchange.notes["X-Podium-Run"] = run.id
            if self._traces:
                document["podium"] = run_document(run)
        await self.exchange.respond_json(200, document)

    async def _answer_in_pieces(
        self, asked: ApiRequest, principal: Principal, target: ModelTarget
    ) -> None:
        seconds = self.service.settings.keep_alive_seconds
        self._stream = stream = ResponseStream(self.exchange, self._dialect, asked, seconds)
        work = self.service.answer(asked, principal, target, self.cost, stream)
        self._answered = await stream.carry(work)

    async def refuse(self, refusal: ApiError) -> None:
        """Tell the client, unless a stream has told it already."""
        self._refusal = refusal
        if self.exchange.started:
            return
        if isinstance(refusal.__cause__, StoreError):  # the run may be one that was not begun
            self.exchange.notes.pop("X-Podium-Run", None)
        elif self.cost.run is not None and self._asked is not None and self._asked.store:
            self.exchange.notes["X-Podium-Run"] = self.cost.run.id
        document = self._dialect.refused(refusal)
        await self.exchange.respond_json(refusal.status, document, error_headers(refusal))

    async def cut_off(self) -> None:
        """Tell the client, whatever it has of the answer, that the server stopped."""
        run = self.cost.run.id if self.cost.run is not None else None
        if self._asked is None or not self._asked.store:
            run = None
        refusal = server_stopped_error(run)
        if self._stream is not None:
            await self._stream.fail(refusal)
        await self.refuse(refusal)

    def account(self) -> None:
        """Count the request and write its line in the log."""
        seconds = time.perf_counter() - self._began
        metrics = self.service.metrics
        model = self._target.name if self._target is not None else ""
        metrics.requests.labels(self._path, model, str(self.exchange.status)).inc()
        metrics.seconds.labels(self._path, model).observe(seconds)
        if self._stream is not None and self._stream.first_piece_at is not None:
            first_byte = self._stream.first_piece_at - self._began
            metrics.first_byte.labels(self._path, model).observe(first_byte)
        if self.cost.run is not None:
            metrics.runs.labels(self.cost.run.status).inc()
        self._count_guardrails()
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info(REQUEST_MESSAGE, extra=self._line(model, seconds))

    def _count_guardrails(self) -> None:
        """Count what guardrails did in this request."""
        run, answered = self.cost.run, self._answered
        if run is not None and run.guardrails:
            checks: Iterable[GuardrailCheck] = run.all_checks
        else:
            checks = answered.checks if answered is not None else ()
        for check in checks:
            labels = (check.guardrail, check.stage, check.action)
            self.service.metrics.guardrails.labels(*labels).inc()

    def _line(self, model: str, seconds: float) -> dict[str, Any]:
        """What the log says of the request."""
        line: dict[str, Any] = {
            "path": self._path,
            "status": self.exchange.status,
            "milliseconds": round(seconds * 1000, 2),
            "model": model,
        }
        if self._principal is not None and self._principal.name:
            line["key"] = self._principal.name
        if self.is_gone:
            line["gone"] = True
        run = self.cost.run or (self._answered.run if self._answered is not None else None)
        if run is not None:
            line["run"], line["run_status"] = run.id, run.status
        if self._answered is not None or self.cost.usage is not NO_USAGE:
            line["input_tokens"] = self.cost.usage.input_tokens
            line["output_tokens"] = self.cost.usage.output_tokens
            line["cost_usd"] = self.cost.cost_usd
        if self._refusal is not None:
            line["refused"] = self._refusal.reason
            line["field"] = self._refusal.field
            line["request_id"] = self._refusal.request_id
        if self.service.settings.log_prompts and self._asked is not None:
            line |= self._words(self._asked, run)
        return line

    def _words(self, asked: ApiRequest, run: Run | None) -> dict[str, Any]:
        """The question and the answer, as the log may have them: as guardrails left them."""
        if run is not None:
            return {"question": run.question, "answer": run.answer}
        if self.service.gateway.is_guarded:
            return {}
        answer = self._answered.answer.text if self._answered is not None else None
        return {"question": asked.messages[-1].text, "answer": answer}
