"""Carrying out one workflow: every step starts the moment the steps it may read are done.

The task that finishes a step goes on with the first step that this made ready, and starts new
tasks only for the others; so a chain runs in one task, and a join costs one task a branch.
A step that fails ends as a record, never as an exception. The one exception that passes through
is cancellation, and then `records` holds what was finished before it, and what was cut off. A step
that waits for the client's tools is a record as well, and holds up those that read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from podium.core.errors import BudgetExhausted, GuardrailBlocked
from podium.core.events import StepDone, StepNoted
from podium.core.request import DEFAULT_RESPONSE_OPTIONS
from podium.core.run import StepRecord, place_of
from podium.core.worker import Worker
from podium.engine.assignment import Assignment, Scope
from podium.engine.calls import CallPolicy
from podium.engine.context import Pair
from podium.engine.step import StepRunner


class Execution:
    """One workflow being carried out."""

    def __init__(
        self,
        assignment: Assignment,
        workers: Mapping[str, Worker],
        call_policy: CallPolicy,
        scope: Scope,
        *,
        stream: bool,
    ) -> None:
        self.records: dict[int, StepRecord] = {}
        self.noted: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.blocked: GuardrailBlocked | None = None
        """What a guardrail did not let through. Steps that have not begun by then do not."""
        self.too_long = False
        """Whether a step failed because its prompt did not fit into its worker's window."""
        self.refused = False
        """True if a step failed because a provider refused its API key or its request."""
        self.waits = False
        """Whether a step waits for results of the client's tools."""
        self.assignment = assignment
        self.workers = workers
        self.call_policy = call_policy
        self.scope = scope
        self.inspection = scope.inspection
        self.hedges = call_policy.hedges.policies
        self.stream = stream
        self.last = len(assignment.workflow) - 1
        self.final = self.last if assignment.answers else None
        """The step whose reply is the answer, where one is."""
        response_options = assignment.response_options
        self.is_plain = (
            (
                response_options is DEFAULT_RESPONSE_OPTIONS
                or response_options == DEFAULT_RESPONSE_OPTIONS
            )
            and scope.toolbox is None
            and not assignment.history
            and not assignment.images
        )
        self.cut_off: dict[int, StepRecord] = {}
        for index, record in assignment.finished.items():
            (self.records if self._stays(record) else self.cut_off)[index] = record
            self.waits = self.waits or bool(record.waiting_for)
        self._reads = [assignment.workflow.reads(index) for index in range(self.last + 1)]
        self._readers: list[list[int]] = [[] for _ in self._reads]
        self._missing = [0 for _ in self._reads]
        for index, reads in enumerate(self._reads):
            if index in self.records:
                continue  # whatever becomes of those that it might have read
            for read in reads:
                if read not in self.records or self.records[read].status == "waiting":
                    self._readers[read].append(index)
                    self._missing[index] += 1

    async def carry_out(self) -> None:
        """Run every step that has not been run yet; afterwards `records` is complete, unless
        steps wait."""
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
            await StepRunner(self, index).perform()
            ready = []
            if self.waits and self.records[index].status == "waiting":
                return
            for reader in self._readers[index]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    ready.append(reader)

    def _stays(self, record: StepRecord) -> bool:
        """Whether a step of before is left as it is: finished, or not to be gone on with yet."""
        if record.status == "done" or record.waiting_for:
            return True
        return self.assignment.keeps_failures and record.status in ("failed", "skipped")

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
        """What a resume would go on from: steps that have ended, what is noted of others, and what
        there was of those that have not begun again."""
        known = {**self.cut_off, **self.noted, **self.records}
        return tuple(step for _, step in sorted(known.items()))

    def done(self, record: StepRecord) -> None:
        """Take the record of a step that has ended."""
        self.records[record.index] = record
        if record.status == "waiting":
            self.waits = True
        if self.scope.emit is not None:
            self.scope.emit(StepDone(self.scope.run_id, record))

    def obstacle(self, index: int) -> str | None:
        """Why the step cannot be carried out, if it cannot: it was to read something and nothing
        of that is there, or the round is to end."""
        reads = self._reads[index]
        for read in reads:  # not `all`: a generator costs more than the look at one record
            if self.records[read].status == "done":
                break
        else:
            if reads:
                return "every step that this one may read has failed"
        return None if self.blocked is None else "a guardrail ended the round"

    def pairs(self, index: int) -> list[Pair]:
        """What the step may read: earlier steps of this round, and with `all` rounds before."""
        pairs = []
        previous = self.assignment.previous
        if previous and self.assignment.workflow.steps[index].access == "all":
            pairs = [
                Pair(place_of(step, round_), step.subtask, step.reply)
                for round_ in previous
                for step in round_.steps
                if step.status == "done"
            ]
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                pairs.append(Pair(str(read), record.subtask, record.reply))
        return pairs
