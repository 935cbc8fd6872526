"""How a tier answers, whoever asks and in whichever dialect: a body as it was read and a principal
in, a run and what the client gets to know of it out. A worker by its own name is `gateway`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from podium._util.process import this_process
from podium.client.client import AsyncPodium
from podium.client.runtime import RunOptions
from podium.conductors import Conductor, TierRouter, can_replan
from podium.conductors.plan import read_workflow
from podium.core.budget import Budget
from podium.core.errors import Conflict, NotFound, PodiumError, RunTakenOver
from podium.core.pool import Pool
from podium.core.run import Run, Tier, new_run_id, recorded_spending, timestamp
from podium.engine.runner import Options
from podium.engine.tool_calls import are_repeated
from podium.server.access import Principal
from podium.server.answers.conversation import Turn, continue_run, limits_for_effort, parse_turn
from podium.server.answers.result import (
    ApiResult,
    EventFilter,
    StreamSink,
    build_repeated_result,
    build_result,
    is_already_answered,
)
from podium.server.api_error import ApiError, api_error_boundary, invalid
from podium.server.dialects.request import ApiRequest, IdempotencyKey, check_exclude
from podium.server.logs import LOGGER
from podium.server.records.metrics import RequestCost
from podium.server.records.repository import RunRepository
from podium.store import IdempotentRequest

HEADER: Final = "Idempotency-Key"

FIRST_WAIT: Final = 0.02
LONGEST_WAIT: Final = 1.0
"""Seconds until a run that goes on elsewhere is looked at again; twice as long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """What can be done about a named request: its run `begin`s with that id, it can `go_on`, and
    somebody who sent it again is to `follow` the run with that id."""

    begin: Callable[[str], Awaitable[Run]]
    go_on: Callable[[Run], Awaitable[Run]]
    follow: Callable[[str], None]


async def run_once(archive: RunRepository, named: IdempotencyKey, owner: str, acts: Acts) -> Run:
    """The run of that request, as it ended."""
    request = IdempotentRequest(
        owner=owner,
        key=named.name,
        digest=named.digest,
        run_id=new_run_id(),
        process=this_process(),
        created_at=timestamp(),
    )
    found = await _given(archive, request)
    if found.run_id == request.run_id:
        return await _begun(archive, found, acts)
    acts.follow(found.run_id)
    wait = FIRST_WAIT
    while True:
        run = await _on_record(archive, found.run_id)
        if run is not None:
            return await wait_for_end(archive, run, acts.go_on)
        found = await _given(archive, request)
        mine = found if found.run_id == request.run_id else None
        if mine is None and found.run_id not in archive.beginning:
            mine = await archive.keeper.idempotency.take_over(found, request.process)
        if mine is not None:
            return await _begun(archive, mine, acts)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


async def wait_for_end(
    archive: RunRepository, run: Run, go_on: Callable[[Run], Awaitable[Run]]
) -> Run:
    """The run as it ended, wherever it is performed; it is gone on with where it was cut off."""
    wait = FIRST_WAIT
    while run.status in ("running", "interrupted"):
        if not await archive.is_claimed(run):
            try:
                return await go_on(run)
            except Conflict:  # somebody else was quicker, or has taken it over meanwhile
                wait = FIRST_WAIT
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
        run = await archive.keeper.load(run.id)
    return run


async def _given(archive: RunRepository, request: IdempotentRequest) -> IdempotentRequest:
    """The request that has this name; refused where that is another one."""
    found = await archive.keeper.idempotency.register(request)
    if found.digest != request.digest:
        raise ApiError(
            "conflict",
            f"the {HEADER} {request.key[:80]!r} was sent with another body, less than a day ago; "
            f"send another key with this one",
            field=HEADER,
        )
    return found


async def _begun(archive: RunRepository, request: IdempotentRequest, acts: Acts) -> Run:
    """Have the run performed. What was refused before it began has no name."""
    archive.beginning.add(request.run_id)
    try:
        return await acts.begin(request.run_id)
    except RunTakenOver:
        raise
    except BaseException:
        await _dropped_without_run(archive, request)
        raise
    finally:
        archive.beginning.discard(request.run_id)


async def _dropped_without_run(archive: RunRepository, request: IdempotentRequest) -> None:
    try:
        if await _on_record(archive, request.run_id) is None:
            await archive.keeper.idempotency.remove(request)
    except PodiumError as error:
        LOGGER.warning("the name of a request without a run could not be dropped: %s", error)


