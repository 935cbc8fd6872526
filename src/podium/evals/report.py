"""A report: what was wanted of an evaluation, and the row of every strategy.

wanted = Wanted(strategies=("conductor", "moa"), limit=60, seed=7)
report = await reported(ensemble, wanted)
print(report.document())
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from podium._util.files import sha256_of
from podium._util.lab import ETUDES, lab_extra
from podium.config.problems import suggest
from podium.core.budget import Budget
from podium.core.errors import BudgetExhausted, UsageError
from podium.core.worker import Worker
from podium.evals.context import EvalBudget
from podium.evals.ensemble import Ensemble
from podium.evals.evaluation import Evaluation, Perform, Watch, nothing_known, unwatched
from podium.evals.recorded import is_recorded, recorded_pool
from podium.evals.sample import Case, Variant, check_roles, etude_cases, suite_cases
from podium.evals.strategies import made_of
from podium.evals.tables.comparison import yardsticks
from podium.evals.tables.row import Row
from podium.evals.written import SampleFiles
from podium.tasks.own import ENDINGS
from podium.tasks.reading import LeftOut
from podium.tasks.suites import USUAL_ETUDES, loaded_suite

if TYPE_CHECKING:
    from podium_lab.etudes import EtudeShape


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSpec:
    """Which strategies, on how many tasks of which suite, and how many of them at once.

    `suite` and `data` are as `podium.tasks.suite` takes them; a variant is for the études alone.
    Each task is put `repeats` times, once when left out. Nothing is begun any more when the whole
    has cost `cap_usd`. With `retry_faults`, samples of an earlier sitting in which something
    failed are measured again. `judge` is the worker that grades where a task has a model decide.
    `pool`, `conductor` and `untrained` are what the command line calls these, for whoever reads
    the report: who takes part is the ensemble's to say.
    """

    suite: str = ETUDES
    data: Path | None = None
    strategies: Sequence[str] = ("conductor",)
    limit: int | None = 100
    seed: int = 0
    variant: Variant = field(default_factory=Variant)
    concurrency: int = 8
    repeats: int | None = None
    cap_usd: float | None = None
    retry_faults: bool = False
    judge: str | None = None
    pool: str | None = None
    conductor: str | None = None
    untrained: str | None = None

    def __post_init__(self) -> None:
        if not self.strategies:
            raise UsageError("no strategy is named; name one, such as conductor")
        if self.suite != ETUDES and self.variant != Variant():
            raise UsageError(
                f"shapes, orders of the pool, pools less one and flaky pools are for the suite "
                f"{ETUDES!r} alone, not for {self.suite!r}; leave them out"
            )

    def posed(self, ensemble: Ensemble) -> Posed:
        """The tasks, over the ensemble's pool; what is no task in their file is left out."""
        pool = ensemble.pool
        if self.suite == ETUDES:
            count = self.limit or USUAL_ETUDES
            return Posed(etude_cases(count, self.seed, pool, self.variant))
        if is_recorded(self.suite):
            found = recorded_pool(self.suite, data=self.data, limit=self.limit, seed=self.seed)
            return Posed(suite_cases(found.tasks, pool))
        check_roles(pool, self.suite.partition(":")[0])
        loaded = loaded_suite(
            self.suite,
            data=self.data,
            limit=self.limit,
            seed=self.seed,
            judge=self._judge(ensemble),
        )
        return Posed(suite_cases(loaded.tasks, pool), loaded.left_out)

    def _judge(self, ensemble: Ensemble) -> Worker | None:
        if self.judge is None:
            return None
        if self.judge not in ensemble.workers:
            raise UsageError(
                f"the judge {self.judge!r} is no worker of this pool; "
                f"{suggest(self.judge, ensemble.workers)}"
            )
        return ensemble.workers[self.judge]


