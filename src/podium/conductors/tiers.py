"""Tiers: how much planning a question gets, by the model name that a client asks for.

`mini` answers with the least latency (by a learned router, where there is one), `ultra` plans with
the configured conductor, and `podium` chooses between the two for each question: by its words,
unless the conductor was trained to decide that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from podium.conductors.builtin import (
    FixedConductor,
    RouterConductor,
    RulesConductor,
    capable_workers,
    cheapest_capable,
    classify_question,
    tier_conductor_name,
)
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.routing import RoutingRecord
from podium.core.run import Tier
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """The worker that a router chose.

    `confidence` is the chance that the answer is right, as far as the training log tells; `scores`
    is the expected reward of each worker that could have been chosen, from 0 to 1.
    """

    worker: str
    confidence: float
    scores: Mapping[str, float]


class Router(Protocol):
    """A learned choice of workers; `podium.conductors.routing.LearnedRouter` is one."""

    @property
    def fingerprint(self) -> str:
        """Changes with the router's file."""

    def knows(self, worker: WorkerProfile) -> bool:
        """True if it was trained with that worker."""

    def changes(self, pool: Pool) -> tuple[str, ...]:
        """Return how the pool differs from the one of the training, a phrase each."""

    def decide(
        self, question: str, pool: Pool, quality_bias: float, confidence: float
    ) -> RoutingDecision:
        """Choose a worker, above a quality bias of 0 among those of at least that confidence."""


