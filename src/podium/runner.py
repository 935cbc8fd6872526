"""The run loop: plan, carry out, and plan again until the answer stands.

This is where planning and execution meet. A conductor never executes and the engine never
plans; the runner hands each what the other made, keeps the run's one budget, and decides how
the run ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from podium.budget import Budget, Ledger
from podium.conductor.base import Conductor, Plan, Situation
from podium.engine import Assignment, Calls, Execution, Scope, Switchboard, context
from podium.errors import (
    BudgetExhausted,
    ConfigError,
    PlanError,
    PodiumError,
    RequestRefused,
    UnknownWorker,
    WorkerError,
)
from podium.events import Emit, Event, Planned, RoundDone, RunDone, RunStarted
from podium.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.request import Message, Reply, Request
from podium.run import Attempt, Round, Run, RunStatus, Tier, new_run_id, spent_by, timestamp
from podium.worker import Worker
from podium.workflow import DEFAULT_MAX_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may differ from run to run.

    `rounds` is how often the conductor may plan: 1 carries out the first plan and ends, more
    lets it look at the answer and either accept it or plan again. `exclude` names workers and
    providers that this run must not use, in any round or nested run.
    """

    max_steps: int = DEFAULT_MAX_STEPS
    rounds: int = 1
    budget: Budget = field(default_factory=Budget)
    tier: Tier = "ultra"
    exclude: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("max_steps", "rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


NESTED: Final = WorkerProfile(
    name="conductor",
    description="splits a hard subtask further and leads other workers through it",
)


class ConductorWorker(Worker):
    """The conductor as a worker of its own pool: a step given to it is a nested run."""

    def __init__(self, profile: WorkerProfile = NESTED) -> None:
        self.profile = replace(profile, provider=CONDUCTOR_PROVIDER)

    async def reply(self, request: Request) -> Reply:
        """Never called by the engine, which nests a run instead."""
        raise RequestRefused(f"{self.profile.name} answers only as a step of a workflow")


class Runner:
    """Answers questions with one conductor and one set of workers."""

    def __init__(
        self,
        conductor: Conductor,
        workers: Sequence[Worker],
        *,
        pool: Pool | None = None,
        board: Switchboard | None = None,
    ) -> None:
        self.conductor = conductor
        self.pool = pool or Pool(tuple(worker.profile for worker in workers))
        self.workers = {worker.profile.name: worker for worker in workers}
        self.board = board or Switchboard()
        for name in self.pool.names:
            if name not in self.workers:
                raise UnknownWorker(name, tuple(self.workers))

    async def run(
        self,
        question: str,
        *,
        history: tuple[Message, ...] = (),
        options: Options = Options(),
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Answer the question. `emit` gets the events as they happen; with `stream` the final
        step's reply is among them, piece by piece."""
        pool = self._pool_for(options)
        run = Run(
            id=new_run_id(),
            question=question,
            status="running",
            pool=pool,
            conductor=self.conductor.name,
            created_at=timestamp(),
            tier=options.tier,
            max_steps=options.max_steps,
            max_rounds=options.rounds,
            budget=options.budget,
            history=history,
            exclude=tuple(sorted(options.exclude)),
            prompt_hash=_prompt_hash(self.conductor),
        )
        self.board.bind()
        return await self._perform(run, Ledger(options.budget), emit, stream)

    async def resume(
        self,
        run: Run,
        *,
        budget: Budget | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Go on with a run that was cut off; steps that are done are not asked again."""
        if run.status == "answered":
            raise ConfigError(f"{run.id} is answered already; there is nothing to resume")
        for name in run.pool.names:
            if name not in self.workers:
                raise UnknownWorker(name, tuple(self.workers))
        budget = budget or run.budget
        again = replace(run, status="running", answer=None, error=None, budget=budget)
        self.board.bind()
        return await self._perform(again, Ledger(budget, spent_by(run)), emit, stream)

    async def plan(
        self,
        question: str,
        *,
        history: tuple[Message, ...] = (),
        options: Options = Options(),
    ) -> Round:
        """Only plan: the round that a run would begin with, nothing of it carried out."""
        pool = self._pool_for(options)
        self.board.bind()
        calls = Calls(self.board, Ledger(options.budget), self.board.clock(), options.exclude)
        situation = Situation(
            question=question,
            pool=pool,
            history=history,
            max_steps=options.max_steps,
        )
        plan = await self.conductor.plan(situation, calls)
        if plan.workflow is not None:
            plan.workflow.check(pool.names, options.max_steps)
        return _round(0, plan, calls)

    def _pool_for(self, options: Options) -> Pool:
        pool = self.pool.without(options.exclude) if options.exclude else self.pool
        options.budget.check(pool)
        return _pool_at_depth(pool, 0, options.budget)

    async def _perform(
        self,
        run: Run,
        ledger: Ledger,
        emit: Emit | None,
        stream: bool,
        parent: tuple[str, int] | None = None,
        keep: Callable[[Run], None] | None = None,
    ) -> Run:
        """Carry a run through to its end, whatever that is; `keep` gets it even if cancelled."""
        if emit is not None:
            emit(RunStarted(run, parent))
        performance = _Performance(self, run, ledger, emit, stream)
        try:
            await performance.all_rounds()
            run = performance.ended()
        except BaseException:
            run = performance.ended("interrupted")
            raise
        finally:
            if keep is not None:
                keep(run)
            if emit is not None:
                emit(RunDone(run))
        return run

    async def nested(
        self,
        above: Run,
        ledger: Ledger,
        emit: Emit | None,
        stream: bool,
        question: str,
        history: tuple[Message, ...],
        parent: tuple[str, int],
        keep: Callable[[Run], None],
    ) -> None:
        """Answer a subtask as a run of its own, on the ledger of the run above."""
        depth = above.depth + 1
        if depth > above.budget.depth:
            raise BudgetExhausted("depth", above.budget.depth)
        run = replace(
            above,
            id=new_run_id(),
            question=question,
            history=history,
            pool=_pool_at_depth(above.pool, depth, above.budget),
            created_at=timestamp(),
            rounds=(),
            depth=depth,
        )
        await self._perform(run, ledger, emit, stream, parent, keep)


class _Performance:
    """One run being performed: its rounds so far, and why it ended early, if it did."""

    def __init__(
        self, runner: Runner, run: Run, ledger: Ledger, emit: Emit | None, stream: bool
    ) -> None:
        self._runner = runner
        self._run = run
        self._ledger = ledger
        self._emit = emit
        self._stream = stream
        self._board = runner.board
        self._started = self._board.clock() - ledger.spent.seconds
        self._rounds = list(run.rounds)
        self._planning_cut_off: tuple[Attempt, ...] = ()
        if self._rounds and self._rounds[-1].workflow is None:
            self._planning_cut_off = self._rounds.pop().planning
        self._stopped_by: PodiumError | None = None

    async def all_rounds(self) -> None:
        """Plan and carry out, round after round; a spent budget or a bad plan ends it."""
        seconds_left = self._ledger.seconds_left if self._run.depth == 0 else None
        try:
            async with asyncio.timeout(seconds_left):
                if self._rounds and self._rounds[-1].unfinished:
                    await self._carry_out()
                while self._may_plan() and await self._plan():
                    await self._carry_out()
        except TimeoutError:
            self._stopped_by = BudgetExhausted("seconds", self._run.budget.seconds or 0.0)
        except (BudgetExhausted, PlanError, WorkerError, UnknownWorker) as error:
            self._stopped_by = error

    def _may_plan(self) -> bool:
        return self._stopped_by is None and len(self._rounds) < self._run.max_rounds

    async def _plan(self) -> bool:
        """Have the next round planned; False when the last answer was accepted instead."""
        calls = Calls(self._board, self._ledger, self._started, self._run.exclude)
        calls.attempts.extend(self._planning_cut_off)
        self._planning_cut_off = ()
        index = len(self._rounds)
        situation = Situation(
            question=self._run.question,
            pool=self._run.pool,
            history=self._run.history,
            rounds=tuple(self._rounds),
            max_steps=self._run.max_steps,
        )
        self._rounds.append(Round(index, None))
        try:
            plan = await self._runner.conductor.plan(situation, calls)
            if plan.workflow is not None:
                plan.workflow.check(self._run.pool.names, self._run.max_steps)
        except BaseException:
            self._rounds[-1] = Round(index, None, planning=tuple(calls.attempts))
            raise
        self._rounds[-1] = _round(index, plan, calls)
        self._tell(Planned(self._run.id, self._rounds[-1]))
        return plan.workflow is not None

    async def _carry_out(self) -> None:
        """Carry out the last round's workflow; what was done is kept even if it is cut off."""
        round_ = self._rounds[-1]
        assert round_.workflow is not None, "only a planned round is carried out"
        execution = Execution(
            Assignment(
                workflow=round_.workflow,
                question=self._run.question,
                pool=self._run.pool,
                history=self._run.history,
                round=round_.index,
                previous=self._rounds[-2] if len(self._rounds) > 1 else None,
                finished={step.index: step for step in round_.steps},
            ),
            self._runner.workers,
            self._board,
            Scope(
                run_id=self._run.id,
                ledger=self._ledger,
                emit=self._emit,
                started=self._started,
                nest=partial(
                    self._runner.nested, self._run, self._ledger, self._emit, self._stream
                ),
            ),
            stream=self._stream,
        )
        try:
            await execution.carry_out()
        finally:
            steps = tuple(step for _, step in sorted(execution.records.items()))
            self._rounds[-1] = replace(round_, steps=steps)
        self._stopped_by = execution.exhausted
        self._tell(RoundDone(self._run.id, self._rounds[-1]))

    def ended(self, status: RunStatus | None = None) -> Run:
        """The run as it stands at its end. Without a status, what was achieved decides."""
        finals = [round_.final for round_ in self._rounds if round_.final is not None]
        done = [step for round_ in self._rounds for step in round_.steps if step.status == "done"]
        best = finals[-1] if finals else (done[-1] if done else None)
        if status is None:
            if finals:
                status = "answered"
            elif best is not None:
                status = "partial"
            else:
                status = "exhausted" if isinstance(self._stopped_by, BudgetExhausted) else "failed"
        return replace(
            self._run,
            status=status,
            answer=best.reply if best is not None else None,
            error=self._what_went_wrong(),
            rounds=tuple(self._rounds),
            spent=self._ledger.spent,
        )

    def _what_went_wrong(self) -> str | None:
        """The first thing that did not go as planned in the last round, for the run to carry."""
        if self._stopped_by is not None:
            return str(self._stopped_by)
        for step in self._rounds[-1].steps if self._rounds else ():
            if step.status != "done":
                return f"step {step.index} ({step.worker}) {step.status}: {step.error}"
        return None

    def _tell(self, event: Event) -> None:
        if self._emit is not None:
            self._emit(event)


def _round(index: int, plan: Plan, calls: Calls) -> Round:
    return Round(
        index,
        plan.workflow,
        planning=tuple(calls.attempts),
        plan_text=plan.text,
        warnings=plan.warnings,
        accepted=plan.workflow is None,
    )


def _pool_at_depth(pool: Pool, depth: int, budget: Budget) -> Pool:
    """The pool without conductors where a run may not nest any deeper."""
    names = [worker.name for worker in pool if worker.provider == CONDUCTOR_PROVIDER]
    return pool.without(names) if names and depth >= budget.depth else pool


def _prompt_hash(conductor: Conductor) -> str:
    """A fingerprint of every prompt text that shapes the run."""
    return f"{getattr(conductor, 'prompt_hash', '')}:{context.prompt_hash()}".strip(":")
