"""The report: one page about an evaluation, with tables and failed samples.

    write_report(Path("measured/math500"), Path("report"))

The page is one file that loads nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

from podium._util.distribution import entropy_bits, shares
from podium._util.files import explain_write_errors, write_atomically
from podium.core.roles import step_roles
from podium.core.run import Round, Run
from podium.core.workflow import Step
from podium.evals.comparison import (
    BEST_SINGLE,
    PER_TASK_BEST,
    SINGLE,
    ReferenceRows,
    find_references,
)
from podium.evals.log import EvalLog, read_eval_log
from podium.evals.page.rendering import plural, render
from podium.evals.results import (
    ErrorSummary,
    PairedDifference,
    StrategyRow,
    difficulty,
    summarise_errors,
)
from podium.evals.sample import Sample

Kind = Literal["conducted", "other", "alone", "ceiling"]
"""The kind of a strategy; also its CSS class."""

KINDS: Final[dict[Kind, str]] = {
    "conducted": "conductor",
    "other": "other strategies",
    "alone": "single worker",
    "ceiling": "upper bound",
}
_CONDUCTED: Final = ("conductor", "recursion", "rules", "baseline-conductor")
_UPPER_BOUNDS: Final = ("ideal", PER_TASK_BEST)
PAGE: Final = "report.html"
SIGNIFICANT: Final = 0.05
MAX_SKIPPED: Final = 20
MAX_FAILURES: Final = 20
MAX_OTHER_FAILURES: Final = 5
MAX_RUNS_READ: Final = 40
"""Runs that are searched for workers: a run of the études has only some of them."""

MAX_DEPTH: Final = 3


def kind_of(strategy: str) -> Kind:
    if strategy in _UPPER_BOUNDS:
        return "ceiling"
    if strategy.startswith(SINGLE) or strategy == BEST_SINGLE:
        return "alone"
    return "conducted" if strategy.partition(":")[0] in _CONDUCTED else "other"


def write_report(directory: Path, output: Path) -> Path:
    """Write the page about a results directory into another one; return its path."""
    page = report_page(make_view(read_eval_log(directory)))
    with explain_write_errors(output, 0, option="--output"):
        write_atomically(output / PAGE, page)
    return output / PAGE


def report_page(view: EvalView) -> str:
    return render(
        "report.html",
        view=view,
        kinds=KINDS,
        kind_of=kind_of,
        trend=trend,
        shares=shares,
        entropy_bits=entropy_bits,
        MAX_SKIPPED=MAX_SKIPPED,
    )


def make_view(log: EvalLog) -> EvalView:
    references = find_references((*log.all_rows, *log.rows))
    rows = visible_rows(log, references)
    return EvalView(log, rows, choose_headline_row(rows), references)


def visible_rows(log: EvalLog, references: ReferenceRows) -> list[StrategyRow]:
    """Return the table's rows, every single worker and the per-task best, the best first."""
    named = {row.strategy: row for row in log.rows}
    best = log.chosen.get(BEST_SINGLE)  # shown as best-single, and not a second time
    for row in log.all_rows:
        if row.strategy.startswith(SINGLE) and row.strategy != best:
            named.setdefault(row.strategy, row)
    rows = [
        *named.values(),
        *([references.best_per_task] if references.best_per_task is not None else []),
    ]
    return sorted(rows, key=lambda row: -row.accuracy.value)


def choose_headline_row(rows: Sequence[StrategyRow]) -> StrategyRow:
    """Return the row that the page is about: the best conductor, else the best of the rest."""
    for kind in ("conducted", "other", "alone"):
        found = [row for row in rows if kind_of(row.strategy) == kind]
        if found:
            return max(found, key=lambda row: row.accuracy.value)
    return rows[0]


def planning_rows(rows: Sequence[StrategyRow]) -> list[StrategyRow]:
    return [
        row
        for row in rows
        if kind_of(row.strategy) != "alone"
        and row.strategy != PER_TASK_BEST
        and any(len(sample.workers) != 1 for sample in row.samples)
    ]


def trend(difference: PairedDifference) -> str:
    """Return better, worse, or unsure if chance may explain the difference."""
    if difference.p_value >= SIGNIFICANT:
        return "unsure"
    return "better" if difference.share.value > 0 else "worse"


class FailureGroup(NamedTuple):
    """Failed samples of one strategy: how many there are, and those that are shown."""

    row: StrategyRow
    total: int
    is_open: bool
    shown: Sequence[FailedSample]


class FailedSample(NamedTuple):
    """A failed sample with its run, and the strategies that solved the task."""

    sample: Sample
    run: RunDetails
    difficulty: str | None
    solved_by: Sequence[str]


