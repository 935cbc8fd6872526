"""Requests for a tier: each becomes a run, continues one that waits for its tool results, or
repeats one by its idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from podium._util.process import this_process
from podium.client.client import AsyncPodium, Runtime
from podium.client.run_options import RunOptions
from podium.conductors import can_replan
from podium.conductors.plan import read_workflow
from podium.core.budget import NOTHING_SPENT, Budget, recorded_spending
from podium.core.errors import Conflict, NotFound, PodiumError, RunTakenOver
from podium.core.pool import can_see
from podium.core.request import Effort, Message, ToolResult
from podium.core.run import ClientRequest, Round, Run, Tier, new_run_id, timestamp
from podium.engine.runner import Options
from podium.server.access import Principal
from podium.server.access.policy import RequestCost
from podium.server.answers.conversation import (
    Conversation,
    Fingerprint,
    continues,
    find_continuation,
    response_id,
    split_conversation,
)
from podium.server.answers.result import (
    ApiResult,
    EventFilter,
    StoredResponses,
    StreamSink,
    build_result,
)
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.request import ApiRequest, IdempotencyKey, Rerun, check_exclude
from podium.server.logs import LOGGER
from podium.server.records.repository import RunRepository
from podium.store import IdempotentRequest

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"

FIRST_POLL_SECONDS: Final = 0.02
MAX_POLL_SECONDS: Final = 1.0
"""Interval between looks at a run of another process; it doubles up to the maximum."""


FIXED_BY_RUN: Final = ("max_steps", "rounds", "workflow", "quality_bias")
"""Fields of `podium` that cannot change when a stored run is run again."""


class PlanLimits(NamedTuple):
    """The most steps of a plan and the most rounds."""

    max_steps: int
    rounds: int


def limits_for_effort(
    effort: Effort | None, defaults: Options, can_replan: Callable[[], bool] = lambda: True
) -> PlanLimits:
    """Map a reasoning effort to limits: `none` and `minimal` one step, `low` two steps in one
    round, `high` one more round than the default. A conductor that cannot replan has one round."""
    match effort:
        case "none" | "minimal":
            steps, rounds = 1, 1
        case "low":
            steps, rounds = min(2, defaults.max_steps), 1
        case "high":
            steps, rounds = defaults.max_steps, max(2, defaults.rounds + 1)
        case _:
            steps, rounds = defaults.max_steps, defaults.rounds
    return PlanLimits(steps, rounds if rounds == 1 or can_replan() else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TierCall:
    """A request to a tier while it is answered. The run keeps `client_request`."""

    request: ApiRequest
    messages: tuple[Message, ...]
    principal: Principal
    tier: Tier
    client_request: ClientRequest
    events: EventFilter
    cost: RequestCost
    sink: StreamSink | None


async def _charge(call: _TierCall, work: Awaitable[Run], before: Run | None) -> Run:
    """Await the run; the cost of the call is what it added to `before`, even if it fails."""
    call.events.run = None
    try:
        return await work
    finally:
        if call.events.run is not None:
            call.cost.add_run(call.events.run, before)


class TierHandler:
    """Answers requests with runs of one Podium."""

    def __init__(
        self,
        podium: AsyncPodium,
        repository: RunRepository,
        responses: StoredResponses,
        runtime: Runtime,
    ) -> None:
        self._podium = podium
        self._repository = repository
        self._responses = responses
        self._assembly = runtime.assembly
        self._options = runtime.options
        self._excludable = runtime.excludable_names
        self._load_router = runtime.assembly.load_router

    async def answer(
        self,
        request: ApiRequest,
        principal: Principal,
        tier: Tier,
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """Answer with a run. `cost` is filled in whatever happens."""
        on_start = (
            principal.quota.attach_run if request.store else self._repository.store.do_not_store
        )
        events = EventFilter(
            sink,
            stored=request.store,
            on_start=on_start,
            broadcast=self._repository.broadcast,
        )
        messages = request.messages
        if request.previous_response is not None:
            messages = await self._responses.read_messages(request, principal)
        fingerprint = Fingerprint.of(request, messages, principal.key_id)
        stored_fields = (
            {} if request.stored_fields is None else self._responses.fields_to_keep(request)
        )
        call = _TierCall(
            request=request,
            messages=messages,
            principal=principal,
            tier=tier,
            client_request=ClientRequest(".".join(fingerprint), stored_fields),
            events=events,
            cost=cost,
            sink=sink,
        )
        is_own = request.idempotency_key is None
        try:
            run = await self._run(call)
        except RunTakenOver:
            run, is_own = await self._follow(call), False
        return build_result(request, run, cost if is_own else None)

    async def _run(self, call: _TierCall) -> Run:
        if call.request.params.rerun is not None:
            return await self._rerun(call, call.request.params.rerun)
        if call.request.idempotency_key is not None:
            return await self._ask_once(call, call.request.idempotency_key)
        return await self._continue(call) or await self._ask(call)

    async def _rerun(self, call: _TierCall, rerun: Rerun) -> Run:
        copy = await self._copy_to_rerun(rerun, call.request, call.principal, call.tier)
        return await self._resume(call, copy, stream=call.sink is not None)

    async def _continue(self, call: _TierCall) -> Run | None:
        """Resume the run that waits for these tool results; None where there is none to resume."""
        found = await self._find_waiting_run(call.request, call.messages, call.principal)
        if found is None:
            return None
        before, results = found
        try:
            return await self._resume(call, before, results, stream=call.sink is not None)
        except RunTakenOver:
            raise
        except Conflict:  # another request resumes it
            return None

    async def _ask_once(self, call: _TierCall, key: IdempotencyKey) -> Run:
        """Start the run of an idempotency key, or follow it to its end."""

        def follow(run_id: str) -> None:
            call.events.mute()
            if call.sink is not None:
                call.sink.open(run_id, stored=True)

        return await run_once(
            self._repository,
            key,
            call.principal.key_id,
            begin=lambda run_id: self._ask(call, run_id),
            resume=lambda run: self._resume(call, run),
            follow=follow,
        )

    async def _ask(self, call: _TierCall, run_id: str | None = None) -> Run:
        request, principal = call.request, call.principal
        conversation = split_conversation(call.messages)
        options = self.run_options(request, conversation, principal, call.tier)
        options |= {
            "emit": call.events,
            "stream": call.sink is not None,
            "request": call.client_request,
        }
        if run_id is not None:
            options["run_id"] = run_id
        return await _charge(call, self._start(request, conversation, principal, options), None)

    async def _resume(
        self,
        call: _TierCall,
        run: Run,
        results: tuple[ToolResult, ...] = (),
        *,
        stream: bool = False,
    ) -> Run:
        work = self._podium.resume(
            run,
            results=results,
            request=call.client_request,
            budget=_remaining_budget(run, call.principal),
            shared_budget=call.principal.quota.shared_budget,
            emit=call.events,
            stream=stream,
        )
        call.events.run_id = run.id
        return await _charge(call, work, run)

    async def _follow(self, call: _TierCall) -> Run:
        """Follow a run that another process took over to its end."""
        call.events.mute()
        taken = await self._repository.store.load(call.events.run_id)
        return await wait_for_end(self._repository, taken, lambda run: self._resume(call, run))

    async def prepare_plan(
        self, request: ApiRequest, principal: Principal, tier: Tier
    ) -> tuple[Conversation, RunOptions]:
        conversation = split_conversation(await self._responses.read_messages(request, principal))
        return conversation, self.run_options(request, conversation, principal, tier)

    async def _find_waiting_run(
        self, request: ApiRequest, messages: tuple[Message, ...], principal: Principal
    ) -> tuple[Run, tuple[ToolResult, ...]] | None:
        """Return the run that this request continues, with its tool results.

        None if there is no such run, or the client changed anything since it was sent the calls. A
        run that failed with these very results is tried again, and its finished steps are kept.
        """
        found = find_continuation(messages)
        if found is None or request.idempotency_key is not None:
            return None
        run = await self._repository.find(found.run_id) if found.run_id else None
        if run is None or run.owner != principal.key_id:
            return None
        if not self._excluded_by(principal) <= set(run.exclude):  # the key's rules changed
            return None
        if run.status in ("failed", "interrupted") and not run.blocked_by:
            whole = Fingerprint.of(request, messages, principal.key_id)
            return (run, ()) if run.request.fingerprint == ".".join(whole) else None
        if run.status != "waiting":
            return None
        fingerprint = Fingerprint.of(request, found.before, principal.key_id)
        if request.previous_response == response_id(run):  # its messages are the run's own
            is_same = run.request.fingerprint.startswith(f"{fingerprint.settings}.")
        else:
            is_same = run.request.fingerprint == ".".join(fingerprint)
        if (
            not is_same
            or not continues(run, found)
            or _another_worker_sees_more(run, found.results)
        ):
            return None
        return run, found.results

    async def _copy_to_rerun(
        self, rerun: Rerun, request: ApiRequest, principal: Principal, tier: Tier
    ) -> Run:
        """Store a copy of a run that is done up to where it is to be run again; the copy is charged
        for nothing of the original."""
        params = request.params
        refused = [name for name in FIXED_BY_RUN if getattr(params, name) is not None]
        if request.idempotency_key is not None or refused:
            other = f"podium.{refused[0]}" if refused else IDEMPOTENCY_HEADER
            raise invalid("podium.rerun", f"podium.rerun cannot be combined with {other}")
        run = await self._repository.run(rerun.run, principal, "podium.rerun")
        if await self._repository.is_claimed(run):
            raise ApiError("conflict", f"{run.id} is still running; run it again when it has ended")
        rounds = steps_kept_by_rerun(run, rerun)
        principal.check_workflow(
            {
                step.worker: run.pool[step.worker].provider
                for round_ in rounds
                if round_.workflow is not None
                for step in round_.workflow.steps
            }
        )
        exclude = check_exclude(params.exclude, self._excludable) | self._excluded_by(principal)
        exclude |= set(run.exclude)
        pool = run.pool.without(exclude)
        planned = {s.worker for r in rounds if r.workflow is not None for s in r.workflow.steps}
        if gone := sorted(planned - set(pool.names)):
            raise invalid(
                "podium.exclude",
                f"{run.id} planned steps for {', '.join(gone)}, now excluded; start a new run",
            )
        copy = replace(
            run,
            id=new_run_id(),
            status="interrupted",
            owner=principal.key_id,
            tier=tier,
            created_at=timestamp(),
            rounds=rounds,
            answer=None,
            error=None,
            spent=NOTHING_SPENT,
            pool=pool,
            budget=principal.quota.narrow(run.budget.narrow(params.budget)),
            exclude=tuple(sorted(exclude)),
            guardrail_checks=(),
            earlier_responses=(),
        )
        await self._repository.store.finish(copy)
        return copy

    async def _start(
        self,
        request: ApiRequest,
        conversation: Conversation,
        principal: Principal,
        options: RunOptions,
    ) -> Run:
        if request.params.workflow is None:
            return await self._podium.ask(conversation.question, **options)
        pool = self._assembly.pool
        workflow = read_workflow(request.params.workflow, pool)
        principal.check_workflow(
            {step.worker: pool[step.worker].provider for step in workflow.steps}
        )
        if request.params.max_steps is None:  # the effort limits planning only
            options["max_steps"] = self._options.max_steps
        return await self._podium.run(workflow, conversation.question, **options)

    def run_options(
        self, request: ApiRequest, conversation: Conversation, principal: Principal, tier: Tier
    ) -> RunOptions:
        """Combine the settings, the request's `podium` object and the key's rules."""
        params = request.params
        exclude = params.exclude and check_exclude(params.exclude, self._excludable)
        conductor, question = self._assembly.conductor, conversation.question
        limits = limits_for_effort(
            request.response_options.effort,
            self._options,
            lambda: can_replan(tier, conductor, question, self._load_router),
        )
        allowed = self._options.narrow(
            max_steps=params.max_steps, rounds=params.rounds, caps=params.budget
        )
        return RunOptions(
            history=conversation.history,
            images=conversation.images,
            trailing_messages=conversation.trailing_messages,
            response_options=request.response_options,
            owner=principal.key_id,
            tier=tier,
            max_steps=limits.max_steps if params.max_steps is None else allowed.max_steps,
            rounds=limits.rounds if params.rounds is None else allowed.rounds,
            budget=principal.quota.narrow(allowed.budget),
            shared_budget=principal.quota.shared_budget,
            exclude=exclude | self._excluded_by(principal),
            quality_bias=params.quality_bias,
        )

    def _excluded_by(self, principal: Principal) -> frozenset[str]:
        """Return what the key's rules and the administrator exclude from a run."""
        return (principal.exclude | principal.disabled) & self._excludable


