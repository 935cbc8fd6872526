"""Execute a workflow: every step starts as soon as the steps it waits for are done."""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from podium.core.budget import Ledger
from podium.core.conductor import Conductor
from podium.core.errors import BudgetExhausted, GuardrailBlocked, PodiumError, WorkerError
from podium.core.events import Emit, StepDone, StepProgress
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Message, ResponseOptions
from podium.core.run import ANSWER_ROLES, Round, Run, StepRecord, step_label
from podium.core.worker import Toolbox, Worker
from podium.core.workflow import Condition, Step, Workflow
from podium.engine.calls import CallPolicy
from podium.engine.guardrails.admission import ReplyChecker
from podium.engine.guardrails.chain import GuardrailChain
from podium.engine.requests import PriorResult
from podium.engine.step import StepRunner


class RunNested(Protocol):
    """Answers a subtask as a nested run on the same ledger; `RunLoop` does."""

    async def __call__(
        self,
        question: str,
        history: tuple[Message, ...],
        trailing_messages: tuple[Message, ...],
        options: ResponseOptions,
        *,
        step: int,
        resumed: Run | None,
        stream: bool,
        on_change: Callable[[Run], None],
    ) -> None: ...


@dataclass(slots=True, kw_only=True)
class RunContext:
    """State that a run shares with its nested runs.

    `started` is the run's start on the call policy's clock. `call_ids` are the ids of all tool
    calls so far: ids must be unique. `guardrails` is None without guardrails. `persist`, where set,
    waits until events are persisted: at the start and after each plan.
    """

    nested_conductor: Conductor
    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    ledger: Ledger
    started: float
    emit: Emit | None
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    guardrails: GuardrailChain | None = None
    persist: Callable[[], Awaitable[None]] | None = None


