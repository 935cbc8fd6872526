"""Requests for a tier: each becomes a run, resumes one that waits for tool results, or repeats
one by its idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from podium._util.process import this_process
from podium.client.client import AsyncPodium
from podium.client.runtime import RunOptions, Runtime
from podium.conductors import can_replan
from podium.conductors.plan import read_workflow
from podium.core.budget import Budget
from podium.core.errors import Conflict, NotFound, PodiumError, RunTakenOver
from podium.core.run import Run, Tier, new_run_id, recorded_spending, timestamp
from podium.engine.tool_calls import are_repeated
from podium.server.access import Principal
from podium.server.answers.conversation import Turn, continue_run, limits_for_effort, parse_turn
from podium.server.answers.result import (
    ApiResult,
    EventFilter,
    StreamSink,
    build_result,
    is_already_answered,
)
from podium.server.api_error import ApiError, api_error_boundary, invalid
from podium.server.dialects.request import ApiRequest, IdempotencyKey, check_exclude
from podium.server.logs import LOGGER
from podium.server.records.metrics import RequestCost
from podium.server.records.repository import RunRepository
from podium.store import IdempotentRequest

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"

FIRST_POLL_SECONDS: Final = 0.02
MAX_POLL_SECONDS: Final = 1.0
"""Interval between looks at a run of another process; it doubles up to the maximum."""


class Tiers:
    """Answers requests with runs of one Podium."""

    def __init__(self, podium: AsyncPodium, repository: RunRepository, runtime: Runtime) -> None:
        self._podium = podium
        self._repository = repository
        self._assembly = runtime.assembly
        self._options = runtime.options
        self._excludable = runtime.excludable_names
        self._router = runtime.assembly.router()

    async def answer(
        self,
        request: ApiRequest,
        principal: Principal,
        tier: Tier,
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """Answer with a run; raises `ApiError`. `cost` is filled in whatever happens."""
        events = EventFilter(
            sink,
            on_unstored=None if request.store else self._repository.keeper.do_not_store,
            on_stored=principal.quota.attach_run if request.store else None,
            broadcast=self._repository.broadcast,
        )
        before: Run | None = None
        try:
            with api_error_boundary():
                turn = await self._read_turn(request, principal)
                turn, before = await self._find_waiting_run(turn, principal)
                try:
                    if before is not None:
                        run = await self._resume_waiting(
                            before, turn, request, principal, events, sink
                        )
                    elif request.idempotency_key is None:
                        options = self.run_options(request, turn, principal, tier)
                        options["emit"], options["stream"] = events, sink is not None
                        run = await self._start(request, turn, principal, options)
                    else:
                        run = await self._run_once(
                            request, turn, principal, tier, events, cost, sink
                        )
                        return build_result(request, run)
                except RunTakenOver:
                    assert events.run is not None, "a run that was taken over had begun"
                    events.mute()
                    taken = await self._repository.keeper.load(events.run.id)
                    resume = self._resumer(principal, events, cost)
                    run = await wait_for_end(self._repository, taken, resume)
                    return build_result(request, run)
        finally:
            if events.run is not None and cost.run is None:
                cost.add_run(events.run, before)
        return build_result(request, run, cost)

    async def _resume_waiting(
        self,
        run: Run,
        turn: Turn,
        request: ApiRequest,
        principal: Principal,
        events: EventFilter,
        sink: StreamSink | None,
    ) -> Run:
        if is_already_answered(run, turn.results):
            if sink is not None:
                sink.open(run.id, stored=request.store)
            return run
        return await self._podium.resume(
            run,
            results=turn.results,
            response_options=request.response_options,
            budget=_remaining_budget(run, principal),
            account=principal.quota.account,
            emit=events,
            stream=sink is not None,
        )

    async def _run_once(
        self,
        request: ApiRequest,
        turn: Turn,
        principal: Principal,
        tier: Tier,
        events: EventFilter,
        cost: RequestCost,
        sink: StreamSink | None,
    ) -> Run:
        assert request.idempotency_key is not None, "only a request with a key runs once"
        options = self.run_options(request, turn, principal, tier)
        options["emit"], options["stream"] = events, sink is not None

        async def begin(run_id: str) -> Run:
            options["run_id"] = run_id
            return await self._start(request, turn, principal, options)

        def follow(run_id: str) -> None:
            events.mute()
            if sink is not None:
                sink.open(run_id, stored=True)

        return await run_once(
            self._repository,
            request.idempotency_key,
            principal.key_id,
            begin=begin,
            resume=self._resumer(principal, events, cost),
            follow=follow,
        )

    def _resumer(
        self, principal: Principal, events: EventFilter, cost: RequestCost
    ) -> Callable[[Run], Awaitable[Run]]:
        """Return a function that resumes an interrupted run at the expense of the principal."""

        async def resume(run: Run) -> Run:
            try:
                return await self._podium.resume(
                    run,
                    budget=_remaining_budget(run, principal),
                    account=principal.quota.account,
                    emit=events,
                )
            finally:
                if events.run is not None:
                    cost.add_run(events.run, run)

        return resume

    async def prepare_plan(
        self, request: ApiRequest, principal: Principal, tier: Tier
    ) -> tuple[Turn, RunOptions]:
        """Return the question to plan for and the options of its run."""
        turn = await self._read_turn(request, principal)
        if turn.waiting:
            raise invalid("messages", "tool results resume a run; send a question to plan")
        return turn, self.run_options(request, turn, principal, tier)

    async def _read_turn(self, request: ApiRequest, principal: Principal) -> Turn:
        """Read the conversation, with the stored part before it."""
        turn = parse_turn(request.messages)
        if request.previous_run is None or turn.waiting:
            return turn
        run = await self._repository.run(request.previous_run, principal, "previous_response_id")
        if run.status == "waiting":
            raise invalid(
                "previous_response_id",
                f"{request.previous_run} waits for the results of {len(run.waiting_for)} tool "
                f"calls; send them",
            )
        return continue_run(run, turn)

    async def _find_waiting_run(self, turn: Turn, principal: Principal) -> tuple[Turn, Run | None]:
        """Find the run that waits for the turn's tool results.

        If it is gone or has ended without them, text beside the results is a question like any
        other, so that the conversation can continue.
        """
        if not turn.waiting:
            return turn, None
        try:
            return turn, await self._load_waiting_run(turn, principal)
        except ApiError as error:
            if error.reason == "forbidden" or turn.fallback is None:
                raise
            return turn.fallback, None

    async def _load_waiting_run(self, turn: Turn, principal: Principal) -> Run:
        run = await self._repository.run(turn.waiting, principal, "messages")
        if run.owner != principal.key_id:
            raise ApiError("forbidden", "this run belongs to another API key", field="messages")
        if run.status not in ("waiting", "running") and not are_repeated(run, turn.results):
            raise ApiError(
                "conflict",
                f"{run.id} does not wait for tool results: its status is {run.status}",
                field="messages",
            )
        return run

    async def _start(
        self, request: ApiRequest, turn: Turn, principal: Principal, options: RunOptions
    ) -> Run:
        if request.params.workflow is None:
            return await self._podium.ask(turn.question, **options)
        pool = self._assembly.pool
        workflow = read_workflow(request.params.workflow, pool)
        principal.check_workflow(
            {step.worker: pool[step.worker].provider for step in workflow.steps}
        )
        if request.params.max_steps is None:  # the effort limits planning only
            options["max_steps"] = self._options.max_steps
        return await self._podium.run(workflow, turn.question, **options)

    def run_options(
        self, request: ApiRequest, turn: Turn, principal: Principal, tier: Tier
    ) -> RunOptions:
        """Combine the settings, the request's `podium` object and the key's rules."""
        params = request.params
        replans = can_replan(tier, self._assembly.conductor, turn.question, self._router)
        limits = limits_for_effort(
            request.response_options.effort, self._options, can_replan=replans
        )
        allowed = self._options.narrowed(
            max_steps=params.max_steps, rounds=params.rounds, caps=params.budget
        )
        return RunOptions(
            history=turn.history,
            images=turn.images,
            response_options=request.response_options,
            owner=principal.key_id,
            tier=tier,
            max_steps=limits.max_steps if params.max_steps is None else allowed.max_steps,
            rounds=limits.rounds if params.rounds is None else allowed.rounds,
            budget=principal.quota.narrow(allowed.budget),
            account=principal.quota.account,
            exclude=check_exclude(params.exclude, self._excludable)
            | (principal.exclude & self._excludable),
            quality_bias=params.quality_bias,
        )


def _remaining_budget(run: Run, principal: Principal) -> Budget:
    """Return the run's budget, lowered to what it has spent plus what its key has left."""
    spent = recorded_spending(run)
    left = principal.quota.narrow(run.budget)
    caps = {}
    for name in ("calls", "tokens", "usd", "seconds"):
        own, allowed = getattr(run.budget, name), getattr(left, name)
        if allowed is not None and allowed != own:
            caps[name] = allowed + getattr(spent, name)
    return run.budget.narrowed(caps)