@dataclass(frozen=True)
class EvalView:
    """An evaluation as the page shows it."""

    log: EvalLog
    rows: Sequence[StrategyRow]
    headline_row: StrategyRow
    references: ReferenceRows

    @property
    def facts(self) -> list[str]:
        """Return what was evaluated, in a few words each."""
        log, summary = self.log, self.log.summary
        found = [plural(log.tasks, "task")]
        if int(summary.get("repeats") or 1) > 1:
            found.append(f"{summary['repeats']} repeats")
        found.append(plural(len(log.rows), "strategy", "strategies"))
        if "seed" in summary:
            found.append(f"seed {summary['seed']}")
        if log.pool:
            found.append(f"pool {log.pool}")
        judges = sorted({s.judge for row in log.all_rows for s in row.samples if s.judge})
        found += [f"judged by the model {judge}" for judge in judges]
        if not log.is_finished:
            found.append("incomplete: the evaluation was interrupted")
        return found

    @property
    def best_single_worker(self) -> str:
        best = self.references.best_single
        assert best is not None
        workers = {worker for sample in best.samples for worker in sample.workers}
        return workers.pop() if len(workers) == 1 else best.strategy

    @property
    def cost_ratio(self) -> tuple[float, str] | None:
        """Return how many times the best single worker's cost or tokens the headline row takes."""
        best = self.references.best_single
        if best is None:
            return None
        for unit, mine, theirs in (
            ("cost", self.headline_row.cost_usd, best.cost_usd),
            ("tokens", self.headline_row.tokens, best.tokens),
        ):
            if mine and theirs:
                return mine / theirs, unit
        return None

    @property
    def planning_rows(self) -> list[StrategyRow]:
        return planning_rows(self.rows)

    @property
    def errors(self) -> tuple[ErrorSummary, ...]:
        return summarise_errors(self.log.all_rows)

    @property
    def failures(self) -> Iterator[FailureGroup]:
        """Yield failed samples by strategy, the headline row first.

        Those that the best single worker solved come first: there, conducting lost an answer.
        """
        solved: dict[str, list[str]] = {}
        for row in self.rows:
            for task, right in row.outcomes.items():
                if right and row.strategy != PER_TASK_BEST:
                    solved.setdefault(task, []).append(row.strategy)
        best = (
            self.references.best_single.outcomes if self.references.best_single is not None else {}
        )
        shown = [row for row in self.rows if not row.strategy.startswith((SINGLE, PER_TASK_BEST))]
        shown = shown or [row for row in self.rows if row.strategy != PER_TASK_BEST]
        for row in sorted(shown, key=lambda row: row is not self.headline_row):
            failed = [sample for sample in row.samples if not sample.right]
            failed.sort(key=lambda s: (not best.get(s.task), -len(solved.get(s.task, ()))))
            is_headline = row is self.headline_row
            most = MAX_FAILURES if is_headline else MAX_OTHER_FAILURES
            yield FailureGroup(
                row,
                len(failed),
                is_headline,
                [
                    FailedSample(
                        sample,
                        RunDetails(self.log.run(row.strategy, sample)),
                        difficulty(sample),
                        solved.get(sample.task, ()),
                    )
                    for sample in failed[:most]
                ],
            )

    @property
    def workers(self) -> dict[str, tuple[str, str]]:
        """Return provider and model by worker, as the first runs name them."""
        samples = ((row.strategy, sample) for row in self.log.all_rows for sample in row.samples)
        return {
            profile.name: (profile.provider, _model_name(profile.model))
            for strategy, sample in islice(samples, MAX_RUNS_READ)
            for profile in self.log.run(strategy, sample).pool
        }


class RunDetails:
    """A run as the page shows it, with the role of each step."""

    def __init__(self, run: Run, depth: int = 0) -> None:
        self.run = run
        self._depth = depth

    @property
    def rounds(self) -> Iterator[tuple[Round, list[str], list[tuple[Step, str]]]]:
        """Yield each round, the roles of its planned steps, and those that were not executed."""
        found = iter(step_roles(self.run))
        for round_ in self.run.rounds:
            planned = round_.workflow.steps if round_.workflow else ()
            named = [next(found).value for _ in planned]
            done = {step.index for step in round_.steps}
            waiting = [
                pair for n, pair in enumerate(zip(planned, named, strict=True)) if n not in done
            ]
            yield round_, named, waiting

    def nested(self, runs: Sequence[Run]) -> RunDetails | None:
        """Return the last nested run of a step, down to `MAX_DEPTH`."""
        return RunDetails(runs[-1], self._depth + 1) if runs and self._depth < MAX_DEPTH else None


def _model_name(model: str) -> str:
    """Return the model; of a local file, only its name."""
    path = model.removeprefix("file:")
    return Path(path).name if path.startswith("/") else model
