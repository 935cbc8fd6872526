"""The application: which address answers what.

The endpoints of the dialects are plain ASGI (`endpoints.dialect`), everything else is FastAPI's.
What the application works with is opened when it starts and closed when it stops; what is going on
then may end first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from podium._version import __version__
from podium.server import pages
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.endpoints import accounting, health, learning, models, plan, pool, runs
from podium.server.endpoints.auth import USUAL, add_error_handlers
from podium.server.endpoints.http import BodyLimitMiddleware, route_path, send_uncached
from podium.server.endpoints.openapi import add_dialect_paths
from podium.server.endpoints.request_handler import DialectEndpoint
from podium.server.endpoints.response_stream import ResponseTracker
from podium.server.logs import LOGGER
from podium.server.records.maintenance import delete_expired_runs
from podium.server.service import Service, ServiceHolder

PLAN: Final = "/v1/plan"

ServiceOpener = Callable[[AsyncExitStack], Awaitable[Service]]
"""Opens a service, and leaves with the stack what is to be closed."""


class _Application(FastAPI):
    """FastAPI, with a short way in for requests to the dialects: they need nothing of what the
    framework puts around an endpoint, which would be a tenth of the cost of a plain call."""

    def __init__(self, hot: Mapping[str, DialectEndpoint], usual: Dialect, **settings: Any) -> None:
        super().__init__(**settings)
        self._hot = hot
        self._usual = usual

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection. Whoever adds middleware gets to see every request."""
        if scope["type"] == "http" and scope["method"] == "POST" and not self.user_middleware:
            endpoint = self._hot.get(scope["path"])
            if endpoint is not None and self.state.holder.service is not None:
                await endpoint(scope, receive, send)
                return
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        answering = ResponseTracker(
            send_uncached(send) if route_path(scope).startswith("/v1/") else send
        )
        try:
            await super().__call__(scope, receive, answering.send)
        except asyncio.CancelledError:  # by the server, which stops
            await answering.cut_off(scope, receive, self._usual)


def create_app(opening: ServiceOpener, dialects: Mapping[str, Dialect]) -> FastAPI:
    """The application over the service that `opening` opens. `dialects` are by their addresses."""
    holder = ServiceHolder()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            service = holder.service = await opening(stack)
            tidying = delete_expired_runs(service.store, service.settings.keep_days)
            stack.push_async_callback(_stopped, asyncio.create_task(tidying))
            try:
                yield
            finally:
                if not await service.limiter.close(service.settings.drain_seconds):
                    LOGGER.warning("%d requests did not end", service.limiter.in_flight)
                holder.service = None

    hot = {path: DialectEndpoint(holder, dialect, path) for path, dialect in dialects.items()}
    hot[PLAN] = DialectEndpoint(holder, CHAT, PLAN, plan.PlanRequestHandler)
    app = _Application(
        hot,
        dialects[USUAL],
        title="Podium",
        version=__version__,
        description="An open conductor for language models, behind the APIs that tools speak.",
        lifespan=lifespan,
        openapi_url=None,  # FastAPI's own pages ask for no key
    )
    app.state.holder = holder
    own = frozenset((*hot, plan.COUNT_TOKENS))
    app.router.middleware_stack = BodyLimitMiddleware(app.router.middleware_stack, own)
    app.router.routes[:0] = [
        Route(path, endpoint, methods=["POST"]) for path, endpoint in hot.items()
    ]
    for router in (
        models.router,
        plan.router,
        runs.router,
        runs.responses_router,
        pool.router,
        accounting.router,
        learning.router,
        health.router,
        pages.router,
    ):
        app.include_router(router)
    plain_page = app.openapi

    def whole_page() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = add_dialect_paths(plain_page(), list(hot))
        return app.openapi_schema

    app.openapi = whole_page  # type: ignore[method-assign]
    add_error_handlers(app, dialects, pages.not_found_page)
    return app


async def _stopped(task: asyncio.Task[None]) -> None:
    """The task is over: what it was doing with the store must not outlive that."""
    task.cancel()
    await asyncio.wait({task})
