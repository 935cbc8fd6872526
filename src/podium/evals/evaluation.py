"""An evaluation: strategies over the same cases, each case graded once, or as often as repeated.

    evaluation = Evaluation(ensemble, cases, seed=7, concurrency=8)
    row = await evaluation.row("best-single")

What one strategy needs of another (the best single worker, say) is measured first and shared.
What is known of an earlier sitting is not measured again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from podium.core.errors import BudgetExhausted, StoreError, UsageError
from podium.core.run import Run, new_run_id, timestamp
from podium.evals.context import EvalBudget, Strategy, occasion
from podium.evals.ensemble import Ensemble
from podium.evals.sample import THE_STRATEGY, Case, Sample, graded
from podium.evals.strategies import candidates, check_strategy, note_on, strategy_named
from podium.evals.tables.row import Row
from podium.evals.written import Try


class Performed(NamedTuple):
    """A sample, and the run that it was taken from."""

    sample: Sample
    run: Run


Perform = Callable[[str, Case, int], Awaitable[Performed]]
"""Has the strategy of that name answer a task, for the time of that number, from 0."""


class Performer:
    """Performs with the workers of one ensemble, in this process."""

    def __init__(self, ensemble: Ensemble, *, seed: int) -> None:
        self._ensemble = ensemble
        self._strategies: dict[str, Strategy] = {}
        self._stage = ensemble.stage(seed)

    async def __call__(self, name: str, case: Case, repeat: int) -> Performed:
        """Have the strategy answer, and grade what comes of it."""
        strategy = self._strategies.get(name)
        if strategy is None:
            strategy = self._strategies[name] = strategy_named(name, self._ensemble)
        stage = self._stage if repeat == 0 else replace(self._stage, repeat=repeat)
        with occasion(repeat) as now:
            try:
                run = _checked(await strategy(case, stage))
            except (UsageError, StoreError):
                raise  # a person must act, and for every other task as well
            except Exception as error:  # noqa: BLE001 - a strategy may be somebody's own function
                run = _broken_off(name, case, error)
                sample = replace(await graded(case, run), at_fault=THE_STRATEGY)
            else:
                sample = await graded(case, run)
        return Performed(
            replace(sample, repeat=repeat, recalled=now.recalled, paid_usd=now.paid_usd), run
        )


def _checked(returned: object) -> Run:
    """What the strategy returned, where that is a run: types do not bind somebody's own."""
    if not isinstance(returned, Run):
        raise TypeError(f"expected it to return a Run, not {type(returned).__name__}")
    return returned


def _broken_off(strategy: str, case: Case, error: Exception) -> Run:
    """A run of which there is nothing but the reason why."""
    return Run(
        id=new_run_id(),
        question=case.task.question,
        status="failed",
        pool=case.pool,
        conductor=strategy,
        created_at=timestamp(),
        error=f"the strategy raised {type(error).__name__}: {error}",
    )


OPTIMISTIC: Final = "{of}, the best of {count} on these very tasks: an optimistic choice"
ONE_ALONE: Final = "{of}, whose worker is the best alone on these very tasks: an optimistic choice"

Watch = Callable[[str, int, int], None]
"""Told of every task that is done: the strategy, how many are, and how many there will be."""

Keep = Callable[[str, Sample, Run], None]
"""Handed every sample with its whole run, which is not kept in memory."""


Known = Callable[[str], Mapping[Try, Sample]]
"""The samples of a strategy that are there from an earlier sitting."""


def unwatched(strategy: str, done: int, total: int) -> None:
    """Nobody is watching."""


def nothing_known(strategy: str) -> Mapping[Try, Sample]:
    """There was no earlier sitting."""
    return {}


