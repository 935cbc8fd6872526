"""The application: which address answers what.

The endpoints of the dialects are plain ASGI (`endpoint`), everything else is FastAPI's. What
the application works with is opened when it starts and closed when it stops; what is going on
then may end first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route

from podium._version import __version__
from podium.server import health, models
from podium.server.dialects.base import Dialect
from podium.server.endpoint import Endpoint
from podium.server.logs import LOGGER
from podium.server.service import Holder, Service
from podium.server.visiting import word_refusals

Opening = Callable[[AsyncExitStack], Awaitable[Service]]
"""Opens a service, and leaves with the stack what is to be closed."""


def create_app(opening: Opening, dialects: Mapping[str, Dialect]) -> FastAPI:
    """The application over the service that `opening` opens. `dialects` are by their addresses."""
    holder = Holder()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            service = holder.service = await opening(stack)
            try:
                yield
            finally:
                if not await service.places.close(service.settings.drain_seconds):
                    LOGGER.warning("%d requests were cut off", service.places.taken)
                holder.service = None

    app = FastAPI(
        title="Podium",
        version=__version__,
        description="An open conductor for language models, behind the APIs that tools speak.",
        lifespan=lifespan,
    )
    app.state.holder = holder
    app.router.routes[:0] = [
        Route(path, Endpoint(holder, dialect, path), methods=["POST"])
        for path, dialect in dialects.items()
    ]
    app.include_router(models.router)
    app.include_router(health.router)
    word_refusals(app, dialects)
    return app