async def run_once(
    repository: RunRepository,
    key: IdempotencyKey,
    owner: str,
    *,
    begin: Callable[[str], Awaitable[Run]],
    resume: Callable[[Run], Awaitable[Run]],
    follow: Callable[[str], None],
) -> Run:
    """Return the one run of a request, however often and to whichever server it is sent.

    The first request `begin`s the run under a new id. A repeated one `follow`s that run to its end,
    and `resume`s it if it was interrupted.
    """
    request = IdempotentRequest(
        owner=owner,
        key=key.name,
        digest=key.digest,
        run_id=new_run_id(),
        process=this_process(),
        created_at=timestamp(),
    )
    registered = await _register(repository, request)
    if registered.run_id == request.run_id:
        return await _begin(repository, registered, begin)
    follow(registered.run_id)
    wait = FIRST_POLL_SECONDS
    while True:
        run = await _load(repository, registered.run_id)
        if run is not None:
            return await wait_for_end(repository, run, resume)
        registered = await _register(repository, request)
        own = registered if registered.run_id == request.run_id else None
        if own is None and registered.run_id not in repository.beginning:
            own = await repository.keeper.idempotency.take_over(registered, request.process)
        if own is not None:
            return await _begin(repository, own, begin)
        await asyncio.sleep(wait)
        wait = min(2 * wait, MAX_POLL_SECONDS)


