"""Execute one workflow: every step starts as soon as the steps it may read are done.

The task that finishes a step continues with the first step this made ready, and starts new tasks
only for the others: a chain runs in one task, a join costs one task a branch. A failing step ends
as a record, never as an exception; only cancellation passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from podium.core.budget import Ledger
from podium.core.conductor import Conductor
from podium.core.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    GuardrailBlocked,
    PodiumError,
    PromptTooLong,
    RequestRefused,
    WorkerError,
)
from podium.core.events import Emit, StepDone, StepProgress
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Message, ResponseOptions
from podium.core.run import Round, Run, StepRecord, step_label
from podium.core.worker import Toolbox, Worker
from podium.engine.calls import CallPolicy
from podium.engine.guardrails.admission import Inspector
from podium.engine.guardrails.chain import GuardrailChain
from podium.engine.requests import Pair
from podium.engine.step import StepRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run shares with its nested runs.

    `conductor` plans the nested ones. `call_ids` are the ids of all tool calls so far: ids must be
    unique. `guardrails` is None without guardrails. `persist`, where set, waits until events are
    persisted: at the start and after each plan.
    """

    conductor: Conductor
    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    ledger: Ledger
    emit: Emit | None
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    guardrails: GuardrailChain | None = None
    persist: Callable[[], Awaitable[None]] | None = None


class Nest(Protocol):
    """Execute a step whose worker is a conductor as a nested run."""

    async def __call__(
        self,
        question: str,
        history: tuple[Message, ...],
        trailing: tuple[Message, ...],
        options: ResponseOptions,
        *,
        step: int,
        begun: Run | None,
        stream: bool,
        keep: Callable[[Run], None],
    ) -> None:
        """Run the subtask; `history` is what the step may read, `begun` a run to continue.

        `keep` gets the run after every change and at its end, also when cancelled. Raises
        `BudgetExhausted` if the budget ends before there is an answer.
        """
        ...