class Evaluation:
    """Measures strategies over cases. At most `concurrency` tasks are under way at a time.

    With `repeats`, every case is put so often, and samples come repeat by repeat. `perform` is
    who does it, where not this process. Whoever hands in samples that are `known` and a purse has
    counted there what they cost. When the purse's cap is reached, `row` raises `BudgetExhausted`,
    and `unfinished` says how far it came.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        cases: Sequence[Case],
        *,
        seed: int,
        concurrency: int,
        repeats: int = 1,
        watch: Watch = unwatched,
        keep: Keep | None = None,
        known: Known = nothing_known,
        perform: Perform | None = None,
        purse: EvalBudget | None = None,
    ) -> None:
        self._ensemble = ensemble
        self._cases = cases
        self._concurrency = concurrency
        self._repeats = repeats
        self._watch = watch
        self._keep = keep
        self._known = known
        self._perform = perform or Performer(ensemble, seed=seed)
        self._purse = purse or EvalBudget()
        self._rows: dict[str, Row] = {}
        self.unfinished: dict[str, int] = {}
        _check_ids(cases)

    def check(self, name: str) -> None:
        """Refuse a strategy that there is not, before anything is asked."""
        check_strategy(name, self._ensemble, self._cases)

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that there are, those that others needed included."""
        return tuple(self._rows.values())

    async def row(self, name: str) -> Row:
        """What comes of that strategy; measured once, however often it is asked for."""
        self.check(name)
        return await self._row(name)

    async def _row(self, name: str) -> Row:
        if name not in self._rows:
            stand_ins = await candidates(name, self._ensemble, self._best_alone)
            self._rows[name] = (
                await self._best(name, stand_ins)
                if stand_ins
                else Row(name, await self._samples(name), note_on(name, self._cases))
            )
        return self._rows[name]

    async def _best_alone(self) -> str:
        """The worker that is right most often when it is asked alone."""
        row = await self._row("best-single")
        return row.samples[0].workers[0]

    async def _best(self, name: str, stand_ins: Sequence[str]) -> Row:
        """The candidate that is right most often; of several, the first."""
        rows = [await self._row(candidate) for candidate in stand_ins]
        best = max(rows, key=lambda row: row.accuracy.value)
        return Row(
            name,
            best.samples,
            (OPTIMISTIC if len(rows) > 1 else ONE_ALONE).format(of=best.strategy, count=len(rows)),
            {row.strategy: row.accuracy.value for row in rows},
        )

    async def _samples(self, name: str) -> tuple[Sample, ...]:
        """The strategy on every case, repeat by repeat, in the order of the cases."""
        tries = [
            (Try(case.task.id, repeat), case)
            for repeat in range(self._repeats)
            for case in self._cases
        ]
        known = self._known(name)
        found = {attempt: known[attempt] for attempt, _ in tries if attempt in known}
        waiting = iter([(attempt, case) for attempt, case in tries if attempt not in found])

        async def measured_one() -> bool:
            """Measure the next one; False where there is none, or no money for it."""
            attempt, case = next(waiting, (None, None)) if self._purse.is_enough else (None, None)
            if attempt is None or case is None:
                return False
            found[attempt] = await self._performed(name, case, attempt.repeat)
            self._watch(name, len(found), len(tries))
            return True

        async def work() -> None:
            while await measured_one():
                """The next one."""

        self._watch(name, len(found), len(tries))
        self._purse.turn()
        for sample in found.values():
            self._purse.note(sample.paid_usd, sample.cost_usd)
        if self._purse.is_blind:
            await measured_one()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(tries) - len(found))):
                    group.create_task(work())
        except ExceptionGroup as faults:
            raise _first(faults) from faults
        if len(found) < len(tries):
            self.unfinished[name] = len(found)
            raise BudgetExhausted("usd", self._purse.cap_usd or 0.0)
        return tuple(found[attempt] for attempt, _ in tries)

    async def _performed(self, name: str, case: Case, repeat: int) -> Sample:
        self._purse.begin()
        paid, price = 0.0, None
        try:
            sample, run = await self._perform(name, case, repeat)
            paid, price = sample.paid_usd, sample.cost_usd
        finally:
            self._purse.end(paid, price)
        if self._keep is not None:
            self._keep(name, sample, run)
        return sample


def _check_ids(cases: Sequence[Case]) -> None:
    """Two tasks of one id could not be told apart in any file or table."""
    seen = set[str]()
    for case in cases:
        if case.task.id in seen:
            raise UsageError(f"two tasks have the id {case.task.id!r}; give each one its own id")
        seen.add(case.task.id)


def _first(faults: ExceptionGroup) -> Exception:
    """What went wrong first, which a person can act on."""
    fault: Exception = faults
    while isinstance(fault, ExceptionGroup):
        fault = fault.exceptions[0]
    return fault
