"""Carrying out one workflow: every step starts the moment the steps it may read are done.

The task that finishes a step goes on with the first step that this made ready, and starts new
tasks only for the others; so a chain runs in one task, and a join costs one task a branch.
A step that fails ends as a record, never as an exception. The one exception that passes through
is cancellation, and then `records` holds what was finished before it, and what was cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from podium.budget import Ledger
from podium.engine.calls import Calls, Switchboard
from podium.engine.context import Pair, compose
from podium.errors import BudgetExhausted, PodiumError, WorkerError
from podium.events import Emit, StepDelta, StepDone, StepNoted, StepRetried, StepStarted
from podium.pool import CONDUCTOR_PROVIDER, Pool
from podium.request import Delta, Finish, Message, Reply, Request, assistant, user
from podium.run import Round, Run, StepRecord, StepStatus
from podium.worker import Worker
from podium.workflow import Workflow

GOES_ON: Final = "its process ended before it was done"
"""What is kept as the error of a step whose nested run goes on; only a crash lets it be seen."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """A step handed to a conductor: the question of the nested run, what it may read as the
    conversation before it, which step it is, whether its answer is to be streamed, and the
    nested run that was begun before an interruption, if there was one."""

    question: str
    history: tuple[Message, ...]
    step: int
    stream: bool
    begun: Run | None


Nest = Callable[[Delegation, Callable[[Run], None]], Awaitable[None]]
"""Carries out a nested run. The second argument takes the run whenever it has got further, and
as it ends, even when it ends by being cancelled; raises `BudgetExhausted` when the budget ended
before the run had an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The run that a workflow is carried out for.

    `started` is when it began, by the switchboard's clock; `emit` is None when nobody watches;
    `nest` answers a step whose worker is a conductor.
    """

    run_id: str
    ledger: Ledger
    emit: Emit | None
    started: float
    nest: Nest


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A workflow and what it works on.

    `previous` is the round before, which a step with access to `all` may read too. `finished`
    are steps of this very workflow that were carried out before an interruption.
    """

    workflow: Workflow
    question: str
    pool: Pool
    history: tuple[Message, ...] = ()
    round: int = 0
    previous: Round | None = None
    finished: Mapping[int, StepRecord] = field(default_factory=dict)


class Execution:
    """One workflow being carried out."""

    def __init__(
        self,
        assignment: Assignment,
        workers: Mapping[str, Worker],
        board: Switchboard,
        scope: Scope,
        *,
        stream: bool,
    ) -> None:
        self.records: dict[int, StepRecord] = {}
        self.noted: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.assignment = assignment
        self.workers = workers
        self.board = board
        self.scope = scope
        self.stream = stream
        self.last = len(assignment.workflow) - 1
        self.cut_off: dict[int, StepRecord] = {}
        for index, record in assignment.finished.items():
            (self.records if record.status == "done" else self.cut_off)[index] = record
        self._reads = [assignment.workflow.reads(index) for index in range(self.last + 1)]
        self._readers: list[list[int]] = [[] for _ in self._reads]
        self._missing = [0 for _ in self._reads]
        for index, reads in enumerate(self._reads):
            for read in reads:
                if read not in self.records:
                    self._readers[read].append(index)
                    self._missing[index] += 1

    async def carry_out(self) -> None:
        """Run every step that has not been run yet; afterwards `records` is complete."""
        ready = [
            index
            for index, missing in enumerate(self._missing)
            if not missing and index not in self.records
        ]
        if ready:
            async with asyncio.TaskGroup() as group:
                await self._go_on(ready, group)

    async def _go_on(self, ready: list[int], group: asyncio.TaskGroup) -> None:
        """Take the first ready step, give the others to tasks of their own, and repeat."""
        while ready:
            for other in ready[1:]:
                group.create_task(self._go_on([other], group))
            index = ready[0]
            await _StepWork(self, index).perform()
            ready = []
            for reader in self._readers[index]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    ready.append(reader)

    @property
    def remaining(self) -> int:
        """How many steps are still to be finished."""
        return self.last + 1 - len(self.records)

    def note(self, record: StepRecord) -> None:
        """Take what there is of a step that goes on."""
        self.noted[record.index] = record
        if self.scope.emit is not None:
            self.scope.emit(StepNoted(self.scope.run_id, record))

    def steps_so_far(self) -> tuple[StepRecord, ...]:
        """What a resume would go on from: steps that have ended, and what is noted of others."""
        return tuple(step for _, step in sorted({**self.noted, **self.records}.items()))

    def done(self, record: StepRecord) -> None:
        """Take the record of a step that has ended."""
        self.records[record.index] = record
        if self.scope.emit is not None:
            self.scope.emit(StepDone(self.scope.run_id, record))

    def has_lost_its_inputs(self, index: int) -> bool:
        """Whether the step was to read something, and nothing of that is there."""
        reads = self._reads[index]
        return bool(reads) and all(self.records[read].status != "done" for read in reads)

    def pairs(self, index: int) -> list[Pair]:
        """What the step may read: earlier steps of this round, and with `all` the last round."""
        pairs = []
        previous = self.assignment.previous
        if previous is not None and self.assignment.workflow.steps[index].access == "all":
            pairs = [
                Pair(f"{step.index} of the round before", step.subtask, step.reply)
                for step in previous.steps
                if step.status == "done"
            ]
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                pairs.append(Pair(str(read), record.subtask, record.reply))
        return pairs


