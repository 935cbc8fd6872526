"""The ASGI application: routes, error handlers and health probes.

The dialects' endpoints are plain ASGI (`endpoints.request_handler`); all others are FastAPI's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from podium._version import __version__
from podium.core.errors import PodiumError
from podium.server import pages
from podium.server.api_error import ApiError, Reason, error_fields, to_api_error
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.endpoints import (
    accounting,
    conversations,
    experiments,
    forward,
    keys,
    plan,
    pool,
    responses,
    runs,
)
from podium.server.endpoints.http import (
    CLIENT_CLOSED_REQUEST,
    BodyLimitMiddleware,
    ClientDisconnected,
    PrincipalDep,
    ResponseTracker,
    ServiceDep,
    is_anthropic_client,
    is_api_path,
    new_request_id,
    request_id_headers,
    send_head,
    send_uncached,
)
from podium.server.endpoints.openapi import add_dialect_paths
from podium.server.endpoints.request_handler import DialectEndpoint, RequestHandler
from podium.server.logs import LOGGER, log_request
from podium.server.records.maintenance import delete_expired_runs
from podium.server.records.metrics import MEDIA_TYPE
from podium.server.service import Service, ServiceHolder

CHAT_PATH: Final = "/v1/chat/completions"
MESSAGES_PATH: Final = "/v1/messages"
DIALECT_PATHS: Final = (CHAT_PATH, MESSAGES_PATH, "/v1/responses")
PLAN_PATH: Final = "/v1/plan"

HANDLERS: Final = MappingProxyType[str, type[RequestHandler]](
    {"/v1/responses": responses.ResponsesRequestHandler}
)
"""The handlers of dialects that need their own."""

EXPOSED_HEADERS: Final = (
    "X-Request-Id",
    "Request-Id",
    "Retry-After",
    "X-Should-Retry",
    "X-Podium-Run",
    "X-Podium-Cost",
    "X-Podium-Ignored",
)
"""Response headers that a page of another origin may read."""

ServiceOpener = Callable[[AsyncExitStack], Awaitable[Service]]
"""Opens a service, and registers with the stack what must be closed."""

health_router = APIRouter(tags=["operation"])


@health_router.get("/health")
@health_router.get("/healthz")
async def healthz() -> dict[str, Any]:
    """Answer as long as the process runs. Requires no API key."""
    return {"status": "alive", "version": __version__}


@health_router.get(
    "/readyz", responses={503: {"description": "The server starts, loads models or stops."}}
)
async def readyz(request: Request) -> Response:
    """Report whether the server accepts requests. Requires no API key."""
    service: Service | None = request.app.state.holder.service
    if service is None:
        return JSONResponse({"status": "starting"}, 503)
    if service.limiter.closed:
        return JSONResponse({"status": "stopping"}, 503)
    if service.loader.is_loading:
        return JSONResponse({"status": "loading"}, 503)
    return JSONResponse({"status": "ready"})


@health_router.get("/metrics", response_class=Response)
async def metrics(service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return Prometheus metrics of all processes of this server; requests in flight and waiting
    are those of this process. Requires the scope `metrics`."""
    principal.require("metrics")
    limiter = service.limiter
    page = service.metrics.render(
        requests_in_flight=limiter.in_flight, requests_waiting=limiter.waiting
    )
    return Response(page, media_type=MEDIA_TYPE)