def _another_worker_sees_more(run: Run, results: Iterable[ToolResult]) -> bool:
    """True if results have images that the waiting worker cannot see, and another worker can."""
    images = [image for result in results for image in result.images]
    waiting = {step.answered_by or step.worker for step in run.steps if step.waiting_for}
    if not images or all(can_see(run.pool[name], image) for name in waiting for image in images):
        return False
    return any(all(can_see(other, image) for image in images) for other in run.pool)


def steps_kept_by_rerun(run: Run, rerun: Rerun) -> tuple[Round, ...]:
    """Return the rounds of a run with the steps that a rerun keeps, without their calls."""
    last = len(run.rounds) - 1 if rerun.round is None else rerun.round
    if run.rounds and (
        last >= len(run.rounds)
        or (rerun.step and rerun.step >= len(run.rounds[last].workflow or ()))
    ):
        raise invalid("podium.rerun", f"{run.id} has no step {rerun.step} in round {last}")
    return tuple(
        replace(
            round_,
            steps=tuple(
                replace(
                    step,
                    attempts=(),
                    nested=(),
                    guardrail_checks=(),
                    started_ms=0.0,
                    finished_ms=0.0,
                )
                for step in round_.steps
                if step.status == "done"
                and (rerun.round is None or round_.index < last or step.index < rerun.step)
            ),
            planning_attempts=(),
            cancelled_steps=(),
        )
        for round_ in run.rounds[: last + 1]
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
    return run.budget.narrow(caps)


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
        # Before loading: a run that is no longer beginning is stored.
        is_beginning = registered.run_id in repository.beginning
        run = await _load(repository, registered.run_id)
        if run is not None:
            return await wait_for_end(repository, run, resume)
        registered = await _register(repository, request)
        own = registered if registered.run_id == request.run_id else None
        if own is None and not is_beginning and registered.run_id not in repository.beginning:
            own = await repository.store.idempotency.take_over(registered, request.process)
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
        run = await repository.store.load(run.id)
    return run


async def _register(repository: RunRepository, request: IdempotentRequest) -> IdempotentRequest:
    registered = await repository.store.idempotency.register(request)
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
            await repository.store.idempotency.remove(request)
    except PodiumError as error:
        LOGGER.warning("cannot remove the idempotency key of a request without a run: %s", error)


async def _load(repository: RunRepository, run_id: str) -> Run | None:
    try:
        return await repository.store.load(run_id)
    except NotFound:
        return None
