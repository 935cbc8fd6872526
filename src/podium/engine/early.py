"""Execute the steps of a plan while its conductor still writes it.

What begins early counts only if the finished plan contains it, before its answering step;
otherwise all of it is cancelled, and recorded in `Round.cancelled_steps` with its calls. Its events
are held until the plan is known. A step waits for the whole plan if its worker, or one that may
take over from it, leads a nested run, may call Podium's own tools (their effects cannot be
cancelled) or shares this machine with a local planner. No step begins early if the budget could not
pay for a plan that is discarded.

Speculation is a second execution beside it: one worker answers the question itself. A plan of one
step for that worker takes it over; a plan of more steps cancels it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from podium.core.events import Emit, Event
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Request, user
from podium.core.run import Round, Run, StepRecord
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.execution import Execution, RunContext, wait_for_end
from podium.engine.requests import tools_for

NOT_IN_PLAN: Final = "the plan does not contain it"

LOCAL_PROVIDERS: Final = ("llamacpp", "transformers")
"""Their models run on this machine, so that a step would slow the planner down."""

OpenRound = Callable[[Round, Emit], Execution]
"""`RunLoop._open`: the execution of a round, with its events."""


class EventBuffer:
    """Keeps events until they are released."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._emit: Emit | None = None

    def __call__(self, event: Event) -> None:
        (self._emit or self._events.append)(event)

    def release(self, emit: Emit) -> None:
        """Pass on what was held, and all that follows."""
        self._emit = emit
        for event in self._events:
            emit(event)


class EarlyExecution:
    """Implements `EarlySteps` for one round of a run."""

    def __init__(
        self,
        context: RunContext,
        run: Run,
        index: int,
        planner: Worker | None,
        open_round: OpenRound,
    ) -> None:
        self._context = context
        self._run = run
        self._index = index
        self._is_local = planner is not None and planner.profile.provider in LOCAL_PROVIDERS
        self._open = open_round
        self._execution: Execution | None = None
        self._has_room = True
        self._speculation: Execution | None = None
        self._discarded: list[tuple[Execution, str]] = []
        self.events = self._speculated = EventBuffer()
        self.has_begun = False

    def begin(self, step: Step) -> None:
        """Start the next step, once all it reads is done."""
        if self._execution is None:
            self._drop_speculation()
            self.events, self.has_begun = EventBuffer(), True
            self._execution = self._open(Round(self._index, None), self.events)
        self._execution.begin_step(step, deferred=self._waits_for_plan(step))

    def cancel(self, reason: str) -> None:
        execution, self._execution = self._execution, None
        self._discard(execution, reason)

    def speculate(self, worker: str) -> None:
        """Have that worker answer the question meanwhile, if that can be paid twice."""
        step = Step(worker, self._run.question)
        if self._speculation is None and not self._waits_for_plan(step):
            round_ = Round(self._index, Workflow((step,)))
            self.has_begun = True
            self._speculation = self._open(round_, self._speculated)
            self._speculation.start()

    def _drop_speculation(self) -> None:
        speculation, self._speculation = self._speculation, None
        self._discard(speculation, NOT_IN_PLAN)

    def _discard(self, execution: Execution | None, reason: str) -> None:
        if execution is not None:
            self._discarded.append((execution, reason))
            execution.cancel()

    def _take_speculation(self, round_: Round) -> tuple[Round, Execution | None]:
        """Return the speculation as the round's execution if the plan is one step for its worker.

        The round then holds the step as it was asked.
        """
        speculation, planned = self._speculation, round_.workflow
        if speculation is None or planned is None or not round_.has_answer_role:
            return round_, None
        step = speculation.steps[0]
        if len(planned) > 1 or planned.steps[0].worker != step.worker:
            return round_, None
        self._speculation, self.events = None, self._speculated
        warnings = round_.warnings
        if planned.steps[0] != step:
            warnings += (f"{step.worker} was asked the question itself while it was planned",)
        return replace(round_, workflow=Workflow((step,)), warnings=warnings), speculation

    async def resolve_plan(self, round_: Round) -> tuple[Round, Execution | None]:
        execution = self._execution
        if execution is not None and not execution.accept_plan(round_):
            self.cancel(NOT_IN_PLAN)
            execution = None
        self._execution = None
        if execution is None:
            round_, execution = self._take_speculation(round_)
        try:
            await self.stop("")
        except BaseException:
            self._discard(execution, "the run was stopped")
            raise
        return (
            replace(round_, cancelled_steps=self.cancelled_steps) if self._discarded else round_
        ), execution

    async def stop(self, reason: str) -> None:
        """Cancel all that does not count, and wait for its end."""
        self.cancel(reason)
        self._drop_speculation()
        await wait_for_end([task for execution, _ in self._discarded for task in execution.tasks])

    @property
    def cancelled_steps(self) -> tuple[StepRecord, ...]:
        """The records of what does not count."""
        return tuple(
            replace(record, status="cancelled", reply="", error=reason, turns=(), thinking=())
            for execution, reason in self._discarded
            for record in execution.steps_so_far()
        )

    def _waits_for_plan(self, step: Step) -> bool:
        run, context = self._run, self._context
        if any(map(self._is_bound_to_plan, self._may_answer(step.worker))):
            return True
        if self._has_room:
            profile = context.workers[step.worker].profile
            request = Request((*run.history, user(run.question), user(step.subtask)))
            self._has_room = context.ledger.has_room(profile, request, 2 * run.max_steps)
        return not self._has_room

    def _may_answer(self, worker: str) -> list[str]:
        pool, found = self._run.pool, [worker]
        for name in found:
            fallback = pool[name].fallback
            if fallback is not None and fallback in pool.names and fallback not in found:
                found.append(fallback)
        return found

    def _is_bound_to_plan(self, worker: str) -> bool:
        profile, options = self._context.workers[worker].profile, self._run.response_options
        if profile.provider == CONDUCTOR_PROVIDER:
            return True
        if self._is_local and profile.provider in LOCAL_PROVIDERS:
            return True
        return bool(tools_for(profile, options, self._context.toolbox, with_client_tools=False))
