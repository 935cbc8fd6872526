"""Run strategies over the same cases and collect their samples.

    evaluation = Evaluation(setup, cases, seed=7, concurrency=8)
    row = await evaluation.row("best-single")

Strategies that others depend on (the best single worker, say) are run first and shared. Samples
of an earlier session are not run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from podium.core.errors import BudgetExhausted, StoreError, UsageError
from podium.core.run import Run, new_run_id, timestamp
from podium.evals.results import StrategyRow
from podium.evals.sample import (
    THE_STRATEGY,
    Case,
    EvalBudget,
    Sample,
    SampleKey,
    Strategy,
    grade_run,
    sample_context,
)
from podium.evals.setup import EvalSetup
from podium.evals.strategies.registry import check_strategy, expand_candidates, make_strategy

BEST_OF_SEVERAL: Final = "{of}, the best of {count} on these very tasks: an optimistic choice"
BEST_WORKER: Final = (
    "{of}, whose worker is the best alone on these very tasks: an optimistic choice"
)


class SampleResult(NamedTuple):
    """A sample and the run that it was taken from."""

    sample: Sample
    run: Run


ProgressCallback = Callable[[str, int, int], None]
"""Called with the strategy, and how many of how many samples are done."""

SampleCallback = Callable[[str, Sample, Run], None]
"""Called with each new sample and its run, which is not kept in memory."""

EarlierSamples = Callable[[str], Mapping[SampleKey, Sample]]
"""Returns the samples of a strategy from earlier sessions."""


def ignore_progress(strategy: str, done: int, total: int) -> None:
    """Do nothing."""


def no_earlier_samples(strategy: str) -> Mapping[SampleKey, Sample]:
    return {}


def _require_run(returned: object) -> Run:
    if not isinstance(returned, Run):
        raise TypeError(f"expected a strategy to return a Run, not {type(returned).__name__}")
    return returned


def _failed_run(strategy: str, case: Case, error: Exception) -> Run:
    return Run(
        id=new_run_id(),
        question=case.task.question,
        status="failed",
        pool=case.pool,
        conductor=strategy,
        created_at=timestamp(),
        error=f"the strategy raised {type(error).__name__}: {error}",
    )


class Evaluation:
    """Runs strategies over cases, with at most `concurrency` samples in flight.

    With `repeats`, every case is run so often. A `budget` must already include what the `known`
    samples cost. At its cap, `row` raises `BudgetExhausted`, and `unfinished` has the number of
    samples by strategy.
    """

    def __init__(
        self,
        setup: EvalSetup,
        cases: Sequence[Case],
        *,
        seed: int,
        concurrency: int,
        repeats: int = 1,
        on_progress: ProgressCallback = ignore_progress,
        on_sample: SampleCallback | None = None,
        known: EarlierSamples = no_earlier_samples,
        budget: EvalBudget | None = None,
    ) -> None:
        self._setup = setup
        self._cases = cases
        self._concurrency = concurrency
        self._repeats = repeats
        self._on_progress = on_progress
        self._on_sample = on_sample
        self._known = known
        self._strategies: dict[str, Strategy] = {}
        self._context = setup.context(seed)
        self._budget = budget or EvalBudget()
        self._rows: dict[str, StrategyRow] = {}
        self.unfinished: dict[str, int] = {}
        _require_distinct_ids(cases)

    def check(self, name: str) -> None:
        """Reject an unknown strategy before any worker is called."""
        check_strategy(name, self._setup, self._cases)

    @property
    def rows(self) -> tuple[StrategyRow, ...]:
        """All rows so far, including those that other strategies needed."""
        return tuple(self._rows.values())

    async def row(self, name: str) -> StrategyRow:
        """Run a strategy, once however often it is requested."""
        self.check(name)
        return await self._row(name)

    async def _row(self, name: str) -> StrategyRow:
        if name not in self._rows:
            candidates = await expand_candidates(name, self._setup, self._best_worker)
            self._rows[name] = (
                await self._best_row(name, candidates)
                if candidates
                else StrategyRow(name, await self._samples(name))
            )
        return self._rows[name]

    async def _best_worker(self) -> str:
        row = await self._row("best-single")
        return row.samples[0].workers[0]

    async def _best_row(self, name: str, candidates: Sequence[str]) -> StrategyRow:
        """Return the samples of the most accurate candidate; of several, the first."""
        rows = [await self._row(candidate) for candidate in candidates]
        best = max(rows, key=lambda row: row.accuracy.value)
        note = BEST_OF_SEVERAL if len(rows) > 1 else BEST_WORKER
        return StrategyRow(
            name,
            best.samples,
            note.format(of=best.strategy, count=len(rows)),
            {row.strategy: row.accuracy.value for row in rows},
        )

    async def _samples(self, name: str) -> tuple[Sample, ...]:
        keys = [
            (SampleKey(case.task.id, repeat), case)
            for repeat in range(self._repeats)
            for case in self._cases
        ]
        known = self._known(name)
        found = {key: known[key] for key, _ in keys if key in known}
        waiting = iter([(key, case) for key, case in keys if key not in found])

        async def run_next() -> bool:
            """Run the next sample; return False if there is none, or no money for it."""
            key, case = (
                next(waiting, (None, None)) if self._budget.can_start_sample else (None,) * 2
            )
            if key is None or case is None:
                return False
            found[key] = await self._run_one(name, case, key.repeat)
            self._on_progress(name, len(found), len(keys))
            return True

        async def run_all() -> None:
            while await run_next():
                pass

        self._on_progress(name, len(found), len(keys))
        self._budget.start_strategy()
        for sample in found.values():
            self._budget.record_price(
                sample.paid_usd, sample.cost_usd, failed=sample.error is not None
            )
        while self._budget.needs_probe and await run_next():
            pass  # one at a time until a sample shows what it costs
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(keys) - len(found))):
                    group.create_task(run_all())
        except ExceptionGroup as errors:
            raise _first_error(errors) from errors
        if len(found) < len(keys):
            self.unfinished[name] = len(found)
            raise BudgetExhausted("usd", self._budget.cap_usd or 0.0)
        return tuple(found[key] for key, _ in keys)

    async def run_sample(self, name: str, case: Case, repeat: int = 0) -> SampleResult:
        """Run and grade one sample; what a strategy raises is an error of the sample."""
        strategy = self._strategies.get(name)
        if strategy is None:
            strategy = self._strategies[name] = make_strategy(name, self._setup)
        context = self._context if repeat == 0 else replace(self._context, repeat=repeat)
        with sample_context(repeat) as spent:
            try:
                run = _require_run(await strategy(case, context))
            except (UsageError, StoreError):
                raise  # the user must act, and for every other task as well
            except Exception as error:  # noqa: BLE001 - a strategy may be a user's function
                run = _failed_run(name, case, error)
                sample = replace(await grade_run(case, run), error_source=THE_STRATEGY)
            else:
                sample = await grade_run(case, run)
        sample = replace(
            sample, repeat=repeat, cached_calls=spent.cached_calls, paid_usd=spent.paid_usd
        )
        return SampleResult(sample, run)

    async def _run_one(self, name: str, case: Case, repeat: int) -> Sample:
        self._budget.start_sample()
        paid, price, failed = 0.0, None, True
        try:
            sample, run = await self.run_sample(name, case, repeat)
            paid, price, failed = sample.paid_usd, sample.cost_usd, sample.error is not None
        finally:
            self._budget.finish_sample(paid, price, failed=failed)
        if self._on_sample is not None:
            self._on_sample(name, sample, run)
        return sample


def _require_distinct_ids(cases: Sequence[Case]) -> None:
    seen = set[str]()
    for case in cases:
        if case.task.id in seen:
            raise UsageError(f"two tasks have the id {case.task.id!r}; give each one its own id")
        seen.add(case.task.id)


def _first_error(errors: ExceptionGroup) -> Exception:
    error: Exception = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
