"""Performing: one strategy answers one task, and what comes of it is graded.

This is the whole of what a measurement does for one sample, so that it can be done here or on
another machine. Which samples there must be, and what they come to, is `evaluation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from podium.errors import StoreError, UsageError
from podium.evals.case import Case
from podium.evals.ensemble import Ensemble
from podium.evals.occasion import occasion
from podium.evals.sample import THE_STRATEGY, Sample, graded
from podium.evals.stage import Strategy
from podium.evals.strategies import strategy_named
from podium.run import Run, new_run_id, timestamp


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
