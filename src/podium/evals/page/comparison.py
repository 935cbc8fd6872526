"""The page that compares two evaluations of the same tasks: figures, and the tasks that flipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from podium._util.files import explain_write_errors, write_atomically
from podium.evals.comparison import Flip, compare_logs
from podium.evals.log import EvalLog, read_eval_log
from podium.evals.page.rendering import UNKNOWN, amount, render, seconds, usd
from podium.evals.page.report import RunDetails, trend
from podium.evals.results import StrategyRow
from podium.evals.sample import Sample

COMPARISON_PAGE: Final = "comparison.html"
MAX_FLIPS: Final = 25
"""Flips of each direction that are shown with their runs."""

Sides = tuple[EvalLog, EvalLog]


class FlipView(NamedTuple):
    """A task that flipped, with the sample and the run of each side."""

    flip: Flip
    samples: Sequence[Sample]
    runs: Sequence[RunDetails]

    @property
    def is_repeated(self) -> bool:
        """True if the task was tried several times."""
        return any(len(side.answers) > 1 for side in (self.flip.first, self.flip.second))


def write_comparison(first: Path, second: Path, strategy: str, output: Path) -> Path:
    """Write the page that compares a strategy in two evaluations; return its path."""
    sides = read_eval_log(first), read_eval_log(second)
    page = output / COMPARISON_PAGE
    with explain_write_errors(output, 0, option="--output"):
        write_atomically(page, comparison_page(sides, strategy))
    return page


def comparison_page(sides: Sides, strategy: str) -> str:
    comparison = compare_logs(*sides, strategy)
    gained = [flip for flip in comparison.flips if flip.is_gain]
    lost = [flip for flip in comparison.flips if not flip.is_gain]
    return render(
        "comparison.html",
        names=side_names(sides),
        strategy=strategy,
        comparison=comparison,
        tasks=len(comparison.first),
        figures=list(_figures(*(side.row(strategy) for side in sides))),
        flips=[
            ("gained", "Gained by", len(gained), _views(gained, sides, strategy)),
            ("lost", "Lost by", len(lost), _views(lost, sides, strategy)),
        ],
        trend=trend,
        MAX_FLIPS=MAX_FLIPS,
    )


def side_names(sides: Sides) -> tuple[str, str]:
    """Name the sides by their directories, numbered if these are alike."""
    first, second = (side.directory.resolve().name for side in sides)
    return (first, second) if first != second else (f"{first} (1)", f"{second} (2)")


def _figures(first: StrategyRow, second: StrategyRow) -> Iterator[tuple[str, str, str, str]]:
    references: Sequence[
        tuple[str, Callable[[float | None], str], Callable[[StrategyRow], float | None]]
    ] = (
        ("cost per task", usd, lambda row: row.cost_usd),
        ("tokens", amount, lambda row: row.tokens),
        ("planning tokens", amount, lambda row: row.orchestration_tokens),
        ("calls", amount, lambda row: row.calls),
        ("steps", amount, lambda row: row.steps()),
        ("p50 latency", seconds, lambda row: row.seconds(0.5)),
        ("p95 latency", seconds, lambda row: row.seconds(0.95)),
        ("worker entropy, bits", amount, lambda row: row.entropy_bits),
        ("errors", amount, lambda row: float(row.errors)),
    )
    for name, format_, read in references:
        one, other = read(first), read(second)
        ratio = f"× {amount(other / one)}" if one and other else UNKNOWN
        yield name, format_(one), format_(other), ratio


def _views(flips: Sequence[Flip], sides: Sides, strategy: str) -> list[FlipView]:
    return [_view(flip, sides, strategy) for flip in flips[:MAX_FLIPS]]


def _view(flip: Flip, sides: Sides, strategy: str) -> FlipView:
    samples = [
        _typical_sample(side.row(strategy), flip.first.task, is_right)
        for side, is_right in zip(sides, (not flip.is_gain, flip.is_gain), strict=True)
    ]
    runs = [side.run(strategy, sample) for side, sample in zip(sides, samples, strict=True)]
    return FlipView(flip, samples, [RunDetails(run) for run in runs])


def _typical_sample(row: StrategyRow, task: str, is_right: bool) -> Sample:
    """Return the first sample of the task with that outcome, else the first one."""
    tries = [sample for sample in row.samples if sample.task == task]
    return next((sample for sample in tries if sample.right is is_right), tries[0])
