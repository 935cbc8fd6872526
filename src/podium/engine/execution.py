"""Execute one workflow: every step starts as soon as the steps it may read are done.

The task that finishes a step continues with the first step this made ready, and starts new tasks
only for the others: a chain runs in one task, a join costs one task a branch. A failing step ends
as a record, never as an exception; only cancellation passes through.
"""

from __future__ import annotations

import asyncio

from podium.core.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    GuardrailBlocked,
    PodiumError,
    PromptTooLong,
    RequestRefused,
)
from podium.core.events import StepDone, StepNoted
from podium.core.request import DEFAULT_RESPONSE_OPTIONS
from podium.core.run import StepRecord, step_label
from podium.engine.assignment import Assignment, Scope
from podium.engine.requests import Pair
from podium.engine.step import StepRunner


class Execution:
    """Execute one workflow. Steps still missing in `records` at the end wait for tool results."""

    def __init__(self, assignment: Assignment, scope: Scope, *, stream: bool) -> None:
        self.records: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.blocked: GuardrailBlocked | None = None
        """Set by a guardrail; steps that have not started are skipped then."""
        self.too_long = False
        """True if a step failed because its prompt exceeded the context window."""
        self.refused = False
        """True if a step failed because a provider refused its API key or its request."""
        self.waits = False
        """True if a step waits for results of the client's tools."""
        self.assignment = assignment
        self.scope = scope
        self.hedges = scope.call_policy.hedges.policies
        self.stream = stream
        self.last = len(assignment.workflow.steps) - 1
        self.final = self.last if assignment.answers else None
        options = assignment.response_options
        self.is_plain = (
            (options is DEFAULT_RESPONSE_OPTIONS or options == DEFAULT_RESPONSE_OPTIONS)
            and scope.toolbox is None
            and not assignment.history
            and not assignment.images
        )
        """True if a request holds the prompt alone."""
        self.cut_off: dict[int, StepRecord] = {}
        for index, record in assignment.finished.items():
            (self.records if self._is_kept(record) else self.cut_off)[index] = record
            self.waits = self.waits or bool(record.waiting_for)
        self._noted: dict[int, StepRecord] = {}
        self._reads = [assignment.workflow.reads(index) for index in range(self.last + 1)]
        self._readers: list[list[int]] = [[] for _ in self._reads]
        self._missing = [0 for _ in self._reads]
        for index, reads in enumerate(self._reads):
            if index in self.records:
                continue
            for read in reads:
                if read not in self.records or self.records[read].status == "waiting":
                    self._readers[read].append(index)
                    self._missing[index] += 1

    def _is_kept(self, record: StepRecord) -> bool:
        """True if a step from before an interruption is not run again now."""
        if record.status == "done" or record.waiting_for:
            return True
        return self.assignment.keeps_failures and record.status in ("failed", "skipped")

    async def run(self) -> None:
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
        if self.scope.emit is not None:
            self.scope.emit(StepDone(self.scope.run_id, record))

    def note(self, record: StepRecord) -> None:
        """Save the progress of a step that is still running."""
        self._noted[record.index] = record
        if self.scope.emit is not None:
            self.scope.emit(StepNoted(self.scope.run_id, record))

    def steps_so_far(self) -> tuple[StepRecord, ...]:
        """Return what a resumed run would continue from."""
        known = {**self.cut_off, **self._noted, **self.records}
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
        previous = self.assignment.previous
        if previous and self.assignment.workflow.steps[index].access == "all":
            pairs = [
                Pair(step_label(step, round_), step.subtask, step.reply)
                for round_ in previous
                for step in round_.steps
                if step.status == "done"
            ]
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                pairs.append(Pair(str(read), record.subtask, record.reply))
        return pairs
