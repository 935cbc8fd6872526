"""What the endpoints of one server share: who may come in, what answers, and what is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from podium.client.client import AsyncPodium
from podium.config import ServerSettings, Settings
from podium.core.errors import WorkerError
from podium.core.pool import Pool
from podium.server.access import AccessPolicy, Principal
from podium.server.access.concurrency import ConcurrencyLimiter
from podium.server.answers.gateway import Gateway
from podium.server.answers.loading import Loading
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.answers.tiers import Tiers
from podium.server.api_error import ApiError
from podium.server.dialects.base import ApiRequest
from podium.server.logs import LOGGER
from podium.server.names import Names, Target
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.metrics import Metrics, RequestCost, Tally
from podium.server.records.repository import RunRepository
from podium.server.statistics.workers import RunDigestCache

if TYPE_CHECKING:
    from podium.server.records.traces import TraceRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One server at work. Made by `opened`."""

    podium: AsyncPodium
    settings: ServerSettings
    pool: Pool
    names: Names
    access: AccessPolicy
    keeper: BufferedRunStore
    archive: RunRepository
    tiers: Tiers
    gateway: Gateway
    limiter: ConcurrencyLimiter
    metrics: Metrics
    started: float
    digests: RunDigestCache = field(default_factory=RunDigestCache)
    traces: TraceRecorder | None = None
    tally: Tally | None = None
    loading: Loading = field(default_factory=Loading)
    audit: AuditRecorder = field(default_factory=AuditRecorder)

    async def answer(
        self,
        asked: ApiRequest,
        principal: Principal,
        target: Target,
        bill: RequestCost,
        teller: StreamSink | None = None,
    ) -> ApiResult:
        """Answer by a run, or by the worker that was asked for; raises `ApiError`."""
        if target.worker is not None:
            return await self.gateway.answer(asked, principal, target.worker, bill, teller)
        assert target.tier is not None, "what is no worker is a tier"
        return await self.tiers.answer(asked, principal, target.tier, bill, teller)

    async def settle(self, principal: Principal, target: Target, bill: RequestCost) -> None:
        """Charge whoever asked, also when the request was cut off meanwhile."""
        await self.access.settle(
            principal,
            model=target.name,
            usage=bill.usage,
            orchestration=bill.orchestration,
            cost_usd=bill.cost_usd,
            run=bill.run,
        )
        for kind in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"):
            amount = getattr(bill.usage, kind)
            if amount:
                self.metrics.tokens.add(target.name, kind.removesuffix("_tokens"), amount=amount)
        if bill.cost_usd:
            self.metrics.cost.add(target.name, amount=bill.cost_usd)
        if self.traces is not None:
            self.traces.record_cost(target, bill)


async def opened(
    podium: AsyncPodium,
    keeper: BufferedRunStore,
    access: AccessPolicy,
    settings: ServerSettings,
    traces: TraceRecorder | None = None,
    configured: Settings | None = None,
    audit: AuditRecorder | None = None,
) -> Service:
    """The service over a Podium whose store is the keeper. `configured` is what that Podium was
    made from, where it was; `audit` is None where administrative acts are not entered."""
    audit = audit or AuditRecorder()
    pool, conductor, options = await podium.pool(), await podium.conductor(), await podium.options()
    excludable, mini = await podium.excludable(), await podium.mini()
    archive = RunRepository(keeper, audit)
    archive.broadcast.listener = traces
    call_policy, metrics = await podium.call_policy(), Metrics()
    call_policy.breakers.on_opening = partial(_left_alone, metrics)
    tiers = Tiers(
        podium,
        archive,
        pool=pool,
        conductor=conductor,
        options=options,
        excludable=excludable,
        mini=mini,
    )
    return Service(
        podium=podium,
        settings=settings,
        pool=pool,
        names=Names(await podium.workers(), pool, conductor, options, configured, mini),
        access=access,
        keeper=keeper,
        archive=archive,
        tiers=tiers,
        gateway=Gateway(
            call_policy,
            options.budget,
            excludable,
            guardrails=await podium.guardrails(),
            workers=await podium.workers(),
        ),
        limiter=ConcurrencyLimiter(settings.in_flight, settings.queue),
        metrics=metrics,
        started=time.time(),
        traces=traces,
        audit=audit,
    )


def _left_alone(metrics: Metrics, worker: str, error: WorkerError) -> None:
    """A worker's breaker has opened."""
    metrics.openings.add(worker)
    LOGGER.warning("%s has failed too often and is left alone: %s", worker, error)


class Holder:
    """Where the service is found. There is none while the server starts, and none at its end."""

    def __init__(self) -> None:
        self.service: Service | None = None

    def __call__(self) -> Service:
        """The service."""
        if self.service is None:
            raise ApiError("overloaded", "this server is not ready yet; try again", retry_after=1)
        return self.service
