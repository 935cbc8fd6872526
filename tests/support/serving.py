"""A server in a test: the application over scripted workers, asked without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from podium.client.client import AsyncPodium
from podium.conductors import Conductor, RulesConductor, TierRouter
from podium.config import ServerSettings
from podium.core.worker import Worker
from podium.engine import RetryPolicy
from podium.engine.guardrails import Guardrail
from podium.engine.runner import Options
from podium.server.access import AccessPolicy
from podium.server.app import create_app
from podium.server.dialects.request import Dialect
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.store import RunStore
from support.plain_dialect import PlainDialect

PLAIN = "/v1/chat/completions"


@dataclass
class Served:
    """The application, a client of it, and what is behind it."""

    app: FastAPI
    client: httpx.AsyncClient

    @property
    def service(self) -> Service:
        service: Service = self.app.state.holder()
        return service

    async def ask(self, question: str = "Why?", **body: object) -> httpx.Response:
        return await self.client.post(PLAIN, json={"ask": question, **body})


def application(
    workers: Sequence[Worker],
    *,
    conductor: Conductor | None = None,
    settings: ServerSettings | None = None,
    options: Options | None = None,
    store: RunStore | None = None,
    access: AccessPolicy | None = None,
    dialects: Mapping[str, Dialect] | None = None,
    guardrails: Sequence[Guardrail] = (),
    mini: TierRouter | None = None,
    shared: bool = False,
) -> FastAPI:
    """The application over these workers, which retries at once. `shared` says that others use the
    store too."""

    async def opening(stack: AsyncExitStack) -> Service:
        buffered = BufferedRunStore(store or RunStore(), shared=shared)
        stack.push_async_callback(buffered.close)
        podium = AsyncPodium(
            workers,
            conductor or RulesConductor(),
            options=options,
            retry=RetryPolicy(attempts=2, initial_wait_seconds=0.0),
            store=buffered,
            guardrails=guardrails,
            router=mini,
        )
        stack.push_async_callback(podium.close)
        audit = AuditRecorder(getattr(store, "audit", None))
        return await open_service(
            podium, buffered, access or AccessPolicy(), settings or ServerSettings(), audit=audit
        )

    plain = PlainDialect()
    return create_app(opening, dialects or {PLAIN: plain, "/v1/messages": plain})


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[Served]:
    """The application, started, until the block is left."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False),
            base_url="http://podium.test",
        ) as client,
    ):
        yield Served(app, client)