class _Application(FastAPI):
    """FastAPI with a shortcut for the dialects' requests, whose routing and middleware would
    take a tenth of a plain call's CPU time."""

    def __init__(
        self, endpoints: Mapping[str, DialectEndpoint], default_dialect: Dialect, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._endpoints = endpoints
        self._default_dialect = default_dialect
        self._cors: CORSMiddleware | None = None

    def allow_origins(self, origins: Collection[str]) -> None:
        """Let pages of these origins use the API from a browser, without credentials."""
        self._cors = None
        if origins:
            self._cors = CORSMiddleware(
                self._serve,
                allow_origins=origins,
                allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
                allow_headers=("*",),
                allow_private_network=True,
                expose_headers=EXPOSED_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection. User middleware sees every request."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif self._cors is not None:
            await self._cors(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST" and not self.user_middleware:
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None and self.state.holder.service is not None:
                await endpoint(scope, receive, send)
                return
        if scope["method"] == "HEAD" and is_api_path(scope):
            scope, send = {**scope, "method": "GET"}, send_head(send)
        tracker = ResponseTracker(send_uncached(send) if is_api_path(scope) else send)
        try:
            await super().__call__(scope, receive, tracker.send)
        except asyncio.CancelledError:  # the server stops
            await tracker.cut_off(scope, receive, self._default_dialect)


def create_app(open_service: ServiceOpener, dialects: Mapping[str, Dialect]) -> FastAPI:
    """Create the application; `dialects` are keyed by their paths."""
    holder = ServiceHolder()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            service = holder.service = await open_service(stack)
            app_.allow_origins(service.settings.cors)
            cleanup = delete_expired_runs(service.store, service.settings.keep_days)
            for work in (cleanup, service.disabled.watch()):
                stack.push_async_callback(_cancel, asyncio.create_task(work))
            try:
                yield
            finally:
                if not await service.limiter.close(service.settings.drain_seconds):
                    LOGGER.warning(
                        "%d requests did not finish before shutdown", service.limiter.in_flight
                    )
                holder.service = None

    endpoints = {
        path: DialectEndpoint(holder, dialect, path, HANDLERS.get(path))
        for path, dialect in dialects.items()
    }
    endpoints[PLAN_PATH] = DialectEndpoint(holder, CHAT, PLAN_PATH, plan.PlanRequestHandler)
    for path in forward.PATHS:
        handler = forward.ForwardRequestHandler
        endpoints[path] = DialectEndpoint(holder, forward.FORWARD, path, handler)
    app = app_ = _Application(
        endpoints,
        dialects[CHAT_PATH],
        title="Podium",
        version=__version__,
        description="An open conductor for language models, behind the OpenAI and Anthropic APIs.",
        lifespan=lifespan,
        openapi_url=None,  # FastAPI's own pages require no API key
    )
    app.state.holder = holder
    app.router.middleware_stack = BodyLimitMiddleware(
        app.router.middleware_stack, exempt=frozenset((*endpoints, plan.COUNT_TOKENS))
    )
    app.router.routes[:0] = [
        Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()
    ]
    for router in (
        pool.models_router,
        plan.router,
        runs.router,
        responses.router,
        conversations.router,
        pool.router,
        accounting.router,
        keys.router,
        experiments.router,
        health_router,
        pages.router,
    ):
        app.include_router(router)
    generate_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = add_dialect_paths(generate_openapi(), list(endpoints))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    _add_error_handlers(app, dialects)
    return app


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait for it: it must not outlive the store."""
    task.cancel()
    await asyncio.wait({task})


def _add_error_handlers(app: FastAPI, dialects: Mapping[str, Dialect]) -> None:
    """Write every error in the client's dialect; browsers get a page for an unknown path."""

    def respond(
        request: Request,
        error: ApiError,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSONResponse:
        path = request.url.path
        default = MESSAGES_PATH if is_anthropic_client(request) else CHAT_PATH
        dialect = next((d for p, d in dialects.items() if path.startswith(p)), dialects[default])
        error.request_id = new_request_id()
        ids = request_id_headers(error.request_id)
        headers = {**ids, **error.headers, **(headers or {})}
        response = JSONResponse(dialect.format_error(error), status or error.status, headers)
        if LOGGER.isEnabledFor(logging.INFO):
            log_request({"path": path, "status": response.status_code, **error_fields(error)})
        return response

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return respond(request, error)

    @app.exception_handler(ClientDisconnected)
    async def on_disconnect(request: Request, error: ClientDisconnected) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])  # query or path, never the body
        return respond(request, ApiError("invalid", f"{field}: {first['msg']}", field=field))

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        wants_html = "text/html" in request.headers.get("accept", "")
        if error.status_code == 404 and wants_html and request.method in ("GET", "HEAD"):
            return pages.not_found_page(request)
        if request.headers.get("upgrade", "").lower() == "websocket":
            # Codex falls back to HTTP at once on 426, and only after six tries on others
            message = "websockets are not supported; send POST, with stream: true for events"
            return respond(request, ApiError("invalid", message), 426, {"Upgrade": "HTTP/1.1"})
        reason: Reason = "not_found" if error.status_code == 404 else "invalid"
        path = request.url.path
        message = f"{request.method} {path[:200]}: {error.detail}"
        if error.status_code == 404:
            message += f"; {_suggest_address(path, str(request.base_url).rstrip('/'))}"
        return respond(request, ApiError(reason, message), error.status_code, error.headers)

    @app.exception_handler(PodiumError)
    @app.exception_handler(Exception)
    async def on_exception(request: Request, error: Exception) -> JSONResponse:
        return respond(request, to_api_error(error, request.url.path))


def _suggest_address(path: str, base_url: str) -> str:
    """Name the base URL to which the path of a client belongs, or what is supported instead."""
    known = (*DIALECT_PATHS, *forward.PATHS, "/v1/models")
    if meant := next((one for one in known if path.endswith(one.removeprefix("/v1"))), None):
        return (
            f"did you mean {meant}? Set the client's base URL to {base_url}/v1, or for Anthropic's "
            f"SDKs and Claude Code to {base_url}"
        )
    return (
        f"this endpoint is not supported. Every model supports {forward.ANSWER_ENDPOINTS}, "
        f"and workers with an OpenAI-compatible API also {', '.join(forward.PATHS)}; "
        f"GET /docs lists all endpoints"
    )
