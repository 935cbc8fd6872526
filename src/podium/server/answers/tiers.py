"""How a tier answers, whoever asks and in whichever dialect: a body as it was read and a visitor
in, a run and what the client gets to know of it out. A worker by its own name is `gateway`."""

from __future__ import annotations

from functools import partial

from podium.client.client import AsyncPodium
from podium.client.runtime import RunOptions
from podium.conductors import Conductor, TierRouter, can_replan
from podium.conductors.plan import read_workflow
from podium.core.budget import Budget
from podium.core.errors import TakenOver
from podium.core.pool import Pool
from podium.core.run import Run, Tier, spent_by
from podium.engine.resume import repeats
from podium.engine.runner import Options
from podium.server.access import Principal
from podium.server.answers.conversation import Turn, after, extent, turn_of
from podium.server.answers.idempotency import Acts, ended, once
from podium.server.answers.result import (
    ApiResult,
    EventFilter,
    StreamSink,
    answered,
    repeated,
    stands,
)
from podium.server.api_error import ApiError, invalid, refusals
from podium.server.dialects.base import ApiRequest
from podium.server.dialects.podium_params import excluded
from podium.server.records.metrics import RequestCost
from podium.server.records.repository import RunRepository


class Tiers:
    """Answers with the runs of one Podium."""

    def __init__(
        self,
        podium: AsyncPodium,
        archive: RunRepository,
        *,
        pool: Pool,
        conductor: Conductor,
        options: Options,
        excludable: frozenset[str],
        mini: TierRouter | None = None,
    ) -> None:
        self._podium = podium
        self._archive = archive
        self._pool = pool
        self._conductor = conductor
        self._options = options
        self._excludable = excludable
        self._mini = mini

    async def answer(
        self,
        asked: ApiRequest,
        principal: Principal,
        tier: Tier,
        bill: RequestCost,
        teller: StreamSink | None = None,
    ) -> ApiResult:
        """Answer with a run; raises `ApiError`. `bill` is filled in however it ends."""
        watch = EventFilter(
            teller,
            begun=None if asked.store else self._archive.keeper.do_not_store,
            performs=principal.quota.attach_run if asked.store else None,
            broadcast=self._archive.broadcast,
        )
        before: Run | None = None
        try:
            with refusals():
                turn, before = await self._taken_up(await self._turn(asked, principal), principal)
                try:
                    if before is None:
                        wishes = self.wishes(asked, turn, principal, tier)
                        wishes["emit"], wishes["stream"] = watch, teller is not None
                        if asked.named is not None:
                            return await self._once(
                                asked, turn, principal, wishes, watch, bill, teller
                            )
                        run = await self._performed(asked, turn, principal, wishes)
                    elif stands(before, turn.results):
                        run = _again(before, asked, teller)
                    else:
                        run = await self._podium.resume(
                            before,
                            results=turn.results,
                            response_options=asked.response_options,
                            budget=self._budget_to_go_on(before, principal),
                            account=principal.quota.account,
                            emit=watch,
                            stream=teller is not None,
                        )
                except TakenOver:
                    return await self._ended_elsewhere(asked, principal, watch, bill)
        finally:
            if watch.run is not None and bill.run is None:
                bill.add_run(watch.run, before)
        return answered(asked, run, bill)

    async def _ended_elsewhere(
        self, asked: ApiRequest, principal: Principal, watch: EventFilter, bill: RequestCost
    ) -> ApiResult:
        """Answer with what comes of a run that another process has taken over."""
        assert watch.run is not None, "what was taken over had begun"
        watch.fall_silent()
        run = await self._archive.keeper.load(watch.run.id)
        go_on = partial(self._go_on, principal, watch, bill)
        return repeated(asked, await ended(self._archive, run, go_on))

    async def _go_on(
        self, principal: Principal, watch: EventFilter, bill: RequestCost, run: Run
    ) -> Run:
        """Go on with a run that was cut off, at the charge of whoever asks for it now."""
        try:
            return await self._podium.resume(
                run,
                budget=self._budget_to_go_on(run, principal),
                account=principal.quota.account,
                emit=watch,
            )
        finally:
            if watch.run is not None:
                bill.add_run(watch.run, run)

    async def _once(
        self,
        asked: ApiRequest,
        turn: Turn,
        principal: Principal,
        wishes: RunOptions,
        watch: EventFilter,
        bill: RequestCost,
        teller: StreamSink | None,
    ) -> ApiResult:
        """Answer a request that may have been sent before: with the one run that it began."""
        assert asked.named is not None, "only a named request is answered so"

        async def begin(run_id: str) -> Run:
            wishes["run_id"] = run_id
            return await self._performed(asked, turn, principal, wishes)

        def follow(run_id: str) -> None:
            watch.fall_silent()
            if teller is not None:
                teller.opened(run_id, kept=True)

        go_on = partial(self._go_on, principal, watch, bill)
        acts = Acts(begin=begin, go_on=go_on, follow=follow)
        run = await once(self._archive, asked.named, principal.key_id, acts)
        return repeated(asked, run)

    async def to_plan(
        self, asked: ApiRequest, principal: Principal, tier: Tier
    ) -> tuple[Turn, RunOptions]:
        """The question to plan for, and what the run would have."""
        turn = await self._turn(asked, principal)
        if turn.waiting:
            raise invalid("messages", "results of tools go on with a run; ask a question to plan")
        return turn, self.wishes(asked, turn, principal, tier)

    async def _turn(self, asked: ApiRequest, principal: Principal) -> Turn:
        """The conversation, with what the server keeps of it before."""
        turn = turn_of(asked.messages)
        if asked.previous is None or turn.waiting:
            return turn
        run = await self._archive.run(asked.previous, principal, "previous_response_id")
        if run.status == "waiting":
            raise invalid(
                "previous_response_id",
                f"{asked.previous} waits for the results of {len(run.waiting_for)} tool calls; "
                f"send those",
            )
        return after(run, turn)

    async def _taken_up(self, turn: Turn, principal: Principal) -> tuple[Turn, Run | None]:
        """The turn, and the run that waits for its results. Where that run is gone or has ended
        without these and the client said something besides, that is a question like any other: a
        conversation need not end because one run of it did."""
        if not turn.waiting:
            return turn, None
        try:
            return turn, await self._waiting(turn, principal)
        except ApiError as refusal:
            if refusal.reason == "forbidden" or turn.afresh is None:
                raise
            return turn.afresh, None

    async def _waiting(self, turn: Turn, principal: Principal) -> Run:
        """The run that waits for these results, or was given them before and then cut off; only
        whoever began it may go on with it. Whether somebody is at work on it now shows when it is
        taken up."""
        run = await self._archive.run(turn.waiting, principal, "messages")
        if run.owner != principal.key_id:
            raise ApiError("forbidden", "this run was begun with another key", field="messages")
        if run.status not in ("waiting", "running") and not repeats(run, turn.results):
            raise ApiError(
                "conflict",
                f"{run.id} does not wait for results of tools: it is {run.status}",
                field="messages",
            )
        return run

    def _budget_to_go_on(self, run: Run, principal: Principal) -> Budget:
        """The run's budget or, where that is less, what it has spent and what its key has left."""
        spent = spent_by(run)
        left = principal.quota.narrow(run.budget)
        caps = {}
        for name in ("calls", "tokens", "usd", "seconds"):
            own, allowed = getattr(run.budget, name), getattr(left, name)
            if allowed is not None and allowed != own:
                caps[name] = allowed + getattr(spent, name)
        return run.budget.narrowed(caps)

    async def _performed(
        self, asked: ApiRequest, turn: Turn, principal: Principal, wishes: RunOptions
    ) -> Run:
        if asked.wished.workflow is None:
            return await self._podium.ask(turn.question, **wishes)
        workflow = read_workflow(asked.wished.workflow, self._pool)
        named = {step.worker: self._pool[step.worker].provider for step in workflow.steps}
        principal.check_workflow(named)
        if asked.wished.max_steps is None:  # an effort is for who plans
            wishes["max_steps"] = self._options.max_steps
        return await self._podium.run(workflow, turn.question, **wishes)

    def wishes(self, asked: ApiRequest, turn: Turn, principal: Principal, tier: Tier) -> RunOptions:
        """What the run is to have: the settings' usual, the client's wishes, the key's rules."""
        wished = asked.wished
        steps, rounds = extent(
            asked.response_options.effort,
            self._options,
            may_plan_again=can_replan(tier, self._conductor, turn.question, self._mini),
        )
        allowed = self._options.narrowed(
            max_steps=wished.max_steps, rounds=wished.rounds, caps=wished.budget
        )
        return RunOptions(
            history=turn.history,
            images=turn.images,
            response_options=asked.response_options,
            owner=principal.key_id,
            tier=tier,
            max_steps=steps if wished.max_steps is None else allowed.max_steps,
            rounds=rounds if wished.rounds is None else allowed.rounds,
            budget=principal.quota.narrow(allowed.budget),
            account=principal.quota.account,
            exclude=excluded(wished.exclude, self._excludable)
            | (principal.exclude & self._excludable),
            quality_bias=wished.quality_bias,
        )


def _again(run: Run, asked: ApiRequest, teller: StreamSink | None) -> Run:
    """The run whose answer the client did not get, for telling it once more."""
    if teller is not None:
        teller.opened(run.id, kept=asked.store)
    return run