class Execution:
    """Execute the workflow of one round.

    `started` is the run's start on the call policy's clock. `emit` is None without listeners,
    `inspector` without guardrails on replies. `previous` are earlier rounds, readable with access
    to `all`. Steps of the round from before an interruption are kept; failed ones are retried
    unless `keeps_failures`. Steps still missing in `records` at the end wait for tool results.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        round_: Round,
        *,
        started: float,
        emit: Emit | None,
        nest: Nest,
        previous: tuple[Round, ...] = (),
        inspector: Inspector | None = None,
        keeps_failures: bool = False,
        stream: bool = False,
    ) -> None:
        assert round_.workflow is not None, "only a planned round is executed"
        self.records: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.blocked: GuardrailBlocked | None = None
        """Set by a guardrail; steps that have not started are skipped then."""
        self.too_long = False
        """True if a step failed because its prompt exceeded the context window."""
        self.failures: dict[int, WorkerError] = {}
        """The errors of workers, by the index of the step that failed of it."""
        self.refused = False
        """True if a step failed because a provider refused its API key or its request."""
        self.waits = False
        """True if a step waits for results of the client's tools."""
        self.context = context
        self.run = run
        self.round = round_.index
        self.workflow = workflow = round_.workflow
        self.started = started
        self.emit = emit
        self.nest = nest
        self.inspector = inspector
        self.hedges = context.call_policy.hedges.policies
        self.stream = stream
        self.last = len(workflow.steps) - 1
        self.final = self.last if round_.answers else None
        options = run.response_options
        self.is_plain = (
            (options is DEFAULT_RESPONSE_OPTIONS or options == DEFAULT_RESPONSE_OPTIONS)
            and context.toolbox is None
            and not run.history
            and not run.trailing
            and not run.images
        )
        """True if a request holds the prompt alone."""
        self.cut_off: dict[int, StepRecord] = {}
        for record in round_.steps:
            is_kept = record.status == "done" or bool(record.waiting_for)
            is_kept = is_kept or (keeps_failures and record.status in ("failed", "skipped"))
            (self.records if is_kept else self.cut_off)[record.index] = record
            self.waits = self.waits or bool(record.waiting_for)
        self._previous = previous
        self._progress: dict[int, StepRecord] = {}
        self._reads = [workflow.reads(index) for index in range(self.last + 1)]
        self._readers: list[list[int]] = [[] for _ in self._reads]
        self._missing = [0 for _ in self._reads]
        for index, reads in enumerate(self._reads):
            if index in self.records:
                continue
            for read in reads:
                if read not in self.records or self.records[read].status == "waiting":
                    self._readers[read].append(index)
                    self._missing[index] += 1

    async def execute(self) -> None:
        """Run every step that is not finished and does not wait."""
        ready = [
            index
            for index, missing in enumerate(self._missing)
            if not missing and index not in self.records
        ]
        if ready:
            async with asyncio.TaskGroup() as group:
                await self._run_from(ready, group)

    async def _run_from(self, ready: list[int], group: asyncio.TaskGroup) -> None:
        """Run the first ready step here and the others in tasks, then what became ready."""
        while ready:
            for other in ready[1:]:
                group.create_task(self._run_from([other], group))
            index = ready[0]
            await self._run_step(index)
            ready = []
            if self.waits and self.records[index].status == "waiting":
                return
            for reader in self._readers[index]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    ready.append(reader)

    async def _run_step(self, index: int) -> None:
        """Run the step and keep its record, however it ends."""
        step = StepRunner(self, index)
        try:
            obstacle = self._obstacle(index)
            if obstacle is None:
                record = await step.run(self._pairs(index))
            else:
                record = step.record("skipped", error=obstacle)
        except BudgetExhausted as error:
            self.exhausted = self.exhausted or error
            record = step.broken_off("skipped", str(error))
        except GuardrailBlocked as error:
            self.blocked = self.blocked or error
            record = step.record("failed", error=str(error))
        except PodiumError as error:
            if isinstance(error, WorkerError):
                self.failures[index] = error
            self.too_long = self.too_long or isinstance(error, PromptTooLong)
            self.refused = self.refused or isinstance(error, AuthenticationFailed | RequestRefused)
            record = step.broken_off("failed", str(error))
        except asyncio.CancelledError:
            self._keep(step.broken_off("cancelled", "stopped before it was done"))
            raise
        self._keep(record)

    def _keep(self, record: StepRecord) -> None:
        self.records[record.index] = record
        if record.status == "waiting":
            self.waits = True
        if self.emit is not None:
            self.emit(StepDone(self.run.id, record))

    def save_progress(self, record: StepRecord) -> None:
        """Save the progress of a step that is still running."""
        self._progress[record.index] = record
        if self.emit is not None:
            self.emit(StepProgress(self.run.id, record))

    def steps_so_far(self) -> tuple[StepRecord, ...]:
        """Return what a resumed run would continue from."""
        known = {**self.cut_off, **self._progress, **self.records}
        return tuple(step for _, step in sorted(known.items()))

    def _obstacle(self, index: int) -> str | None:
        """Return why the step cannot run, if it cannot."""
        reads = self._reads[index]
        for read in reads:  # not `any`: a generator costs more than the look at one record
            if self.records[read].status == "done":
                break
        else:
            if reads:
                return "every step that this one may read has failed"
        return None if self.blocked is None else "a guardrail ended the round"

    def _pairs(self, index: int) -> list[Pair]:
        """Return what the step may read: steps of this round and, with `all`, of earlier ones."""
        pairs = []
        if self._previous and self.workflow.steps[index].access == "all":
            pairs = [
                Pair(step_label(step, round_), step.subtask, step.reply)
                for round_ in self._previous
                for step in round_.steps
                if step.status == "done"
            ]
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                pairs.append(Pair(str(read), record.subtask, record.reply))
        return pairs