class TierRouter:
    """The learned router that serves the mini tier.

    It chooses among workers of at least `confidence`; without any, the conductor plans. At a
    quality bias of 0 confidence does not count. With a pool that changed since training it is
    refused or, if `narrow`, chooses among the workers that both have. Decisions are made in a
    thread of their own, off the event loop.
    """

    def __init__(
        self,
        router: Router,
        *,
        confidence: float = 0.5,
        quality_bias: float = 0.5,
        narrow: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.router = router
        self.confidence = confidence
        self.quality_bias = quality_bias
        self.narrow = narrow
        self.warnings = warnings
        self.router_fingerprint = router.fingerprint
        self._thread = ThreadPoolExecutor(1, "podium-router")

    @property
    def fingerprint(self) -> str:
        """Changes with anything that shapes its decisions."""
        return f"{self.router_fingerprint}:{self.confidence:g}:{self.quality_bias:g}"

    def fit_to(
        self,
        pool: Pool,
        *,
        trained_for: Pool | None = None,
        label: str = "the router of `mini`",
        narrow_hint: str = "TierRouter(…, narrow=True)",
    ) -> TierRouter:
        """Return the router for that pool; `ConfigError` where it was trained with another.

        `trained_for` is the pool to compare with, where workers were left out of it on purpose.
        """
        changes = self.router.changes(trained_for or pool)
        if not changes:
            return self
        problem = f"{label} was trained with another pool: {'; '.join(changes)}"
        if not any(map(self.router.knows, pool)):
            raise ConfigError(f"{problem}; train it again with podium train router")
        if not self.narrow:
            raise ConfigError(
                f"{problem}; train it again with podium train router, put the pool back, or have "
                f"it choose among those that both have by {narrow_hint}"
            )
        return TierRouter(
            self.router,
            confidence=self.confidence,
            quality_bias=self.quality_bias,
            narrow=True,
            warnings=(*self.warnings, f"{problem}; it chooses among those that both have"),
        )

    async def warm_up(self, pool: Pool) -> None:
        """Decide once, so that the first question does not wait for the router to load."""
        known = tuple(replace(item, fallback=None) for item in pool if self.router.knows(item))
        if known:
            await self.decide("Are you ready?", Pool(known), None)

    async def decide(self, question: str, pool: Pool, quality_bias: float | None) -> RoutingRecord:
        """Choose a worker of that pool, or escalate to the conductor."""
        bias = self.quality_bias if quality_bias is None else quality_bias
        decision = await asyncio.get_running_loop().run_in_executor(
            self._thread, self.router.decide, question, pool, bias, self.confidence
        )
        return RoutingRecord(
            worker=decision.worker,
            confidence=decision.confidence,
            scores=dict(decision.scores),
            quality_bias=bias,
            router=self.router_fingerprint,
            min_confidence=self.confidence if bias > 0 else 0.0,
            # Not "less than": a confidence of NaN escalates too.
            escalated=bias > 0 and not decision.confidence >= self.confidence,
        )


class _WrappingConductor(Conductor):
    """A conductor that leaves planning to the configured one."""

    def __init__(self, configured: Conductor) -> None:
        self._configured = configured
        self.worker = configured.worker
        self.prompt_hash = configured.prompt_hash


class LearnedRouterConductor(_WrappingConductor):
    """Gives the question to the worker that a learned router chose.

    The configured conductor plans where the router is not confident, or where its worker failed.
    """

    def __init__(self, router: TierRouter, configured: Conductor) -> None:
        super().__init__(configured)
        self._router = router
        self.name = tier_conductor_name("mini", configured.name, has_router=True)

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan one step for the router's choice; accept that worker's answer."""
        if context.rounds:
            first = context.rounds[0].routing
            if context.answer is not None and not (first is not None and first.escalated):
                return Plan(None)
            return await self._configured.plan(context, call)
        capable = capable_workers(context)
        known = tuple(worker for worker in capable if self._router.router.knows(worker))
        if not known:
            return _plan_cheapest(context, capable, self._router.warnings)
        routing = await self._router.decide(context.question, Pool(known), context.quality_bias)
        if not routing.escalated:
            workflow = Workflow((Step(routing.worker, context.question),))
            return Plan(workflow, warnings=self._router.warnings, routing=routing)
        plan = await self._configured.plan(context, call)
        return replace(plan, warnings=(*self._router.warnings, *plan.warnings), routing=routing)


def _plan_cheapest(
    context: PlanningContext, capable: tuple[WorkerProfile, ...], warnings: tuple[str, ...]
) -> Plan:
    chosen = cheapest_capable(context)
    names = ", ".join(worker.name for worker in capable)
    warning = (
        f"the router was trained with none of those that can take this question ({names}); "
        f"{chosen}, the cheapest, is asked"
    )
    return Plan(Workflow((Step(chosen, context.question),)), warnings=(*warnings, warning))


UNUSED_BIAS: Final = (
    "the quality bias had no effect: this question is not simple by its words, so the conductor "
    "planned and no router was asked; the tier mini routes every question"
)


_PLAN_WITHOUT_MODEL: Final = (RulesConductor, RouterConductor, FixedConductor)
"""Conductors that ask no model: there is nothing to save, and they never plan twice."""


class AdaptiveConductor(_WrappingConductor):
    """Routes questions that are simple by their words, and leaves the rest to the conductor.

    A conductor that was trained to plan sees more than words do, and leaves a single question to
    one worker by itself, so it plans every question.
    """

    def __init__(self, configured: Conductor, router: TierRouter | None = None) -> None:
        super().__init__(configured)
        self.always_plans = configured.is_trained
        self._router = _mini_conductor(configured, router)
        self.name = tier_conductor_name("podium", configured.name)

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan with the router or the configured conductor; warn of an unused quality bias."""
        conductor = self.select_conductor(context.question)
        plan = await conductor.plan(context, call)
        if context.quality_bias is None or context.rounds or conductor is self._router:
            return plan
        return replace(plan, warnings=(*plan.warnings, UNUSED_BIAS))

    def select_conductor(self, question: str) -> Conductor:
        """Return the router or the configured conductor, by the question alone.

        So every round of a run has the same conductor.
        """
        routes = not self.always_plans and classify_question(question) == "simple"
        return self._router if routes else self._configured


LoadRouter = Callable[[], TierRouter | None]
"""Returns the learned router of a pool, if it has one; slow the first time."""


def conductor_for_tier(
    tier: Tier, configured: Conductor, load_router: LoadRouter = lambda: None
) -> Conductor:
    """Return the conductor of a tier, given the pool's conductor and its learned router."""
    if tier == "mini":
        return _mini_conductor(configured, load_router())
    if tier == "podium" and not isinstance(configured, _PLAN_WITHOUT_MODEL):
        return AdaptiveConductor(configured, load_router())
    return configured


def can_replan(
    tier: Tier, configured: Conductor, question: str, load_router: LoadRouter = lambda: None
) -> bool:
    """True if the conductor may plan again after seeing an answer.

    Where it cannot, the first answer is known to be the last one.
    """
    conductor = conductor_for_tier(tier, configured, load_router)
    if isinstance(conductor, AdaptiveConductor):
        conductor = conductor.select_conductor(question)
    if isinstance(conductor, LearnedRouterConductor):
        conductor = configured
    return not isinstance(conductor, _PLAN_WITHOUT_MODEL)


def _mini_conductor(configured: Conductor, router: TierRouter | None) -> Conductor:
    return RouterConductor() if router is None else LearnedRouterConductor(router, configured)