async def _on_record(archive: RunRepository, run_id: str) -> Run | None:
    try:
        return await archive.keeper.load(run_id)
    except NotFound:
        return None


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
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """Answer with a run; raises `ApiError`. `cost` is filled in however it ends."""
        watch = EventFilter(
            sink,
            begun=None if asked.store else self._archive.keeper.do_not_store,
            performs=principal.quota.attach_run if asked.store else None,
            broadcast=self._archive.broadcast,
        )
        before: Run | None = None
        try:
            with api_error_boundary():
                turn, before = await self._taken_up(await self._turn(asked, principal), principal)
                try:
                    if before is None:
                        wishes = self.wishes(asked, turn, principal, tier)
                        wishes["emit"], wishes["stream"] = watch, sink is not None
                        if asked.named is not None:
                            return await self._once(
                                asked, turn, principal, wishes, watch, cost, sink
                            )
                        run = await self._performed(asked, turn, principal, wishes)
                    elif is_already_answered(before, turn.results):
                        run = _again(before, asked, sink)
                    else:
                        run = await self._podium.resume(
                            before,
                            results=turn.results,
                            response_options=asked.response_options,
                            budget=self._budget_to_go_on(before, principal),
                            account=principal.quota.account,
                            emit=watch,
                            stream=sink is not None,
                        )
                except RunTakenOver:
                    return await self._ended_elsewhere(asked, principal, watch, cost)
        finally:
            if watch.run is not None and cost.run is None:
                cost.add_run(watch.run, before)
        return build_result(asked, run, cost)

    async def _ended_elsewhere(
        self, asked: ApiRequest, principal: Principal, watch: EventFilter, cost: RequestCost
    ) -> ApiResult:
        """Answer with what comes of a run that another process has taken over."""
        assert watch.run is not None, "what was taken over had begun"
        watch.fall_silent()
        run = await self._archive.keeper.load(watch.run.id)
        go_on = partial(self._go_on, principal, watch, cost)
        return build_repeated_result(asked, await wait_for_end(self._archive, run, go_on))

    async def _go_on(
        self, principal: Principal, watch: EventFilter, cost: RequestCost, run: Run
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
                cost.add_run(watch.run, run)

    async def _once(
        self,
        asked: ApiRequest,
        turn: Turn,
        principal: Principal,
        wishes: RunOptions,
        watch: EventFilter,
        cost: RequestCost,
        sink: StreamSink | None,
    ) -> ApiResult:
        """Answer a request that may have been sent before: with the one run that it began."""
        assert asked.named is not None, "only a named request is answered so"

        async def begin(run_id: str) -> Run:
            wishes["run_id"] = run_id
            return await self._performed(asked, turn, principal, wishes)

        def follow(run_id: str) -> None:
            watch.fall_silent()
            if sink is not None:
                sink.opened(run_id, kept=True)

        go_on = partial(self._go_on, principal, watch, cost)
        acts = Acts(begin=begin, go_on=go_on, follow=follow)
        run = await run_once(self._archive, asked.named, principal.key_id, acts)
        return build_repeated_result(asked, run)

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
        turn = parse_turn(asked.messages)
        if asked.previous is None or turn.waiting:
            return turn
        run = await self._archive.run(asked.previous, principal, "previous_response_id")
        if run.status == "waiting":
            raise invalid(
                "previous_response_id",
                f"{asked.previous} waits for the results of {len(run.waiting_for)} tool calls; "
                f"send those",
            )
        return continue_run(run, turn)

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
        if run.status not in ("waiting", "running") and not are_repeated(run, turn.results):
            raise ApiError(
                "conflict",
                f"{run.id} does not wait for results of tools: it is {run.status}",
                field="messages",
            )
        return run

    def _budget_to_go_on(self, run: Run, principal: Principal) -> Budget:
        """The run's budget or, where that is less, what it has spent and what its key has left."""
        spent = recorded_spending(run)
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
        if asked.params.workflow is None:
            return await self._podium.ask(turn.question, **wishes)
        workflow = read_workflow(asked.params.workflow, self._pool)
        named = {step.worker: self._pool[step.worker].provider for step in workflow.steps}
        principal.check_workflow(named)
        if asked.params.max_steps is None:  # an effort is for who plans
            wishes["max_steps"] = self._options.max_steps
        return await self._podium.run(workflow, turn.question, **wishes)

    def wishes(self, asked: ApiRequest, turn: Turn, principal: Principal, tier: Tier) -> RunOptions:
        """What the run is to have: the settings' usual, the client's wishes, the key's rules."""
        params = asked.params
        steps, rounds = limits_for_effort(
            asked.response_options.effort,
            self._options,
            may_plan_again=can_replan(tier, self._conductor, turn.question, self._mini),
        )
        allowed = self._options.narrowed(
            max_steps=params.max_steps, rounds=params.rounds, caps=params.budget
        )
        return RunOptions(
            history=turn.history,
            images=turn.images,
            response_options=asked.response_options,
            owner=principal.key_id,
            tier=tier,
            max_steps=steps if params.max_steps is None else allowed.max_steps,
            rounds=rounds if params.rounds is None else allowed.rounds,
            budget=principal.quota.narrow(allowed.budget),
            account=principal.quota.account,
            exclude=check_exclude(params.exclude, self._excludable)
            | (principal.exclude & self._excludable),
            quality_bias=params.quality_bias,
        )


def _again(run: Run, asked: ApiRequest, sink: StreamSink | None) -> Run:
    """The run whose answer the client did not get, for telling it once more."""
    if sink is not None:
        sink.opened(run.id, kept=asked.store)
    return run
