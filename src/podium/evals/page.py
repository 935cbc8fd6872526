"""The report: one page about an evaluation, with tables and failed samples.

    write_report(Path("measured/math500"), Path("report"))

The page is one file that loads nothing and runs nothing. Templates escape everything; a content
security policy in the page forbids the browser to load or run anything but the page's own style, so
that a mistake in escaping could not be used.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from podium._util.distribution import entropy_bits, shares
from podium._util.files import explain_write_errors, write_atomically
from podium._version import __version__
from podium.core.roles import step_roles
from podium.core.run import Round, Run, timestamp
from podium.core.workflow import Step
from podium.evals.comparison import (
    BEST_SINGLE,
    PER_TASK_BEST,
    SINGLE,
    ReferenceRows,
    find_references,
)
from podium.evals.log import EvalLog, read_eval_log
from podium.evals.results import (
    ErrorSummary,
    IntervalEstimate,
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
    return "better" if difference.estimate.value > 0 else "worse"


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


UNKNOWN: Final = "–"
MINUS: Final = "−"
SHADES: Final = 10
"""Shades of a cell in a table of accuracies."""

MAX_TEXT: Final = 4_000
MAX_TITLE: Final = 160
_TEMPLATES: Final = Path(__file__).with_name("templates")
_ALLOWED_INVISIBLE: Final = frozenset("\n\t\u200c\u200d")
"""Not printable, and yet part of texts: line breaks, and the joiners of some scripts."""


def replace_invisible(text: str) -> str:
    """Replace characters that are invisible or change the reading direction."""
    shown = text.replace("\r\n", "\n")
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter.isprintable() or letter in _ALLOWED_INVISIBLE else "\ufffd"
        for letter in shown
    )


def shorten(text: str, longest: int = MAX_TITLE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def points(share: float) -> str:
    number = round(share * 100, 1)
    sign = MINUS if number < 0 else "+" if number > 0 else "±"
    return f"{sign}{abs(number):.1f}"


def interval(share: IntervalEstimate) -> str:
    low, high = (f"{end * 100:.1f}".replace("-", MINUS) for end in (share.low, share.high))
    return f"{low} to {high}"


def usd(dollars: float | None) -> str:
    """Format money with two significant digits."""
    if dollars is None:
        return UNKNOWN
    if dollars == 0:
        return "$0"
    digits = 1 - math.floor(math.log10(dollars)) if dollars < 1 else 2
    return f"${dollars:.{digits}f}"


def amount(number: float | None) -> str:
    """Format a count, or a mean of counts, with about three digits."""
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def seconds(number: float | None) -> str:
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f} s"
    return f"{number:.1f} s" if number >= 1 else f"{number * 1000:.0f} ms"


def p_value(probability: float) -> str:
    return "p < 0.001" if probability < 0.001 else f"p = {probability:.3f}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Format a count of things, as in `1 task` and `2 tasks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or f'{noun}s'}"


_FILTERS: Final[tuple[Callable[..., str], ...]] = (
    *(percent, points, interval, usd, amount, seconds, p_value, plural, shorten),
)


def render(template: str, **context: Any) -> str:
    style = (_TEMPLATES / "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            f"form-action 'none'",
            version=__version__,
            date=timestamp()[:10],
            **context,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update({function.__name__: function for function in _FILTERS})
    environment.globals.update(UNKNOWN=UNKNOWN, SHADES=SHADES, MAX_TEXT=MAX_TEXT)
    return environment


def _finalize(value: Any) -> Any:
    """Make every text visible before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return replace_invisible(value)
    return value
