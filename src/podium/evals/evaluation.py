"""An evaluation: strategies over the same cases, each case graded once.

    evaluation = Evaluation(ensemble, cases, seed=7, concurrency=8)
    row = await evaluation.row("best-single")

What one strategy needs of another (the best single worker, say) is measured first and shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from podium.engine import Switchboard
from podium.evals.case import Case
from podium.evals.ensemble import Ensemble
from podium.evals.row import Row
from podium.evals.sample import Sample, graded
from podium.evals.stage import Stage, Strategy
from podium.evals.strategies import candidates, check_strategy, strategy_named
from podium.run import Run

OPTIMISTIC: Final = "{of}, the best of {count} on these very tasks: an optimistic choice"

Watch = Callable[[str, int, int], None]
"""Told of every task that is done: the strategy, how many are, and how many there will be."""

Keep = Callable[[str, Sample, Run], None]
"""Handed every sample with its whole run, which is not kept in memory."""


def unwatched(strategy: str, done: int, total: int) -> None:
    """Nobody is watching."""


class Evaluation:
    """Measures strategies over cases. At most `concurrency` tasks are under way at a time."""

    def __init__(
        self,
        ensemble: Ensemble,
        cases: Sequence[Case],
        *,
        seed: int,
        concurrency: int,
        watch: Watch = unwatched,
        keep: Keep | None = None,
    ) -> None:
        self._ensemble = ensemble
        self._cases = cases
        self._concurrency = concurrency
        self._watch = watch
        self._keep = keep
        self._rows: dict[str, Row] = {}
        self._stage = Stage(
            workers=ensemble.workers,
            board=Switchboard(ensemble.retry),
            options=ensemble.options,
            seed=seed,
        )

    def check(self, name: str) -> None:
        """Refuse a strategy that there is not, before anything is asked."""
        check_strategy(name, self._ensemble, self._cases)

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
                else Row(name, await self._samples(name, strategy_named(name, self._ensemble)))
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
            OPTIMISTIC.format(of=best.strategy, count=len(rows)),
            {row.strategy: row.accuracy.value for row in rows},
        )

    async def _samples(self, name: str, strategy: Strategy) -> tuple[Sample, ...]:
        """The strategy on every case, in the order of the cases."""
        found: dict[int, Sample] = {}
        waiting = iter(enumerate(self._cases))

        async def work() -> None:
            for place, case in waiting:
                run = await strategy(case, self._stage)
                found[place] = sample = await graded(case, run)
                if self._keep is not None:
                    self._keep(name, sample, run)
                self._watch(name, len(found), len(self._cases))

        self._watch(name, 0, len(self._cases))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(self._cases))):
                    group.create_task(work())
        except ExceptionGroup as faults:
            raise _first(faults) from faults
        return tuple(found[place] for place in range(len(self._cases)))


def _first(faults: ExceptionGroup) -> Exception:
    """What went wrong first, which a person can act on."""
    fault: Exception = faults
    while isinstance(fault, ExceptionGroup):
        fault = fault.exceptions[0]
    return fault