class Execution:
    """Execute the workflow of one round.

    The task that finishes a step continues with the first step this made ready, and starts new
    tasks only for the others: a chain runs in one task, a join costs one task a branch. A failing
    step ends as a record, never as an exception; only cancellation passes through.

    `emit` is None without listeners, `reply_checker` without guardrails on replies. `run_nested`
    runs a step whose worker is a conductor. `previous` are earlier rounds, readable with access to
    `all`. Steps of the round from before an interruption are kept; failed ones are retried unless
    `keeps_failures`. Steps missing in `records` at the end wait for tool results.

    Of a round without a workflow the plan is still being written: `begin_step` starts its steps one
    by one, and `accept_plan` takes the whole plan, or `cancel` ends what has begun.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        round_: Round,
        *,
        emit: Emit | None,
        run_nested: RunNested,
        previous: tuple[Round, ...] = (),
        reply_checker: ReplyChecker | None = None,
        keeps_failures: bool = False,
        stream: bool = False,
    ) -> None:
        self.records: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.blocked: GuardrailBlocked | None = None
        """Set by a guardrail; steps that have not started are skipped then."""
        self.failures: dict[int, WorkerError] = {}
        """The errors of workers, by the index of the step that failed of it."""
        self.is_waiting = False
        """True if a step waits for results of the client's tools."""
        self.context = context
        self.run = run
        self.round = round_.index
        self.steps: list[Step] = []
        self.started = context.started
        self.emit = emit
        self.run_nested = run_nested
        self.reply_checker = reply_checker
        self.stream = stream
        self.last = run.max_steps - 1
        self.earliest_answer_step = run.max_steps
        """From here on, a step's reply may be the answer; this one holds the client's tools."""
        options = run.response_options
        self.sends_prompt_only = (
            (options is DEFAULT_RESPONSE_OPTIONS or options == DEFAULT_RESPONSE_OPTIONS)
            and context.toolbox is None
            and not run.history
            and not run.trailing_messages
            and not run.images
        )
        """True if a request holds the prompt alone."""
        self.interrupted: dict[int, StepRecord] = {}
        for record in round_.steps:
            is_kept = record.status == "done" or record.is_unneeded or bool(record.waiting_for)
            is_kept = is_kept or (keeps_failures and record.status in ("failed", "skipped"))
            (self.records if is_kept else self.interrupted)[record.index] = record
            self.is_waiting = self.is_waiting or bool(record.waiting_for)
        self._previous = previous
        self._progress: dict[int, StepRecord] = {}
        self._reads: list[tuple[int, ...]] = []
        self._dependents: list[list[int]] = []
        self._awaited_counts: list[int] = []
        self._deferred: list[int] = []
        """Steps that do not begin before the plan is whole."""
        self._ready: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        """Tasks that began before `execute`."""
        self._is_cancelled = False
        self._group: asyncio.TaskGroup | None = None
        if round_.workflow is not None:
            self._add_plan(round_.workflow, round_)

    def _add_plan(self, workflow: Workflow, round_: Round) -> None:
        """Add the steps of the plan that are not yet known, and those that were deferred."""
        known = len(self.steps)
        self.last = len(workflow.steps) - 1
        self.earliest_answer_step = find_earliest_answer_step(workflow, round_)
        for step in workflow.steps[known:]:
            self._add_step(step)
        for index in self._deferred:
            self._awaited_counts[index] -= 1
        self._ready = [
            index
            for index in (*self._deferred, *range(known, self.last + 1))
            if not self._awaited_counts[index] and index not in self.records
        ]

    def _add_step(self, step: Step) -> int:
        index, awaited_count, records = len(self.steps), 0, self.records
        reads = tuple(range(index)) if step.access == "all" else step.access
        self.steps.append(step)
        self._reads.append(reads)
        self._dependents.append([])
        if index not in records:
            awaited = reads if step.condition is None else {*reads, *step.condition.steps}
            for before in awaited:
                if before not in records or records[before].status == "waiting":
                    self._dependents[before].append(index)
                    awaited_count += 1
        self._awaited_counts.append(awaited_count)
        return index

    def begin_step(self, step: Step, *, deferred: bool) -> None:
        """Add the next step of a plan that is being written, and start it unless deferred."""
        index = self._add_step(step)
        if deferred:
            self._awaited_counts[index] += 1
            self._deferred.append(index)
        elif not self._awaited_counts[index]:
            self._start(index)

    def accept_plan(self, round_: Round) -> bool:
        """Take the whole plan; False if it does not contain what has begun, as it began."""
        workflow, begun = round_.workflow, tuple(self.steps)
        if workflow is None or workflow.steps[: len(begun)] != begun:
            return False
        if len(begun) > find_earliest_answer_step(workflow, round_):
            return False
        self._add_plan(workflow, round_)
        return True

    def cancel(self) -> None:
        """Cancel what has begun, once: a second time would cut short how it ends."""
        if not self._is_cancelled:
            self._is_cancelled = True
            for task in self.tasks:
                task.cancel()

    def start(self) -> None:
        ready, self._ready = self._ready, []
        for index in ready:
            self._start(index)

    async def execute(self) -> None:
        """Run every step that is not finished and does not wait."""
        if len(self._ready) == 1 and not self.tasks and max(map(len, self._dependents)) < 2:
            await self._run_from(self._ready)  # a chain needs no other task
        elif self._ready or self.tasks:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for task in self.tasks:
                    group.create_task(_wait_for(task))
                await self._run_from(self._ready)

    def _start(self, index: int) -> None:
        if self._group is not None:
            self._group.create_task(self._run_from([index]))
        else:
            self.tasks.append(asyncio.create_task(self._run_from([index])))

    async def _run_from(self, ready: list[int]) -> None:
        """Run the first ready step here and the others in tasks, then what became ready."""
        while ready and not self._is_cancelled:  # a worker may swallow its cancellation
            for other in ready[1:]:
                self._start(other)
            index = ready[0]
            await self._run_step(index)
            ready = []
            if self.is_waiting and self.records[index].status == "waiting":
                return
            for dependent in self._dependents[index]:
                self._awaited_counts[dependent] -= 1
                if not self._awaited_counts[dependent]:
                    ready.append(dependent)

    async def _run_step(self, index: int) -> None:
        """Run the step and keep its record, however it ends."""
        step = StepRunner(self, index)
        try:
            condition = self.steps[index].condition
            prior = self._readable_results(index)
            if condition is not None and not is_met(condition, self.records):
                record = step.record("skipped")
            elif not prior and self._reads[index]:
                error = "every step that this one may read has failed"
                record = step.record("skipped", error=error)
            elif self.blocked is not None:
                record = step.record("skipped", error="a guardrail ended the round")
            else:
                if self._previous and self.steps[index].access == "all":
                    prior = self._earlier_results() + prior
                record = await step.run(prior)
        except BudgetExhausted as error:
            self.exhausted = self.exhausted or error
            record = step.interrupted_record("skipped", str(error))
        except GuardrailBlocked as error:
            self.blocked = self.blocked or error
            record = step.record("failed", error=str(error))
        except PodiumError as error:
            if isinstance(error, WorkerError):
                self.failures[index] = error
            record = step.interrupted_record("failed", str(error))
        except asyncio.CancelledError:
            self._finish_step(step.interrupted_record("cancelled", "stopped before it was done"))
            raise
        self._finish_step(record)

    def _finish_step(self, record: StepRecord) -> None:
        self.records[record.index] = record
        if record.status == "waiting":
            self.is_waiting = True
        if self.emit is not None:
            self.emit(StepDone(self.run.id, record))

    def save_progress(self, record: StepRecord) -> None:
        self._progress[record.index] = record
        if self.emit is not None:
            self.emit(StepProgress(self.run.id, record))

    def steps_so_far(self) -> tuple[StepRecord, ...]:
        """Return what a resumed run would continue from."""
        known = {**self.interrupted, **self._progress, **self.records}
        return tuple(step for _, step in sorted(known.items()))

    def _readable_results(self, index: int) -> list[PriorResult]:
        """Return what the step may read of this round."""
        prior = []
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                prior.append(PriorResult(str(read), record.subtask, record.reply))
        return prior

    def _earlier_results(self) -> list[PriorResult]:
        """Return what a step with access to `all` may read of earlier rounds."""
        return [
            PriorResult(step_label(step, round_), step.subtask, step.reply)
            for round_ in self._previous
            for step in round_.steps
            if step.status == "done"
        ]


