"""Tiers: how much conducting a question gets, from the model name that a client asks for.

`mini` answers with the least latency (by a learned router, where there is one), `ultra` plans with
whatever conductor is configured, and `podium` decides between the two for each question: by its
words, unless the conductor was trained to decide that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Protocol

from podium.conductors.builtin import (
    FixedConductor,
    RouterConductor,
    RulesConductor,
    capable_workers,
    cheapest_capable,
    classify_question,
)
from podium.conductors.names import tier_conductor_name
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Tier
from podium.core.run_records import Routed
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow


class Decision(Protocol):
    """What a router decided: whom to ask, how sure it is from 0 to 1, and what it expects of each
    worker that it chose among."""

    @property
    def worker(self) -> str: ...  # noqa: D102

    @property
    def confidence(self) -> float: ...  # noqa: D102

    @property
    def scores(self) -> Mapping[str, float]: ...  # noqa: D102


class Router(Protocol):
    """What has learned to choose; `podium.routing.LearnedRouter` is one."""

    @property
    def fingerprint(self) -> str:
        """Which router it is: changes with its file."""
        ...

    def knows(self, worker: WorkerProfile) -> bool:
        """Whether it was trained with that worker."""
        ...

    def changes(self, pool: Pool) -> tuple[str, ...]:
        """How the pool differs from the one that it was trained with, a phrase each."""
        ...

    def decide(self, question: str, pool: Pool, quality_bias: float, confidence: float) -> Decision:
        """Choose one of the workers of that pool, all of which it knows: above a quality bias of 0
        one that it is at least so sure of, or else the one that it is most sure of."""
        ...


class TierRouter:
    """The router that serves the mini tier. It chooses among workers that it is at least
    `confidence` sure of, each for itself, and where there is none, the conductor plans; at a
    quality bias
    of 0, which is for the cheapest, neither holds. So a higher quality bias never means less.
    `quality_bias` is
    used where a question comes with none. With a pool that changed since training it is refused, or
    it chooses among the workers that both have, if it is `narrow`. `warnings` go to every run that
    it begins. `named` is the router's fingerprint, by which runs name it.

    Decisions are made in one thread: they are short, and on the event loop every other run would
    wait for them.
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
        self.named = router.fingerprint
        self._thread = ThreadPoolExecutor(1, "podium-router")

    @property
    def fingerprint(self) -> str:
        """Changes with all that shapes its decisions."""
        return f"{self.named}:{self.confidence:g}:{self.quality_bias:g}"

    def fitted_to(
        self,
        pool: Pool,
        *,
        trained_for: Pool | None = None,
        called: str = "the router of `mini`",
        narrowing: str = "Mini(…, narrow=True)",
    ) -> TierRouter:
        """This one for that pool, held against it, or against `trained_for` where some workers of
        that were left out on purpose. A `ConfigError` calls the router as it was `called`, and says
        what `narrowing` it takes."""
        changes = self.router.changes(trained_for or pool)
        if not changes:
            return self
        unfit = f"{called} was trained with another pool: {'; '.join(changes)}"
        if not any(map(self.router.knows, pool)):
            raise ConfigError(f"{unfit}; train it again with podium train router")
        if not self.narrow:
            raise ConfigError(
                f"{unfit}; train it again with podium train router, put the pool back, or have it "
                f"choose among those that both have by {narrowing}"
            )
        return TierRouter(
            self.router,
            confidence=self.confidence,
            quality_bias=self.quality_bias,
            narrow=True,
            warnings=(*self.warnings, f"{unfit}; it chooses among those that both have"),
        )

    async def warm_up(self, pool: Pool) -> None:
        """Decide once, so that all is loaded that deciding needs and no question waits for it."""
        known = tuple(replace(each, fallback=None) for each in pool if self.router.knows(each))
        if known:
            await self.decide("Are you ready?", Pool(known), None)

    async def decide(self, question: str, pool: Pool, quality_bias: float | None) -> Routed:
        """Whom of that pool to ask, and whether that is sure enough to go by."""
        quality_bias = self.quality_bias if quality_bias is None else quality_bias
        decision = await asyncio.get_running_loop().run_in_executor(
            self._thread, self.router.decide, question, pool, quality_bias, self.confidence
        )
        return Routed(
            worker=decision.worker,
            confidence=decision.confidence,
            scores=dict(decision.scores),
            quality_bias=quality_bias,
            router=self.named,
            needed=self.confidence if quality_bias > 0 else 0.0,
            # Not "less than": a confidence that is no number is none.
            passed_on=quality_bias > 0 and not decision.confidence >= self.confidence,
        )