async def wait_for_end(
    repository: RunRepository, run: Run, resume: Callable[[Run], Awaitable[Run]]
) -> Run:
    """Wait until the run has ended in whichever process; resume it if no process executes it."""
    wait = FIRST_POLL_SECONDS
    while run.status in ("running", "interrupted"):
        if not await repository.is_claimed(run):
            try:
                return await resume(run)
            except Conflict:  # another process was faster
                wait = FIRST_POLL_SECONDS
        await asyncio.sleep(wait)
        wait = min(2 * wait, MAX_POLL_SECONDS)
        run = await repository.keeper.load(run.id)
    return run


async def _register(repository: RunRepository, request: IdempotentRequest) -> IdempotentRequest:
    registered = await repository.keeper.idempotency.register(request)
    if registered.digest != request.digest:
        raise ApiError(
            "conflict",
            f"{IDEMPOTENCY_HEADER} {request.key[:80]!r} was used with a different body in the "
            f"last 24 hours; use a new key",
            field=IDEMPOTENCY_HEADER,
        )
    return registered


async def _begin(
    repository: RunRepository, request: IdempotentRequest, begin: Callable[[str], Awaitable[Run]]
) -> Run:
    """Begin the run; a request refused before its run began frees its key."""
    repository.beginning.add(request.run_id)
    try:
        return await begin(request.run_id)
    except RunTakenOver:
        raise
    except BaseException:
        await _remove_without_run(repository, request)
        raise
    finally:
        repository.beginning.discard(request.run_id)


async def _remove_without_run(repository: RunRepository, request: IdempotentRequest) -> None:
    try:
        if await _load(repository, request.run_id) is None:
            await repository.keeper.idempotency.remove(request)
    except PodiumError as error:
        LOGGER.warning("cannot remove the idempotency key of a request without a run: %s", error)


async def _load(repository: RunRepository, run_id: str) -> Run | None:
    try:
        return await repository.keeper.load(run_id)
    except NotFound:
        return None
