"""Run an evaluation from its specification, and report a row per strategy.

    spec = EvalSpec(strategies=("conductor", "moa"), limit=60, seed=7)
    report = await run_eval(setup, spec)
    print(report.document())

A suite file has the options of an evaluation in TOML; paths are relative to the file, and command
line options take precedence:

    suite = "tasks.jsonl"               # or a benchmark's name
    strategies = ["conductor", "best-single"]
    pool = "pool.toml"
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, ValidationError

from podium._util.files import read_toml, sha256_file
from podium._util.lab import ETUDES, lab_extra
from podium._util.tables import Dollars, Table
from podium.config.problems import suggest, validation_problem
from podium.config.workers import Count, Name
from podium.core.budget import Budget
from podium.core.errors import BudgetExhausted, UsageError
from podium.core.worker import Worker
from podium.evals.comparison import find_references
from podium.evals.evaluation import (
    Evaluation,
    ProgressCallback,
    ignore_progress,
    no_earlier_samples,
)
from podium.evals.log import EvalLogWriter
from podium.evals.results import ErrorSummary, StrategyRow, summarise_errors
from podium.evals.sample import Case, EvalBudget, check_roles, make_cases
from podium.evals.setup import EvalSetup
from podium.evals.strategies.registry import EVOLVED, ROUTER, strategy_checksums
from podium.tasks.records import ENDINGS, SkippedLine
from podium.tasks.suites import DEFAULT_ETUDES, read_suite


class LoadedCases(NamedTuple):
    """The cases of an evaluation, and the lines of their file that are no tasks."""

    cases: tuple[Case, ...]
    skipped: tuple[SkippedLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSpec:
    """The specification of an evaluation: strategies, a suite, limits, and concurrency.

    `suite` and `data` are as `podium.tasks.load_suite` takes them. No sample starts that may exceed
    `cap_usd`. With `retry_errors`, samples of earlier sessions with an error are run again. `judge`
    is the worker that grades where a task has a model decide. `pool`, `conductor` and
    `baseline_conductor` are names for the report.
    """

    suite: str = ETUDES
    data: Path | None = None
    strategies: Sequence[str] = ("conductor",)
    limit: int | None = 100
    seed: int = 0
    concurrency: int = 8
    repeats: int | None = None
    cap_usd: float | None = None
    retry_errors: bool = False
    judge: str | None = None
    pool: str | None = None
    conductor: str | None = None
    baseline_conductor: str | None = None

    def __post_init__(self) -> None:
        if not self.strategies:
            raise UsageError("no strategy given; name one, such as conductor")

    def load_cases(self, setup: EvalSetup) -> LoadedCases:
        pool = setup.pool
        if self.suite == ETUDES:
            with lab_extra():
                from podium_lab.evals.tables import make_etude_cases
            count = self.limit or DEFAULT_ETUDES
            return LoadedCases(make_etude_cases(count, self.seed, pool))
        check_roles(pool, self.suite.partition(":")[0])
        loaded = read_suite(
            self.suite,
            data=self.data,
            limit=self.limit,
            seed=self.seed,
            judge=self._judge(setup),
        )
        return LoadedCases(make_cases(loaded.tasks, pool), loaded.skipped)

    def _judge(self, setup: EvalSetup) -> Worker | None:
        if self.judge is None:
            return None
        if self.judge not in setup.workers:
            raise UsageError(
                f"the judge {self.judge!r} is no worker of this pool; "
                f"{suggest(self.judge, setup.workers)}"
            )
        return setup.workers[self.judge]


@dataclass(frozen=True, slots=True)
class BudgetStop:
    """An evaluation that stopped at its cap; `unfinished` has the number of samples so far."""

    cap_usd: float
    spent_usd: float
    unfinished: Mapping[str, int]

    def __str__(self) -> str:
        done = ", ".join(f"{name} has {count} samples" for name, count in self.unfinished.items())
        return (
            f"stopped before the cap of {self.cap_usd:g} USD, {self.spent_usd:.4f} spent: {done}; "
            f"repeat the command with a higher --budget-usd to continue"
        )

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "unfinished": dict(self.unfinished)}


@dataclass(frozen=True, slots=True)
class EvalReport:
    """The rows in the order of the strategies; `all_rows` also has what these needed.

    `skipped` are the lines of the suite's file that are no tasks. `stop` is set if the evaluation
    ended at its cap.
    """

    spec: EvalSpec
    rows: tuple[StrategyRow, ...]
    all_rows: tuple[StrategyRow, ...]
    skipped: tuple[SkippedLine, ...] = ()
    stop: BudgetStop | None = None

    @property
    def errors(self) -> tuple[ErrorSummary, ...]:
        # a row with candidates repeats the samples of one
        return summarise_errors(row for row in self.all_rows if row.candidates is None)

    def document(self) -> dict[str, Any]:
        references = find_references(self.all_rows)
        document = {
            "suite": self.spec.suite,
            "n": len(self.all_rows[0].outcomes) if self.all_rows else 0,
            "repeats": self.spec.repeats or 1,
            "seed": self.spec.seed,
            "pool": self.spec.pool,
            "rows": [references.document(row) for row in self.rows],
            "errors": [asdict(summary) for summary in self.errors],
            "skipped": [asdict(line) for line in self.skipped],
        }
        if self.stop is not None:
            document["stopped"] = self.stop.document()
        return document


async def run_eval(
    setup: EvalSetup,
    spec: EvalSpec,
    *,
    on_progress: ProgressCallback = ignore_progress,
    log: EvalLogWriter | None = None,
) -> EvalReport:
    """Run an evaluation. With a `log`, resume from its samples and write new ones to it."""
    cases, skipped = spec.load_cases(setup)
    _check_prices(spec, setup)
    budget = EvalBudget(spec.cap_usd)
    evaluation = Evaluation(
        setup,
        cases,
        seed=spec.seed,
        concurrency=spec.concurrency,
        repeats=spec.repeats or 1,
        on_progress=on_progress,
        on_sample=log.write_sample if log is not None else None,
        known=partial(log.known, retry_errors=spec.retry_errors) if log else no_earlier_samples,
        budget=budget,
    )
    for name in spec.strategies:
        evaluation.check(name)
    if log is not None:
        names = ("pool", "conductor", "baseline_conductor")
        labels = {name: getattr(spec, name) for name in names}
        labels |= {"n": len(cases), "strategies": list(spec.strategies)}
        checksums = strategy_checksums(spec.strategies)
        log.resume(_manifest(spec, cases, setup), checksums, labels=labels)
        if spec.cap_usd is not None:
            budget.spent = log.paid_usd()
    rows, stop = list[StrategyRow](), None
    try:
        for name in spec.strategies:
            rows.append(await evaluation.row(name))
    except BudgetExhausted:
        stop = BudgetStop(spec.cap_usd or 0.0, budget.spent, evaluation.unfinished)
    return EvalReport(spec, tuple(rows), evaluation.rows, skipped, stop)


def _check_prices(spec: EvalSpec, setup: EvalSetup) -> None:
    """Require a price for every worker that may be called, planners included, under a cap."""
    conductors = [setup.conductor]
    if any(name.partition(":")[0] == "baseline-conductor" for name in spec.strategies):
        conductors += setup.baseline_conductors.values()
    planners = [conductor.worker for conductor in conductors]
    profiles = (*setup.pool, *(planner.profile for planner in planners if planner is not None))
    allowed = setup.options.budget.allow_unpriced
    Budget(usd=spec.cap_usd, allow_unpriced=allowed).check(profiles)


def _manifest(spec: EvalSpec, cases: Sequence[Case], setup: EvalSetup) -> dict[str, Any]:
    """Return what identifies an evaluation. Strategies and repeats may be added later."""
    tasks = [(case.task.id, case.task.question, case.task.answer) for case in cases]
    file = path if (path := Path(spec.suite)).suffix in ENDINGS else None
    return {
        "suite": spec.suite if file is None else file.name,
        "limit": spec.limit,
        "seed": spec.seed,
        "tasks": hashlib.blake2b(repr(tasks).encode(), digest_size=8).hexdigest(),
        "workers": list(setup.pool.names),
        "setup": setup.fingerprint,
        "judge": spec.judge,
        "file": None if file is None else sha256_file(file),
    }


SUITE_FILE_SUFFIX: Final = ".toml"
PATH_KEYS: Final = ("data", "pool", "cache", "output")

Names = Annotated[tuple[Name, ...], Field(min_length=1, strict=False)]


class SuiteFile(Table):
    """The keys of a suite file."""

    suite: Name
    data: Name | None = None
    strategies: Names | None = None
    limit: Count | None = None
    seed: int | None = None
    repeats: Count | None = None
    pool: Name | None = None
    conductor: Name | None = None
    baseline_conductor: Name | None = None
    judge: Name | None = None
    oracle: bool | None = None
    concurrency: Count | None = None
    budget_usd: Dollars | None = None
    cache: Name | None = None
    output: Name | None = None

    def resolve_paths(self, directory: Path) -> SuiteFile:
        paths = [name for name in PATH_KEYS if getattr(self, name) is not None]
        if Path(self.suite).suffix in ENDINGS:
            paths.append("suite")
        seen = {name: str(directory / Path(getattr(self, name)).expanduser()) for name in paths}
        named = self.strategies and tuple(
            _resolve_strategy(name, directory) for name in self.strategies
        )
        led = self.conductor and _resolve_strategy(self.conductor, directory)
        return self.model_copy(update={**seen, "strategies": named, "conductor": led})


def _resolve_strategy(strategy: str, directory: Path) -> str:
    first, _, second = strategy.rpartition(":")
    if first in (ROUTER, EVOLVED):
        return f"{first}:{directory / second}"
    return f"{directory / first}:{second}" if first.endswith(".py") else strategy


def suite_file_for(suite: str) -> SuiteFile:
    if Path(suite).suffix == SUITE_FILE_SUFFIX:
        return read_suite_file(Path(suite))
    return SuiteFile(suite=suite)


def override(file: SuiteFile, **options: object) -> SuiteFile:
    """Return the file with the options that are set: not None, not empty, not False."""
    update = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if value is not None and value is not False and value != ""
    }
    return file.model_copy(update=update)


def read_suite_file(path: Path) -> SuiteFile:
    tables = read_toml(path)
    try:
        return SuiteFile.model_validate(tables).resolve_paths(path.parent)
    except ValidationError as error:
        raise validation_problem(path, error, SuiteFile) from None
