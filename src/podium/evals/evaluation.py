"""An evaluation: strategies by name, each over the same cases, each case graded once.

    evaluation = Evaluation(ensemble, cases, seed=7, concurrency=8)
    row = await evaluation.row("best-single")

What one strategy needs of another (the best single worker, say) is measured first and shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from podium.config.problems import nearest
from podium.engine import Switchboard
from podium.errors import UsageError
from podium.evals.baselines import (
    DRAWN,
    FORMS,
    Form,
    majority,
    mixture_of_agents,
    reflection,
    single,
)
from podium.evals.case import Case
from podium.evals.conducting import conducted, ideal, random_plans
from podium.evals.ensemble import Ensemble
from podium.evals.row import Row
from podium.evals.sample import Sample, graded
from podium.evals.stage import Stage, Strategy
from podium.pool import CONDUCTOR_PROVIDER
from podium.run import Run

PLANNED: Final = ("conductor", "recursion", "untrained")
"""Strategies that need the conductor's model."""

PLANNING: Final = ("conductor", "untrained", "random")
"""Strategies that begin with a plan of their own, which can be graded as it is."""

STRATEGIES: Final = (
    "conductor",
    "recursion",
    "ideal",
    "best-single",
    "moa",
    "reflection",
    "majority",
    "random",
    "untrained",
)
"""The strategies by name; `single:W` and `reflection:W` are those of the worker W alone, and
`untrained:P` asks with the prompt P."""

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
        family, colon, which = name.partition(":")
        if colon and family in ("single", "reflection"):
            if which not in self._singles:
                raise UsageError(
                    f"the strategy {name!r} names no worker of this pool; "
                    f"{nearest(which, self._singles)}"
                )
        elif family == "untrained" and not self._ensemble.untrained:
            raise UsageError(
                "the strategy 'untrained' needs a conductor that is a model; set kind = \"model\""
            )
        elif colon and family == "untrained":
            if which not in self._ensemble.untrained:
                raise UsageError(
                    f"the strategy {name!r} names no prompt; "
                    f"{nearest(which, self._ensemble.untrained)}"
                )
        elif name == "ideal" and any(case.ideal is None for case in self._cases):
            raise UsageError("the strategy 'ideal' needs ideal plans, which only the études have")
        elif name not in STRATEGIES:
            raise UsageError(
                f"there is no strategy {name!r}; "
                f"{nearest(name, (*STRATEGIES, *(f'single:{w}' for w in self._singles)))}"
            )
        if family not in PLANNING and any(case.task.plan_grader for case in self._cases):
            raise UsageError(
                f"these tasks grade plans, and {name!r} writes none that could be graded; "
                f"use {', '.join(PLANNING[:-1])} or {PLANNING[-1]}"
            )

    async def row(self, name: str) -> Row:
        """What comes of that strategy; measured once, however often it is asked for."""
        self.check(name)
        return await self._row(name)

    async def _row(self, name: str) -> Row:
        if name not in self._rows:
            candidates = await self._candidates(name)
            self._rows[name] = (
                await self._best(name, candidates)
                if candidates
                else Row(name, await self._samples(name, self._strategy(name)))
            )
        return self._rows[name]

    async def _candidates(self, name: str) -> list[str]:
        """The strategies of which the best is told under that name; none if it is one itself."""
        family, _, which = name.partition(":")
        if name == "best-single":
            return [f"single:{worker}" for worker in self._singles]
        if name == "untrained":
            return [f"untrained:{prompt}" for prompt in self._ensemble.untrained]
        if name == "moa":
            aggregators = (DRAWN, await self._best_alone())
            return [f"moa:{worker}/{form}" for worker in aggregators for form in FORMS]
        if name == "reflection" or (family == "reflection" and which in self._singles):
            worker = which or await self._best_alone()
            return [f"reflection:{worker}/{form}" for form in FORMS]
        return []

    async def _best_alone(self) -> str:
        """The worker that is right most often when it is asked alone."""
        row = await self._row("best-single")
        return row.samples[0].workers[0]

    async def _best(self, name: str, candidates: Sequence[str]) -> Row:
        """The candidate that is right most often; of several, the first."""
        rows = [await self._row(candidate) for candidate in candidates]
        best = max(rows, key=lambda row: row.accuracy.value)
        return Row(
            name,
            best.samples,
            OPTIMISTIC.format(of=best.strategy, count=len(rows)),
            {row.strategy: row.accuracy.value for row in rows},
        )

    def _strategy(self, name: str) -> Strategy:
        family, _, which = name.partition(":")
        ensemble = self._ensemble
        match family:
            case "conductor":
                return conducted(ensemble.conductor, rounds=1)
            case "recursion":
                return conducted(ensemble.conductor, rounds=2)
            case "untrained":
                return conducted(ensemble.untrained[which], rounds=1)
            case "single":
                return single(which)
            case "reflection":
                worker, form = _in_form(which)
                return reflection(worker, form)
            case "ideal":
                return ideal
            case "moa":
                aggregator, form = _in_form(which)
                return mixture_of_agents(aggregator, form)
            case "majority":
                return majority
            case _:
                assert family == "random", "every other name is checked or resolved before"
                return random_plans

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

    @property
    def _singles(self) -> tuple[str, ...]:
        """The workers that can answer by themselves."""
        return tuple(w.name for w in self._ensemble.pool if w.provider != CONDUCTOR_PROVIDER)


def _in_form(which: str) -> tuple[str, Form]:
    """A worker and the form in which it is asked, as in `ann/system`."""
    worker, _, name = which.rpartition("/")
    (form,) = (form for form in FORMS if form == name)
    return worker, form


def _first(faults: ExceptionGroup) -> Exception:
    """What went wrong first, which a person can act on."""
    fault: Exception = faults
    while isinstance(fault, ExceptionGroup):
        fault = fault.exceptions[0]
    return fault