class LearnedRouterConductor:
    """Has the router choose, and the configured conductor plan where the router is not sure, or
    where whom it chose gave no answer."""

    def __init__(self, mini: TierRouter, configured: Conductor) -> None:
        self._mini = mini
        self._configured = configured
        self.name = tier_conductor_name("mini", configured.name, routed=True)

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """One step for whom the router chose; once there is an answer of that one, acceptance."""
        if context.rounds:
            first = context.rounds[0].routed
            if context.answer is not None and not (first is not None and first.passed_on):
                return Plan(None)
            return await self._configured.plan(context, call)
        able = capable_workers(context)
        known = tuple(worker for worker in able if self._mini.router.knows(worker))
        if not known:
            return _unrouted(context, able, self._mini.warnings)
        routed = await self._mini.decide(context.question, Pool(known), context.quality_bias)
        if not routed.passed_on:
            workflow = Workflow((Step(routed.worker, context.question),))
            return Plan(workflow, warnings=self._mini.warnings, routed=routed)
        plan = await self._configured.plan(context, call)
        return replace(plan, warnings=(*self._mini.warnings, *plan.warnings), routed=routed)

    @property
    def worker(self) -> Worker | None:
        """The worker that plans where the router is not sure, if one does."""
        worker: Worker | None = getattr(self._configured, "worker", None)
        return worker

    @property
    def prompt_hash(self) -> str:
        """The fingerprint of the configured conductor's prompts, where it has any."""
        return str(getattr(self._configured, "prompt_hash", ""))


def _unrouted(
    context: PlanningContext, able: tuple[WorkerProfile, ...], warnings: tuple[str, ...]
) -> Plan:
    """The plan where the router knows none of those that can take the question."""
    chosen = cheapest_capable(context)
    names = ", ".join(worker.name for worker in able)
    warning = (
        f"the router was trained with none of those that can take this question ({names}); "
        f"{chosen}, the cheapest, is asked"
    )
    return Plan(Workflow((Step(chosen, context.question),)), warnings=(*warnings, warning))


UNHEEDED: Final = (
    "the quality bias had no effect: this question is not simple by its words, so the conductor "
    "planned "
    "and no router was asked; the tier mini routes every question"
)


def conductor_for_tier(
    tier: Tier, configured: Conductor, mini: TierRouter | None = None
) -> Conductor:
    """The conductor that serves a tier, where `configured` is the one set up for this pool and
    `mini` the router that was trained for it, if one was."""
    if tier == "mini":
        return _least_latency(configured, mini)
    if tier == "podium":
        return AdaptiveConductor(configured, mini)
    return configured


def _least_latency(configured: Conductor, mini: TierRouter | None) -> Conductor:
    return RouterConductor() if mini is None else LearnedRouterConductor(mini, configured)


def can_replan(
    tier: Tier, configured: Conductor, question: str, mini: TierRouter | None = None
) -> bool:
    """Whether who leads may plan again after seeing an answer. Where nobody does, the first answer
    is known to be the last one. What a learned router is not sure of, the conductor may."""
    leading = conductor_for_tier(tier, configured, mini)
    if isinstance(leading, AdaptiveConductor):
        leading = leading.select_conductor(question)
    if isinstance(leading, LearnedRouterConductor):
        leading = configured
    return not isinstance(leading, RulesConductor | RouterConductor | FixedConductor)


class AdaptiveConductor:
    """Routes what is simple by its words, and has the rest conducted.

    A conductor that was trained to plan sees more than words do: which questions have several
    parts, and who of a pool of specialists can take one that has not. It leaves a single question
    to one worker by itself, so it is asked every time.
    """

    def __init__(self, configured: Conductor, mini: TierRouter | None = None) -> None:
        self._configured = configured
        self.always_conducts = bool(getattr(configured, "is_trained", False))
        self._router = _least_latency(configured, mini)
        self.name = tier_conductor_name("podium", configured.name)

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Leave the question to the router or to the configured conductor. A quality bias that is
        not heeded, for the question is not simple, is a warning on the first round."""
        leading = self.select_conductor(context.question)
        plan = await leading.plan(context, call)
        if context.quality_bias is None or context.rounds or leading is self._router:
            return plan
        return replace(plan, warnings=(*plan.warnings, UNHEEDED))

    def select_conductor(self, question: str) -> Conductor:
        """The router, or the configured conductor. It depends on the question alone, so every
        round of a run goes the same way."""
        routes = not self.always_conducts and classify_question(question) == "simple"
        return self._router if routes else self._configured

    @property
    def worker(self) -> Worker | None:
        """The worker that plans for the configured conductor, where one does."""
        worker: Worker | None = getattr(self._configured, "worker", None)
        return worker

    @property
    def prompt_hash(self) -> str:
        """The fingerprint of the configured conductor's prompts, where it has any."""
        return str(getattr(self._configured, "prompt_hash", ""))
