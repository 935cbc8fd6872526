"""One step being carried out: who is asked and in what order, what was said in it, its record.

A step is one call in the simplest case. With tools it is a conversation: the worker calls, and goes
on when it has the results. Podium's own tools answer at once; when the client's are called, the
step ends as waiting, and a resumed run takes it up where it stood.

Here is only what ties these together. What a worker is asked is `context` and `requests`, how it is
called `calls` and `hedging`, who takes over from it `substitutes`; what tools answer is `uses`,
what guardrails leave of a reply `inspection`, a run inside the step `nesting`, and what a reader
hears meanwhile `telling`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from podium.core.errors import (
    AuthenticationFailed,
    BadReply,
    BudgetExhausted,
    GuardrailBlocked,
    PodiumError,
    PromptTooLong,
    RequestRefused,
    WorkerError,
)
from podium.core.events import StepRetried, StepStarted
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import Message, Reply, Request, Tool, unanswered, user
from podium.core.run import Run, StepRecord, StepStatus
from podium.core.run_records import Check
from podium.core.structured_output import misfit
from podium.engine.calls import Calls, OnDelta
from podium.engine.context import compose
from podium.engine.hedging import Listener, Race, Won
from podium.engine.inspection import holds_answer, inspected, inspected_answer
from podium.engine.reply_stream import begin_telling
from podium.engine.requests import asked_again, never_fitted, request_for, require_able, tools_for
from podium.engine.substitutes import (
    delegation_of,
    hedge_for,
    reply_of,
    substitute_for,
    taken_up,
    with_run,
)
from podium.engine.tool_calls import turn_with_calls, unwanted_calls, with_own_answers

if TYPE_CHECKING:
    from podium.core.worker import Worker
    from podium.engine.execution import Execution

GOES_ON: Final = "its process ended before it was done"
"""What is kept as the error of a step that goes on; only a crash lets it be seen."""

NOTHING: Final = Reply("")

MOST_TURNS: Final = 100
"""How often a worker may use tools in one go. One that never comes to an end has failed."""


class StepRunner:
    """One step being carried out."""

    _asked: str
    """Who is asked now."""
    _tried: list[str]
    """Who was asked, or looked at, to do the step."""

    __slots__ = (
        "_asked",
        "_begun_by",
        "_calls",
        "_checks",
        "_execution",
        "_first_repair",
        "_index",
        "_is_final",
        "_nested",
        "_prompt",
        "_started",
        "_step",
        "_telling",
        "_tried",
        "_turns",
    )

    def __init__(self, execution: Execution, index: int) -> None:
        self._execution = execution
        self._index = index
        self._is_final = index == execution.final
        self._step = execution.assignment.workflow.steps[index]
        self._begun_by = self._step.worker
        self._prompt = ""
        self._nested: tuple[Run, ...] = ()
        self._checks: tuple[Check, ...] = ()
        self._turns: tuple[Message, ...] = ()
        self._telling = begin_telling(execution, index) if self._is_final else None
        self._first_repair: int | None = None
        self._started = execution.call_policy.clock()
        self._calls = Calls(execution.call_policy, execution.scope.ledger, execution.scope.started)
        before = execution.cut_off.get(index)
        if before is not None:
            self._take_up(before)

    def _take_up(self, before: StepRecord) -> None:
        """Go on from where the step stood."""
        self._calls.attempts.extend(before.attempts)
        self._checks = before.checks
        self._nested = taken_up(before.nested)
        if before.turns:
            self._turns = before.turns
            self._prompt = before.prompt
        if before.status == "waiting" and before.answered_by in self._execution.workers:
            self._begun_by = before.answered_by

    async def perform(self) -> None:
        """Do the step; however it ends, the execution gets its record."""
        execution = self._execution
        try:
            obstacle = execution.obstacle(self._index)
            if obstacle is not None:
                execution.done(self._record("skipped", error=obstacle))
                return
            self._brief()
            reply = await self._ask_with_fallbacks()
            if reply is None:
                said = Reply(self._said(), finish="tool")
                execution.done(self._record("waiting", said, answered_by=self._asked))
            else:
                execution.done(self._record("done", reply, answered_by=self._asked))
        except BudgetExhausted as error:
            execution.exhausted = execution.exhausted or error
            execution.done(self._broken_off("skipped", str(error)))
        except GuardrailBlocked as error:
            execution.blocked = execution.blocked or error
            execution.done(self._record("failed", error=str(error)))
        except PodiumError as error:
            if isinstance(error, PromptTooLong):
                execution.too_long = True
            if isinstance(error, AuthenticationFailed | RequestRefused):
                execution.refused = True
            execution.done(self._broken_off("failed", str(error)))
        except asyncio.CancelledError:
            execution.done(self._broken_off("cancelled", "stopped before it was done"))
            raise

    def _broken_off(self, status: StepStatus, error: str) -> StepRecord:
        """The step as it ends without its reply; what a reader has of that is kept."""
        return self._record(status, Reply(self._said()), error=error)

    def _said(self) -> str:
        """What a reader has of a reply that did not come to its end."""
        return self._telling.so_far if self._telling is not None else ""

    def _brief(self) -> None:
        """Write the worker's message."""
        execution = self._execution
        assignment = execution.assignment
        if not self._prompt:
            self._prompt = compose(
                self._step.subtask,
                question=assignment.question if assignment.pool.share_question else None,
                pairs=execution.pairs(self._index),
                is_final=self._is_final,
            )
        scope = execution.scope
        if scope.emit is not None:
            scope.emit(
                StepStarted(
                    scope.run_id, assignment.round, self._index, self._step.worker, self._prompt
                )
            )

    async def _ask_with_fallbacks(self) -> Reply | None:
        """The reply of the step's worker, or of the first of its substitutes that gives one; None
        where the step has to wait. Either is of the one that was asked last."""
        name = self._begun_by
        self._tried = [name]
        while True:
            try:
                return await self._ask(name)
            except WorkerError as error:
                fallback = self._substitute(name, self._tried)
                if fallback is None:
                    raise
                self._retried(fallback, error, 0.0)
                name = fallback

    def _substitute(self, name: str, tried: list[str]) -> str | None:
        assignment = self._execution.assignment
        return substitute_for(name, tried, assignment, is_final=self._is_final)

    def _may_give_way(self) -> bool:
        """Whether somebody would take over from the worker that is being asked now."""
        return self._substitute(self._tried[-1], [*self._tried]) is not None

    async def _ask(self, name: str) -> Reply | None:
        """The worker's reply; None where it called tools of the client."""
        self._asked = name
        execution = self._execution
        worker = execution.workers[name]
        if worker.profile.provider == CONDUCTOR_PROVIDER:
            nested = await self._nest()
            if nested is None or not self._is_final or not holds_answer(execution):
                return nested
            return await self._concluded(nested, name)
        if not execution.is_plain:
            self._begin_with(worker.profile)
        self._calls.share = execution.remaining
        telling, inspection = self._telling, execution.inspection
        uses = 0
        while True:
            if self._turns and not await self._tools_have_answered():
                return None
            hear = telling.hear if telling is not None and telling.streams else None
            if execution.hedges and self._is_hedged(name):
                worker, reply = await self._race(worker, hear)
                self._asked = name = worker.profile.name
            else:
                request = self._request(worker.profile)
                reply = await self._calls.make(
                    worker, request, hear, self._retried, self._may_give_way
                )
            if telling is not None:
                reply = telling.completed(reply)
            if inspection is not None:
                reply = await inspected(reply, inspection, self._index, name, self._keep_check)
            if reply.tool_calls:
                uses += 1
                if uses > MOST_TURNS:
                    raise BadReply(f"{name} used tools {uses} times and came to no end")
                self._take_calls(reply, worker.profile)
            elif not reply.text.strip():
                what = "refused to answer" if reply.finish == "refused" else "replied"
                raise WorkerError(f"{name} {what} without a word")
            elif execution.is_plain or self._fits(reply, name):
                if telling is None and inspection is None:
                    return reply
                return await self._concluded(reply, name)

    def _is_hedged(self, name: str) -> bool:
        """Whether another may be asked beside that worker: not once tools were used, for only who
        called them knows what for."""
        return not self._turns and name in self._execution.hedges

    async def _race(self, worker: Worker, hear: OnDelta | None) -> Won:
        """Ask the worker and, should it take long, another beside it."""
        listener = Listener(hear, self._retried, self._may_give_way)
        race = Race(self._calls, self._execution.call_policy, worker, listener, self._other)
        return await race.run(self._request(worker.profile))

    def _other(self) -> tuple[Worker, Request] | None:
        """Who is asked beside a worker that takes long, and what."""
        execution, asked = self._execution, self._asked
        hedge = execution.hedges[asked]
        name = hedge_for(asked, hedge, execution.assignment, is_final=self._is_final)
        if name is None:
            return None
        worker = execution.workers[name]
        return worker, self._request(worker.profile)

    async def _concluded(self, reply: Reply, name: str) -> Reply:
        """The whole reply, looked at as the answer where it is one; what was held back is told."""
        telling = self._telling
        if telling is not None:
            reply = telling.concluded(reply)
        if self._is_final and holds_answer(self._execution):
            reply = await inspected_answer(
                reply, self._execution, self._index, name, self._keep_check
            )
        if telling is not None:
            telling.tell_rest(reply.text)
        return reply

    def _keep_check(self, check: Check) -> None:
        self._checks += (check,)

    def _begin_with(self, profile: WorkerProfile) -> None:
        """Refuse a worker that cannot do what is demanded, and forget the misfits of another."""
        if self._is_final:
            require_able(profile, self._execution.assignment.response_options)
        if self._first_repair is not None:
            self._turns = self._turns[: self._first_repair]
            self._first_repair = None

    def _request(self, profile: WorkerProfile) -> Request:
        kept = self._telling.kept if self._telling is not None else ""
        if self._execution.is_plain and not self._turns and not kept:
            return Request((user(self._prompt),))
        return request_for(
            profile,
            self._prompt,
            self._execution.assignment,
            self._turns,
            self._tools(profile),
            is_final=self._is_final,
            kept=kept,
        )

    def _tools(self, profile: WorkerProfile) -> tuple[Tool, ...]:
        execution = self._execution
        response_options, toolbox = execution.assignment.response_options, execution.scope.toolbox
        return tools_for(profile, response_options, toolbox, is_final=self._is_final)

    def _take_calls(self, reply: Reply, profile: WorkerProfile) -> None:
        """Keep a turn in which tools were called."""
        if not self._tools(profile):
            raise unwanted_calls(reply, profile.name)
        response_options, known = (
            self._execution.assignment.response_options,
            self._execution.scope.call_ids,
        )
        self._turns += (turn_with_calls(reply, response_options, known),)
        if self._telling is not None:
            self._telling.say_before_tools(reply.text)

    async def _tools_have_answered(self) -> bool:
        """Have Podium's own tools answer what is asked of them; whether nothing is left that the
        client must answer."""
        calls = unanswered(self._turns)
        if not calls:
            return True
        turns = await with_own_answers(self._turns, calls, self._execution, self._index)
        if turns != self._turns:
            self._turns = turns
            self._execution.note(self._record("cancelled", error=GOES_ON))
        return not unanswered(turns)

    def _fits(self, reply: Reply, name: str) -> bool:
        """Whether the reply is what is demanded; where it is not, it is asked for once more.

        A refusal, and a reply that was cut off at its length, say so themselves.
        """
        schema = self._execution.assignment.response_options.schema
        if schema is None or not self._is_final or reply.finish != "stop":
            return True
        problem = misfit(reply.text, schema)
        if problem is None:
            return True
        if self._first_repair is not None:
            raise never_fitted(name, reply, schema)
        self._first_repair = len(self._turns)
        self._turns += asked_again(reply, problem)
        return False

    async def _nest(self) -> Reply | None:
        """The answer of a run of its own; None where that waits."""
        execution = self._execution
        delegation = delegation_of(execution, self._index, self._nested)
        await execution.scope.nest(delegation, self._keep)
        nested = self._nested[-1]
        if nested.status != "waiting":
            return reply_of(nested)
        if nested.answer and self._telling is not None:
            self._telling.say_before_tools(nested.answer, is_told=True)
        return None

    def _keep(self, run: Run) -> None:
        """Take a nested run as it stands now, in place of what it was before."""
        self._nested = with_run(self._nested, run)
        if run.status == "running":
            self._execution.note(self._record("cancelled", error=GOES_ON))

    def _retried(self, worker: str, error: WorkerError, wait: float) -> Request:
        """Tell of another try, and say what will be asked."""
        kept = 0
        if self._telling is not None:
            self._telling.break_off()
            kept = len(self._telling.so_far) if self._telling.streams else 0
        scope = self._execution.scope
        if scope.emit is not None:
            round_ = self._execution.assignment.round
            scope.emit(
                StepRetried(scope.run_id, round_, self._index, worker, str(error), wait, kept)
            )
        return self._request(self._execution.workers[worker].profile)

    def _record(
        self,
        status: StepStatus,
        reply: Reply = NOTHING,
        *,
        error: str | None = None,
        answered_by: str = "",
    ) -> StepRecord:
        """The step as it stands now."""
        step = self._step
        execution = self._execution
        run_started = execution.scope.started
        return StepRecord(
            execution.assignment.round,
            self._index,
            step.worker,
            step.subtask,
            step.access,
            status,
            reply.text,
            error,
            (self._started - run_started) * 1000,
            (execution.call_policy.clock() - run_started) * 1000,
            tuple(self._calls.attempts),
            self._prompt,
            answered_by,
            reply.finish,
            self._nested,
            self._turns,
            reply.thinking,
            reply.stop_sequence,
            self._checks,
        )