class Posed(NamedTuple):
    """The cases of an evaluation, and the lines of their file that are no tasks."""

    cases: tuple[Case, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that failed in some samples of a strategy: whose fault it was, in how many, and
    what the first of them said."""

    strategy: str
    at_fault: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Stop:
    """An evaluation that stopped at its cap: how many samples there are of a strategy that is
    not finished."""

    cap_usd: float
    spent_usd: float
    unfinished: Mapping[str, int]

    def __str__(self) -> str:
        done = ", ".join(f"{name} has {count} samples" for name, count in self.unfinished.items())
        return (
            f"stopped before the cap of {self.cap_usd:g} USD, {self.spent_usd:.4f} spent: {done}; "
            f"the same command with a higher --budget-usd goes on from there"
        )

    def document(self) -> dict[str, Any]:
        """The stop as JSON."""
        return {**asdict(self), "unfinished": dict(self.unfinished)}


@dataclass(frozen=True, slots=True)
class Report:
    """The rows, in the order in which their strategies were named; `measured` are those and all
    that had to be measured for them. `left_out` are the lines of the suite's file that are no
    tasks. `stop` is set where it ended before all was measured."""

    wanted: EvalSpec
    rows: tuple[Row, ...]
    measured: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()
    stop: Stop | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What failed, the most frequent first."""
        rows = [row for row in self.measured if row.candidates is None]  # or some count twice
        found = [problem for row in rows for problem in _problems(row)]
        return tuple(sorted(found, key=lambda problem: -problem.count))

    def document(self) -> dict[str, Any]:
        """The report as JSON; a strategy is compared with the best single worker where that was
        measured too."""
        measures = yardsticks(self.measured)
        document = {
            "suite": self.wanted.suite,
            "n": len(self.measured[0].outcomes) if self.measured else 0,
            "repeats": self.wanted.repeats or 1,
            "seed": self.wanted.seed,
            "variant": self.wanted.variant.document(),
            "pool": self.wanted.pool,
            "rows": [measures.document(row) for row in self.rows],
            "problems": [asdict(problem) for problem in self.problems],
            "left_out": [asdict(line) for line in self.left_out],
        }
        if self.stop is not None:
            document["stopped"] = self.stop.document()
        return document


async def reported(
    ensemble: Ensemble,
    wanted: EvalSpec,
    *,
    watch: Watch = unwatched,
    files: SampleFiles | None = None,
    perform: Perform | None = None,
) -> Report:
    """Measure what is wanted. With `files`, what they have of an earlier sitting is taken from
    there; `perform` is who measures, where not this process."""
    if wanted.variant.flaky:
        ensemble = ensemble.made_flaky(wanted.variant.flaky, wanted.seed)
    cases, left_out = wanted.posed(ensemble)
    _check_prices(wanted, ensemble)
    purse = EvalBudget(wanted.cap_usd)
    evaluation = Evaluation(
        ensemble,
        cases,
        seed=wanted.seed,
        concurrency=wanted.concurrency,
        repeats=wanted.repeats or 1,
        watch=watch,
        keep=files.keep if files is not None else None,
        known=partial(files.known, retry_faults=wanted.retry_faults) if files else nothing_known,
        perform=perform,
        purse=purse,
    )
    for name in wanted.strategies:
        evaluation.check(name)
    if files is not None:
        manifest = _manifest(wanted, cases, ensemble)
        called = {
            "pool": wanted.pool,
            "conductor": wanted.conductor,
            "untrained": wanted.untrained,
        }
        files.resume(manifest, made_of(wanted.strategies), called=called)
        if wanted.cap_usd is not None:
            purse.spent = files.paid_usd()
    rows, stop = list[Row](), None
    try:
        for name in wanted.strategies:
            rows.append(await evaluation.row(name))
    except BudgetExhausted:
        stop = Stop(wanted.cap_usd or 0.0, purse.spent, evaluation.unfinished)
    return Report(wanted, tuple(rows), evaluation.measured, left_out, stop)


def _check_prices(wanted: EvalSpec, ensemble: Ensemble) -> None:
    """A cap on money needs the price of everyone who may be asked, planners included."""
    conductors = [ensemble.conductor]
    if any(name.partition(":")[0] == "untrained" for name in wanted.strategies):
        conductors += ensemble.untrained.values()
    planners = [conductor.worker for conductor in conductors]
    asked = (*ensemble.pool, *(planner.profile for planner in planners if planner is not None))
    allowed = ensemble.options.budget.allow_unpriced
    Budget(usd=wanted.cap_usd, allow_unpriced=allowed).check(asked)


def _manifest(wanted: EvalSpec, cases: Sequence[Case], ensemble: Ensemble) -> dict[str, Any]:
    """What makes an evaluation this one and no other. Strategies and repeats may be added. Of a
    file of one's own all counts, for it also says how answers are graded."""
    tasks = [(case.task.id, case.task.question, case.task.answer) for case in cases]
    own = path if (path := Path(wanted.suite)).suffix in ENDINGS else None
    return {
        "suite": wanted.suite if own is None else own.name,
        "limit": wanted.limit,
        "seed": wanted.seed,
        "variant": wanted.variant.document(),
        "tasks": hashlib.blake2b(repr(tasks).encode(), digest_size=8).hexdigest(),
        "workers": list(ensemble.pool.names),
        "ensemble": ensemble.identity,
        "judge": wanted.judge,
        "file": None if own is None else sha256_of(own),
    }


def _problems(row: Row) -> Iterable[Problem]:
    failed = [sample for sample in row.samples if sample.fault is not None]
    for who, count in Counter(sample.at_fault for sample in failed).items():
        first = next(sample.fault for sample in failed if sample.at_fault == who)
        yield Problem(row.strategy, who, count, first or "")


def shapes_of(names: Sequence[str]) -> Mapping[EtudeShape, float]:
    """The shapes of these names, each as frequent as usual; one that is for tests alone as the
    most frequent of the others."""
    with lab_extra():
        from podium_lab.etudes import USUAL, EtudeShape
    known = [shape.value for shape in EtudeShape]
    for name in names:
        if name not in known:
            raise UsageError(f"no étude has the shape {name!r}; {suggest(name, known)}")
    often = max(USUAL.values())
    wanted = [EtudeShape(name) for name in names]
    return MappingProxyType({shape: USUAL.get(shape, often) for shape in wanted})
