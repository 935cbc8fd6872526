"""A sample: the result of one strategy on one task, and the context in which it is run.

    with sample_context(repeat=2) as sample:
        run = await strategy(case, context)
    sample.cached_calls, sample.paid_usd

Workers do not see which sample they are called for. Two wrappers do, by a context variable:
`RepeatCachedWorker` caches replies per repeat, so that a repeat is another draw; `CountedWorker`
counts calls and what they cost.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any, Final, NamedTuple

from podium._util.lab import ETUDES, EVERYDAY, lab_extra
from podium.conductors import plan
from podium.conductors.evolved_turns import ends_accepted
from podium.core.budget import DEFAULT_OUTPUT_TOKENS, estimate_input_tokens
from podium.core.errors import MalformedPlan, RequestRefused, UsageError, WorkerError
from podium.core.pool import Pool
from podium.core.request import Reply, Request, Usage
from podium.core.roles import Role, step_roles
from podium.core.run import Round, Run, dump
from podium.core.task import Suite, Task
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import CallPolicy
from podium.engine.runner import Options
from podium.workers.cached import CachedWorker

THE_CONDUCTOR: Final = "the conductor"
THE_GRADER: Final = "the grader"
THE_BUDGET: Final = "the budget"
THE_STRATEGY: Final = "the strategy"


@dataclass(frozen=True, slots=True)
class Case:
    """A task, the pool that answers it, and its ideal plan if that is known."""

    task: Task
    pool: Pool
    ideal: Workflow | None = None

    @property
    def skills(self) -> int | None:
        """The number of skills that the task needs: the steps of its ideal plan."""
        return len(self.ideal) if self.ideal is not None else None


def make_cases(suite: Suite, pool: Pool) -> tuple[Case, ...]:
    return tuple(Case(task, pool) for task in suite)


def needs_roles(suite: str) -> bool:
    return suite in (ETUDES, EVERYDAY)


def check_roles(pool: Pool, suite: str = ETUDES) -> None:
    """Reject a pool that lacks a role of the suite."""
    if not needs_roles(suite):
        return
    with lab_extra():
        from podium_lab.etudes import FAMILIES, GENERALIST, ROLES
    needed = [family.value for family in FAMILIES] if suite == ETUDES else [GENERALIST]
    missing = [role for role in needed if role not in pool.names]
    if missing:
        raise UsageError(
            f"the suite {suite!r} needs a worker named {missing[0]!r}, and the pool has "
            f"{', '.join(pool.names)}; give a pool whose workers are named by their roles "
            f"({', '.join(ROLES)}) with --pool, or use perfect workers with --oracle"
        )


class SampleKey(NamedTuple):
    """A task by its id, and the repeat from 0."""

    task: str
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One task, answered and graded.

    `valid`: the plan was executed as the conductor wrote it. `steps`, `workers` and `roles` are
    those of every round, `shape` the first workflow's. `first_right`: the first round's answer
    was right; `accepted`: the conductor accepted an answer, rather than failed to write a plan;
    both are None without a second round. `calls` includes planning and retries. `expected` is the
    task's reference answer, `grader` its kind of grader, `judge` the worker that graded.

    `error` is the first call, plan or grader that failed, and `error_source` a worker's name,
    `THE_CONDUCTOR` or the like. `repeat` counts from 0. `cached_calls` counts calls that cached
    replies answered: `seconds` is meaningful only without any. `paid_usd` is what this sample added
    to the bill, `cost_usd` what it costs without cached replies.
    """

    task: str
    kind: str
    skills: int | None
    right: bool
    valid: bool
    workers: tuple[str, ...]
    shape: str
    worker_tokens: int | None
    orchestration_tokens: int | None
    seconds: float
    first_right: bool | None = None
    accepted: bool | None = None
    error: str | None = None
    roles: tuple[Role, ...] = ()
    calls: int = 0
    cost_usd: float | None = None
    expected: str = ""
    grader: str = ""
    difficulty: str | None = None
    judge: str | None = None
    error_source: str = ""
    repeat: int = 0
    cached_calls: int = 0
    paid_usd: float = 0.0

    @property
    def steps(self) -> int:
        return len(self.workers)

    @property
    def key(self) -> SampleKey:
        return SampleKey(self.task, self.repeat)

    def document(self, run: Run) -> dict[str, Any]:
        return {**asdict(self), "steps": self.steps, "run": dump(run)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Sample:
        """Read a sample from JSON, without its run; unknown keys are ignored."""
        known = {
            field.name: document[field.name] for field in fields(cls) if field.name in document
        }
        known["workers"] = tuple(known["workers"])
        known["roles"] = tuple(Role(role) for role in known.get("roles", ()))
        return cls(**known)


async def grade_run(case: Case, run: Run) -> Sample:
    """Grade the run's answer, or its plan if the task grades plans.

    If the grader fails, the answer counts as wrong and the grader is the error's source.
    """
    sample = _ungraded_sample(case, run)
    try:
        if case.task.plan_grader is not None:
            planned = run.rounds[0].workflow if sample.valid else None
            return replace(sample, right=planned is not None and case.task.plan_grader(planned))
        sample = replace(sample, right=await _is_right(case, run.answer))
        if len(run.rounds) < 2:
            return sample
        first, last = run.rounds[0].answer_step, run.rounds[-1]
        return replace(
            sample,
            first_right=await _is_right(case, first.reply if first is not None else None),
            accepted=ends_accepted(run.rounds) and _is_as_planned(last, run),
        )
    except Exception as error:  # noqa: BLE001 - a grader may be a user's function
        return replace(
            sample,
            error=sample.error or f"the grader raised {type(error).__name__}: {error}",
            error_source=sample.error_source or THE_GRADER,
        )


def _ungraded_sample(case: Case, run: Run) -> Sample:
    workflows = [round_.workflow for round_ in run.rounds if round_.workflow is not None]
    orchestration = run.orchestration
    error = _error_of(run)
    return Sample(
        task=case.task.id,
        kind=case.task.kind,
        skills=case.skills,
        right=False,
        valid=bool(run.rounds) and all(_is_as_planned(round_, run) for round_ in run.rounds),
        workers=tuple(step.worker for workflow in workflows for step in workflow.steps),
        shape=workflows[0].shape.value if workflows else "none",
        worker_tokens=_difference(run.usage, orchestration),
        orchestration_tokens=orchestration.total_tokens,
        seconds=run.spent.seconds,
        error=error,
        error_source="" if error is None else _error_source(run),
        roles=step_roles(run),
        calls=sum(1 for _ in run.calls),
        cost_usd=run.cost_usd,
        expected=case.task.answer,
        grader=getattr(case.task.grader, "__name__", type(case.task.grader).__name__),
        difficulty=case.task.difficulty,
        judge=case.task.judge,
    )


async def _is_right(case: Case, answer: str | None) -> bool:
    return answer is not None and await case.task.grader(answer)


def _is_as_planned(round_: Round, run: Run) -> bool:
    """True if the round executed its plan's text; a round without text counts as planned."""
    if round_.workflow is None and not round_.accepts_answer:
        return False
    if round_.role is not None:
        return True
    if not round_.plan_text:
        return not round_.warnings
    try:
        parsed = plan.parse(
            round_.plan_text,
            run.pool,
            max_steps=run.max_steps,
            may_accept=round_.index > 0,
        )
    except MalformedPlan:
        return False
    return parsed.workflow == round_.workflow


def _error_of(run: Run) -> str | None:
    """Return what failed, also an unreachable conductor whose question was answered anyway."""
    if run.status != "answered" or any(step.status != "done" for step in run.steps):
        return run.error
    planned = (
        round_.planning_attempts[-1].error for round_ in run.rounds if round_.planning_attempts
    )
    return next((error for error in planned if error is not None), None)


def _error_source(run: Run) -> str:
    failed = next((step.worker for step in run.steps if step.status == "failed"), None)
    return failed or (THE_BUDGET if run.status == "exhausted" else THE_CONDUCTOR)


def _difference(whole: Usage, part: Usage) -> int | None:
    if whole.total_tokens is None or part.total_tokens is None:
        return None
    return whole.total_tokens - part.total_tokens


MAX_UNANSWERED_CALLS: Final = 20
MAX_UNANSWERED_SECONDS: Final = 300.0
"""A worker that leaves so many calls in a row unanswered for so long is not called again: each
call takes the whole time limit."""


class EvalBudget:
    """The cost cap of an evaluation. `spent` includes what earlier sessions paid."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self.spent = 0.0
        self._highest_price: float | None = None
        self._in_flight = 0

    def start_strategy(self) -> None:
        """Forget the price of a sample: another strategy begins."""
        self._highest_price = None

    @property
    def needs_probe(self) -> bool:
        """True if there is a cap and no sample has shown yet what one costs."""
        return self.cap_usd is not None and self._highest_price is None

    @property
    def can_start_sample(self) -> bool:
        """True if one more sample at the highest price so far fits under the cap."""
        if self.cap_usd is None:
            return True
        if self.spent >= self.cap_usd:
            return self.cap_usd == self.spent == 0.0  # free workers need no money
        return self.spent + (self._in_flight + 1) * (self._highest_price or 0.0) <= self.cap_usd

    def start_sample(self) -> None:
        self._in_flight += 1

    def finish_sample(
        self, paid_usd: float, price_usd: float | None = None, *, failed: bool = False
    ) -> None:
        """Add what a sample cost; `price_usd` is its cost without cached replies, if known."""
        self._in_flight -= 1
        self.spent += paid_usd
        self.record_price(paid_usd, price_usd, failed=failed)

    def record_price(
        self, paid_usd: float, price_usd: float | None = None, *, failed: bool = False
    ) -> None:
        """Record the price of a sample of this strategy without counting it as spent.

        A sample that failed at no cost says nothing about the price of the next one.
        """
        price = max(paid_usd, price_usd or 0.0)
        if price or not failed:
            self._highest_price = max(self._highest_price or 0.0, price)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalContext:
    """Workers by name, the engine's call policy and options, the seed, and the repeat from 0."""

    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    options: Options
    seed: int
    repeat: int = 0

    def random(self, case: Case, purpose: str) -> Random:
        """Return a generator for one purpose on one task, seeded by the evaluation's seed."""
        again = f"/{self.repeat}" if self.repeat else ""
        return Random(f"{self.seed}/{case.task.id}/{purpose}{again}")  # noqa: S311 - repeatable


Strategy = Callable[[Case, EvalContext], Awaitable[Run]]
"""A way to answer: a function from a case to the run that answers it."""


@dataclass(slots=True)
class SampleContext:
    """The repeat of a sample, how many calls the cache answered, and what the others cost."""

    repeat: int = 0
    cached_calls: int = 0
    paid_usd: float = 0.0


_current: Final = ContextVar[SampleContext | None]("podium_sample", default=None)


@contextmanager
def sample_context(repeat: int = 0) -> Iterator[SampleContext]:
    """Attribute every call made inside, also in tasks started inside, to one sample."""
    context = SampleContext(repeat)
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def current_repeat() -> int:
    """Return the repeat of the current sample; 0 outside of any."""
    context = _current.get()
    return 0 if context is None else context.repeat


def count_cached_call() -> None:
    """Count a call of the current sample that a cached reply answered."""
    context = _current.get()
    if context is not None:
        context.cached_calls += 1


class RepeatCachedWorker(CachedWorker):
    """A worker with cached replies, separate for each repeat."""

    async def reply(self, request: Request) -> Reply:
        is_called = False

        async def call() -> Reply:
            nonlocal is_called
            is_called = True
            return await self._worker.reply(request)

        reply = await self._cache.fetch(self._key(request), call)
        if not is_called:
            count_cached_call()
        return reply

    def _key(self, request: Request) -> bytes:
        key, repeat = super()._key(request), current_repeat()
        if repeat == 0:
            return key
        return hashlib.blake2b(key + str(repeat).encode(), digest_size=16).digest()


class CountedWorker(Worker):
    """A worker whose calls are counted in `calls` and paid for by the current sample.

    A call with unreported usage, and a failed call that may be billed, is charged at its
    estimate.
    """

    def __init__(
        self, worker: Worker, calls: Counter[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._calls = calls
        self._clock = clock
        self._unanswered = 0
        self._silent_since = 0.0

    async def reply(self, request: Request) -> Reply:
        name = self.profile.name
        if self._is_unresponsive:
            raise RequestRefused(
                f"{name} left {self._unanswered} calls in a row unanswered and is not called again "
                f"in this evaluation; repeat the command with --retry-errors when it is back"
            )
        self._calls[name] += 1
        began = self._clock()
        try:
            reply = await self._worker.reply(request)
        except BaseException as error:  # the engine cancels a call that takes too long
            self._unanswered += 1
            if self._unanswered == 1:
                self._silent_since = began
            if not isinstance(error, WorkerError) or error.billed:
                self._charge(self._estimate(request))
            raise
        self._unanswered = 0
        price = self.profile.price
        cost = None if price is None else price.cost(reply.usage)
        self._charge(self._estimate(request) if cost is None else cost)
        return reply

    def _charge(self, usd: float) -> None:
        context = _current.get()
        if context is not None:
            context.paid_usd += usd

    def _estimate(self, request: Request) -> float:
        """Return the most that the call may cost; 0 for a worker without a price."""
        price = self.profile.price
        if price is None:
            return 0.0
        inputs = estimate_input_tokens(request)
        limit = self.profile.limits.max_output_tokens
        outputs = request.max_tokens or limit or DEFAULT_OUTPUT_TOKENS
        return (inputs * price.highest_input + outputs * price.highest_output) / 1_000_000

    @property
    def _is_unresponsive(self) -> bool:
        silent = self._clock() - self._silent_since
        return self._unanswered >= MAX_UNANSWERED_CALLS and silent >= MAX_UNANSWERED_SECONDS