async def _wait_for(task: asyncio.Task[None]) -> None:
    await task


async def wait_for_end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait until all have ended, even if the caller is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def find_earliest_answer_step(workflow: Workflow, round_: Round) -> int:
    """Return the earliest step whose reply may be the answer; the number of steps if none may."""
    return workflow.earliest_answer_step if round_.role in ANSWER_ROLES else len(workflow.steps)


def is_met(condition: Condition, records: Mapping[int, StepRecord]) -> bool:
    """True if the steps that the condition names failed or, where it says so, differ."""
    named = [records[index] for index in condition.steps]
    if any(record.has_failed for record in named):
        return True
    if condition.predicate == "failed":
        return False
    return len({short_answer(record.reply) for record in named if record.reply}) > 1


MAX_REPLY_TAIL: Final = 20_000
"""Characters at the end of a reply that are read; an answer stands at the end."""

_TAGGED: Final = re.compile(r"<answer>([^<]{1,500})</answer>", re.IGNORECASE)
_BOXED: Final = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]{0,100}\}){1,200})\}")
_DECLARED: Final = re.compile(
    r"(?:####|\banswer(?:\s+is\b|\s*:))\**\s*([^\n]{1,500})", re.IGNORECASE
)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d{1,12})\s*\}\s*\{\s*(-?\d{1,12})\s*\}")
_NUMBER: Final = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?(?:/\d{1,12})?")
_FENCE: Final = "```"
_MARKS: Final = " \t\n.!;:,\"'`*_$()[]{}\\"


def short_answer(reply: str) -> str:
    """Return the answer of a reply in a comparable form.

    It is what stands in answer tags, in a box, or after "answer is", and else the last line; of
    that, the last number, or the words without case and punctuation. Of a reply that ends with a
    block of code, it is the code. The comparison is linear in the reply's length, and nothing
    that a reply says changes it.
    """
    text = unicodedata.normalize("NFKC", reply[-MAX_REPLY_TAIL:]).strip()
    if code := _final_code(text):
        return code
    for pattern in (_TAGGED, _BOXED, _DECLARED):
        if found := pattern.findall(text):
            text = found[-1]
            break
    else:
        lines = text.strip(f"{_FENCE} \n").splitlines()
        text = lines[-1] if lines else ""
    text = _FRACTION.sub(r"\1/\2", text)
    if numbers := _NUMBER.findall(text):
        return _number(numbers[-1])
    return " ".join(text.casefold().split()).strip(_MARKS)


def _final_code(text: str) -> str:
    """Return the code block that ends the text, if it names a language or has several lines."""
    if not text.endswith(_FENCE):
        return ""
    language, _, code = text.removesuffix(_FENCE).rpartition(_FENCE)[2].partition("\n")
    code = code.strip()
    return code if language.strip() or "\n" in code else ""


def _number(text: str) -> str:
    top, _, bottom = text.replace(",", "").partition("/")
    divisor = float(bottom or 1)
    value = float(top) / divisor if divisor else math.nan
    return f"{value:.6g}"