class _StepWork:
    """One step: its prompt, its calls, its fallbacks, its record."""

    __slots__ = (
        "_calls",
        "_execution",
        "_index",
        "_nested",
        "_prompt",
        "_said",
        "_started",
        "_step",
    )

    def __init__(self, execution: Execution, index: int) -> None:
        self._execution = execution
        self._index = index
        self._step = execution.assignment.workflow.steps[index]
        self._prompt = ""
        self._nested: list[Run] = []
        self._said: list[str] = []
        self._started = execution.board.clock()
        self._calls = Calls(execution.board, execution.scope.ledger, execution.scope.started)
        before = execution.cut_off.get(index)
        if before is not None:
            self._calls.attempts.extend(before.attempts)
            self._nested.extend(before.nested)

    async def perform(self) -> None:
        """Do the step; however it ends, the execution gets its record."""
        try:
            if self._execution.has_lost_its_inputs(self._index):
                self._end("skipped", error="every step that this one may read has failed")
                return
            self._brief()
            worker, reply = await self._ask_with_fallbacks()
            self._end("done", reply=reply.text, answered_by=worker, finish=reply.finish)
        except BudgetExhausted as error:
            self._execution.exhausted = self._execution.exhausted or error
            self._end("skipped", error=str(error))
        except PodiumError as error:
            self._end("failed", error=str(error))
        except asyncio.CancelledError:
            said = "".join(self._said)
            self._end("cancelled", reply=said, error="stopped before it was done")
            raise

    def _brief(self) -> None:
        """Write the worker's message."""
        execution = self._execution
        assignment = execution.assignment
        self._prompt = compose(
            self._step.subtask,
            question=assignment.question if assignment.pool.share_question else None,
            pairs=execution.pairs(self._index),
            is_final=self._index == execution.last,
        )
        scope = execution.scope
        if scope.emit is not None:
            scope.emit(
                StepStarted(
                    scope.run_id, assignment.round, self._index, self._step.worker, self._prompt
                )
            )

    async def _ask_with_fallbacks(self) -> tuple[str, Reply]:
        """The reply of the step's worker, or of the first of its substitutes that gives one."""
        name = self._step.worker
        tried = [name]
        while True:
            try:
                return name, await self._ask(name)
            except WorkerError as error:
                fallback = self._execution.assignment.pool[name].fallback
                if fallback is None or fallback in tried:
                    raise
                tried.append(fallback)
                self._retried(fallback, error, 0.0)
                name = fallback

    async def _ask(self, name: str) -> Reply:
        execution = self._execution
        worker = execution.workers[name]
        if worker.profile.provider == CONDUCTOR_PROVIDER:
            return await self._nest()
        self._calls.share = execution.remaining
        reply = await self._calls.make(
            worker,
            Request((*execution.assignment.history, user(self._prompt))),
            self._delta if self._streams else None,
            self._retried,
        )
        if not reply.text.strip() and not reply.tool_calls:
            what = "refused to answer" if reply.finish == "refused" else "replied"
            raise WorkerError(f"{name} {what} without a word")
        return reply

    async def _nest(self) -> Reply:
        """A conductor's step is a run of its own: the subtask is its question, and what the
        step may read comes before it as conversation."""
        execution = self._execution
        history = list(execution.assignment.history)
        for pair in execution.pairs(self._index):
            history += (user(pair.subtask), assistant(pair.reply))
        begun = self._nested[-1] if self._nested else None
        if begun is not None and begun.status not in ("running", "interrupted"):
            begun = None
        await execution.scope.nest(
            Delegation(self._step.subtask, tuple(history), self._index, self._streams, begun),
            self._keep,
        )
        nested = self._nested[-1]
        if nested.answer is None:
            raise WorkerError(nested.error or "the nested run gave no answer")
        return Reply(nested.answer)

    @property
    def _streams(self) -> bool:
        return self._execution.stream and self._index == self._execution.last

    def _keep(self, run: Run) -> None:
        """Take a nested run as it stands now, in place of what it was before."""
        if self._nested and self._nested[-1].id == run.id:
            self._nested[-1] = run
        else:
            self._nested.append(run)
        if run.status == "running":
            self._execution.note(self._record("cancelled", error=GOES_ON))

    def _end(
        self,
        status: StepStatus,
        *,
        reply: str = "",
        error: str | None = None,
        answered_by: str = "",
        finish: Finish = "stop",
    ) -> None:
        self._execution.done(
            self._record(status, reply=reply, error=error, answered_by=answered_by, finish=finish)
        )

    def _record(
        self,
        status: StepStatus,
        *,
        reply: str = "",
        error: str | None = None,
        answered_by: str = "",
        finish: Finish = "stop",
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
            reply,
            error,
            (self._started - run_started) * 1000,
            (execution.board.clock() - run_started) * 1000,
            tuple(self._calls.attempts),
            self._prompt,
            answered_by,
            finish,
            tuple(self._nested),
        )

    def _delta(self, delta: Delta) -> None:
        if delta.kind == "text":
            self._said.append(delta.text)
        scope = self._execution.scope
        if scope.emit is not None:
            round_ = self._execution.assignment.round
            thinking = delta.kind == "thinking"
            scope.emit(StepDelta(scope.run_id, round_, self._index, delta.text, thinking))

    def _retried(self, worker: str, error: WorkerError, wait: float) -> None:
        self._said.clear()
        scope = self._execution.scope
        if scope.emit is not None:
            round_ = self._execution.assignment.round
            scope.emit(StepRetried(scope.run_id, round_, self._index, worker, str(error), wait))
