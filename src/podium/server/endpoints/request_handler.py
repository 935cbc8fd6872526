"""The way of a request in a dialect: authenticate, read, reserve, answer, settle, log.

Plain ASGI: the framework's parsing and validation would take more CPU time than the rest of a
gateway call, and the dialects check every field themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from podium.client.documents import run_document
from podium.core.budget import estimate_input_tokens
from podium.core.errors import StoreError
from podium.core.pool import answer_capabilities
from podium.core.request import NO_USAGE, Request
from podium.core.run import GuardrailCheck, Run
from podium.server.access import Principal
from podium.server.access.policy import RequestCost
from podium.server.access.request_checks import check_image_urls, count_hop
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.answers.tiers import IDEMPOTENCY_HEADER
from podium.server.api_error import ApiError, error_fields, invalid, to_api_error
from podium.server.dialects.fields import UnknownKey, collect_unknown, format_unknown
from podium.server.dialects.request import ApiRequest, Dialect, IdempotencyKey, merge_podium_headers
from podium.server.endpoints.http import (
    CLIENT_CLOSED_REQUEST,
    ClientDisconnected,
    HttpExchange,
    authenticate,
    server_stopped_error,
)
from podium.server.endpoints.response_stream import ResponseStream
from podium.server.logs import LOGGER, log_request
from podium.server.model_catalog import ModelTarget
from podium.server.service import Service, ServiceHolder
from podium.store.keys import Scope as KeyScope
from podium.workers.http import HOP

INCLUDE_RUN_HEADER: Final = "X-Podium-Include-Run"
IGNORED_HEADER: Final = "X-Podium-Ignored"

SAMPLING: Final = ("temperature", "top_p", "seed")

MAX_IDEMPOTENCY_KEY: Final = 255
MAX_LOGGED_MODEL: Final = 100
"""Characters."""


class DialectEndpoint:
    """`POST` in one dialect; a `RequestHandler` serves each request."""

    def __init__(
        self,
        holder: ServiceHolder,
        dialect: Dialect,
        path: str,
        handler: type[RequestHandler] | None = None,
    ) -> None:
        self._holder = holder
        self._dialect = dialect
        self._path = path
        self._handler = handler or RequestHandler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = HttpExchange(scope, receive, send)
        service = self._holder.service or self._holder()
        handler = self._handler(service, self._dialect, self._path, exchange)
        if service.traces is None:
            await handler.serve()
            return
        with service.traces.request(self._path, exchange):
            await handler.serve()


class RequestHandler:
    """Serves one request."""

    scope: KeyScope | None = None
    """The required scope, where it is not the model's."""

    def __init__(
        self, service: Service, dialect: Dialect, path: str, exchange: HttpExchange
    ) -> None:
        self.service = service
        self.exchange = exchange
        self.cost = RequestCost()
        self._dialect = dialect
        self._path = path
        self._started_at = time.perf_counter()
        self._is_disconnected = False
        self._requested_model = ""
        self._principal: Principal | None = None
        self._target: ModelTarget | None = None
        self._request: ApiRequest | None = None
        self._result: ApiResult | None = None
        self._error: ApiError | None = None
        self._includes_run = False
        self._stream: ResponseStream | None = None

    async def serve(self) -> None:
        """Answer the request or send an error, then count and log it."""
        try:
            await self._serve()
        except ClientDisconnected:
            self._is_disconnected = True
            self.exchange.status = CLIENT_CLOSED_REQUEST
        except asyncio.CancelledError:  # the server stops
            await self._fail_on_shutdown()
        except Exception as error:  # noqa: BLE001 - sent to the client in its dialect
            await self._send_error(to_api_error(error, self._path))
        finally:
            self._record()

    async def _serve(self) -> None:
        service, exchange = self.service, self.exchange
        self._principal = principal = await authenticate(
            service, "POST", exchange.headers, exchange.address
        )
        await service.limiter.acquire()
        try:
            body = await exchange.json(service.settings.body_megabytes)
            self._requested_model = str(body.get("model", ""))[:MAX_LOGGED_MODEL]
            body = merge_podium_headers(body, exchange.headers)
            unknown = collect_unknown()
            self._request = request = await self.read(body, principal)
            await check_image_urls(
                request.messages, private=service.settings.allow_private_image_urls
            )
            self._target = target = service.catalog.find(request.model)
            if target.tier is not None and not service.catalog.can_sample:
                self._request = request = self._without_sampling(request, unknown)
            if unknown or request.extra:
                self._request = request = self._filter_extra(request, target, unknown)
            self._request = request = self._with_idempotency_key(request, target, body)
            self._includes_run = self._wants_run(request, target)
            tokens = estimate_input_tokens(
                Request(request.messages, tools=request.response_options.tools)
            )
            principal = await service.access.reserve(
                principal, model=target.name, tokens=tokens, scope=self.scope
            )
            try:
                hop = count_hop(exchange.headers)
                try:
                    work = self.answer(request, principal, target)
                    await (work if request.background else exchange.run_until_disconnect(work))
                finally:
                    HOP.reset(hop)
            finally:
                await self._settle(principal, target)
        finally:
            service.limiter.release()

    async def read(self, body: dict[str, Any], principal: Principal) -> ApiRequest:
        return self._dialect.read(body)

    async def answer(self, request: ApiRequest, principal: Principal, target: ModelTarget) -> None:
        """Answer the request; `cost` is filled in whatever happens."""
        service, exchange = self.service, self.exchange
        if request.stream:
            seconds = service.settings.keep_alive_seconds
            self._stream = stream = ResponseStream(exchange, self._dialect, request, seconds)
            self._result = await stream.run(self._work(request, principal, target, stream))
            return
        self._result = result = await self._work(request, principal, target)
        document = self._dialect.format_response(request, result.response)
        if self.cost.cost_usd is not None:
            exchange.response_headers["X-Podium-Cost"] = f"{self.cost.cost_usd:.10f}"
        if result.run is not None:
            if request.store:
                exchange.response_headers["X-Podium-Run"] = result.run.id
            if self._includes_run:
                document["podium"] = run_document(result.run)
        await exchange.respond_json(200, document)

    def _work(
        self,
        request: ApiRequest,
        principal: Principal,
        target: ModelTarget,
        stream: StreamSink | None = None,
    ) -> Coroutine[Any, Any, ApiResult]:
        if target.worker is not None:
            gateway = self.service.gateway
            return gateway.answer(request, principal, target.worker, self.cost, stream)
        assert target.tier is not None, "a target is a worker or a tier"
        return self.service.tier_handler.answer(request, principal, target.tier, self.cost, stream)

    async def _settle(self, principal: Principal, target: ModelTarget) -> None:
        """Charge the request, even if it was cut off."""
        service, cost = self.service, self.cost
        await service.access.settle(principal, model=target.name, cost=cost)
        service.metrics.count_tokens(target.name, cost.usage, cost.orchestration)
        if cost.cost_usd:
            service.metrics.cost.labels(target.name).inc(cost.cost_usd)
        if service.traces is not None:
            service.traces.record_cost(target, cost)

    def _without_sampling(self, request: ApiRequest, unknown: list[UnknownKey]) -> ApiRequest:
        """Ignore what many clients send by default and no worker accepts, unless that is strict."""
        options = request.response_options
        if self.service.settings.strict or "sampling" not in answer_capabilities(options):
            return request
        given = [name for name in SAMPLING if getattr(options, name) is not None]
        unknown += (UnknownKey("", name, ()) for name in given)
        options = replace(options, temperature=None, top_p=None, seed=None)
        return replace(request, response_options=options)

    def _filter_extra(
        self, request: ApiRequest, target: ModelTarget, unknown: list[UnknownKey]
    ) -> ApiRequest:
        """Keep the extra fields that a single worker gets; name ignored keys in a header, or refuse
        them."""
        fields, extra = self._dialect.fields, request.extra
        passed = fields.pass_on(extra, target.worker) if target.worker is not None else {}
        ignored = {name: extra[name] for name in extra if name not in passed}
        unknown = [*fields.find_unknown(ignored), *unknown]
        if unknown and self.service.settings.strict:
            raise unknown[0].error()
        if unknown:
            self.exchange.response_headers[IGNORED_HEADER] = format_unknown(unknown)
        return replace(request, extra=passed)

    def _wants_run(self, request: ApiRequest, target: ModelTarget) -> bool:
        value = self.exchange.headers.get(INCLUDE_RUN_HEADER.lower())
        if value in (None, "0"):
            return False
        if value != "1":
            message = f"{INCLUDE_RUN_HEADER}: expected 1 or 0, got {value[:40]!r}"
            raise invalid(INCLUDE_RUN_HEADER, message)
        if target.worker is not None or self.scope == "plan":
            raise invalid(
                INCLUDE_RUN_HEADER,
                f"{INCLUDE_RUN_HEADER}: there is no run to include; drop the header, or ask a "
                f"tier instead of a plan or a single worker",
            )
        if request.stream:
            raise invalid(
                INCLUDE_RUN_HEADER,
                f"{INCLUDE_RUN_HEADER} cannot be combined with stream; drop stream, or read the "
                f"run at GET /v1/runs/{{id}} with the id of the header X-Podium-Run",
            )
        return True

    def _with_idempotency_key(
        self, request: ApiRequest, target: ModelTarget, body: dict[str, Any]
    ) -> ApiRequest:
        name = self.exchange.headers.get(IDEMPOTENCY_HEADER.lower())
        if name is None:
            return request
        if not 0 < len(name) <= MAX_IDEMPOTENCY_KEY or not name.isprintable():
            raise invalid(
                IDEMPOTENCY_HEADER,
                f"{IDEMPOTENCY_HEADER}: expected 1 to {MAX_IDEMPOTENCY_KEY} printable characters",
            )
        if target.worker is not None or self.scope == "plan" or not request.store:
            raise invalid(
                IDEMPOTENCY_HEADER,
                f"{IDEMPOTENCY_HEADER} requires a stored run of a tier; drop it, or ask a tier "
                f"with store: true",
            )
        content = json.dumps([self._path, body], sort_keys=True, default=repr)
        digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
        return replace(request, idempotency_key=IdempotencyKey(name, digest))

    async def _send_error(self, error: ApiError) -> None:
        self._error = error
        error.request_id = self.exchange.request_id
        if self.exchange.started:
            return
        headers = self.exchange.response_headers
        if isinstance(error.__cause__, StoreError):  # the run may never have been stored
            headers.pop("X-Podium-Run", None)
        elif (run := self._stored_run_id()) is not None:
            headers["X-Podium-Run"] = run
        await self.exchange.respond_json(
            error.status, self._dialect.format_error(error), error.headers
        )

    async def _fail_on_shutdown(self) -> None:
        error = server_stopped_error(self._stored_run_id())
        if self._stream is not None:
            await self._stream.fail(error)
        await self._send_error(error)

    def _stored_run_id(self) -> str | None:
        if self.cost.run is None or self._request is None or not self._request.store:
            return None
        return self.cost.run.id

    def _record(self) -> None:
        seconds = time.perf_counter() - self._started_at
        metrics = self.service.metrics
        model = self._target.name if self._target is not None else ""
        metrics.requests.labels(self._path, model, str(self.exchange.status)).inc()
        metrics.seconds.labels(self._path, model).observe(seconds)
        if self._stream is not None and self._stream.first_chunk_at is not None:
            first_byte = self._stream.first_chunk_at - self._started_at
            metrics.first_byte.labels(self._path, model).observe(first_byte)
        if self.cost.run is not None:
            metrics.runs.labels(self.cost.run.status).inc()
        for check in self._guardrail_checks():
            metrics.guardrails.labels(check.guardrail, check.stage, check.action).inc()
        if LOGGER.isEnabledFor(logging.INFO):
            log_request(self._log_fields(model, seconds))

    def _guardrail_checks(self) -> Iterable[GuardrailCheck]:
        run = self.cost.run
        if run is not None and run.guardrails:
            return run.all_guardrail_checks
        return self._result.checks if self._result is not None else ()

    def _log_fields(self, model: str, seconds: float) -> dict[str, Any]:
        line: dict[str, Any] = {
            "path": self._path,
            "status": self.exchange.status,
            "milliseconds": round(seconds * 1000, 2),
            "model": model or self._requested_model,
            "request_id": self.exchange.request_id,
        }
        if self._principal is not None and self._principal.name:
            line["key"] = self._principal.name
        if self._is_disconnected:
            line["disconnected"] = True
        run = self.cost.run or (self._result.run if self._result is not None else None)
        if run is not None:
            line["run"], line["run_status"] = run.id, run.status
        if self._result is not None or self.cost.usage is not NO_USAGE:
            line["input_tokens"] = self.cost.usage.input_tokens
            line["output_tokens"] = self.cost.usage.output_tokens
            line["cost_usd"] = self.cost.cost_usd
        if self._error is not None:
            line |= error_fields(self._error)
        if self.service.settings.log_prompts and self._request is not None:
            line |= self._logged_text(self._request, run)
        return line

    def _logged_text(self, request: ApiRequest, run: Run | None) -> dict[str, Any]:
        """Return question and answer as guardrails left them."""
        if run is not None:
            return {"question": run.question, "answer": run.answer}
        if self.service.gateway.has_guardrails:
            return {}
        answer = self._result.response.text if self._result is not None else None
        return {"question": request.messages[-1].text, "answer": answer}
