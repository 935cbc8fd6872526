"""Reference rows of an evaluation, and two evaluations compared task by task.

Comparisons are of one strategy over two pools, trainings or versions, from two results directories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from podium.core.errors import UsageError
from podium.evals.log import EvalLog, read_eval_log
from podium.evals.results import (
    IntervalEstimate,
    PairedDifference,
    StrategyRow,
    difference_document,
    estimate_share,
    paired_difference,
    round_figure,
)
from podium.evals.sample import Sample

SINGLE: Final = "single:"
BEST_SINGLE: Final = "best-single"
BEST_OF: Final = "best-of"
PER_TASK_BEST: Final = "per-task best"
PER_TASK_BEST_NOTE: Final = "of {count} single workers, for each task the one that is right"

Unit = Literal["USD", "tokens"]


class ComputeMatch(NamedTuple):
    """A best-of-N for a strategy, and the ratio of its compute to the strategy's."""

    row: StrategyRow
    compute_ratio: float
    unit: Unit


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """The best single worker, the best worker per task and all best-of-N; None if missing."""

    best_single: StrategyRow | None = None
    best_per_task: StrategyRow | None = None
    best_of: tuple[StrategyRow, ...] = ()

    def regret(self, row: StrategyRow) -> PairedDifference | None:
        """Return the lead of the best worker per task; negative if the strategy is better."""
        return None if self.best_per_task is None else self.best_per_task.paired_difference(row)

    def lead(self, row: StrategyRow) -> PairedDifference | None:
        if self.best_single is None or self.best_single.samples == row.samples:
            return None
        return row.paired_difference(self.best_single)

    def match_compute(self, row: StrategyRow) -> ComputeMatch | None:
        """Return the best-of-N with equal compute: the cheapest that takes no less, else the
        largest. Compute is money if everything has a price, else tokens."""
        if row in self.best_of:
            return None
        unit, spent = _cost_per_task([row, *self.best_of])
        if spent is None or not self.best_of or not spent[0]:
            return None
        ratios = [part / spent[0] for part in spent[1:]]
        enough = [position for position, part in enumerate(ratios) if part >= 1.0]
        position = (
            min(enough, key=ratios.__getitem__)
            if enough
            else max(range(len(ratios)), key=ratios.__getitem__)
        )
        return ComputeMatch(self.best_of[position], ratios[position], unit)

    def document(self, row: StrategyRow) -> dict[str, Any]:
        document = row.document(self.best_single)
        if (regret := self.regret(row)) is not None:
            document["regret"] = difference_document(regret)
        if (matched := self.match_compute(row)) is not None:
            document["compute_matched"] = {
                "strategy": matched.row.strategy,
                "compute_ratio": round_figure(matched.compute_ratio),
                "unit": matched.unit,
                **difference_document(row.paired_difference(matched.row)),
            }
        return document


def find_references(rows: Iterable[StrategyRow]) -> ReferenceRows:
    known = {row.strategy: row for row in rows}
    singles = [row for name, row in known.items() if name.startswith(SINGLE)]
    best = known.get(BEST_SINGLE) or max(singles, key=lambda row: row.accuracy.value, default=None)
    return ReferenceRows(
        best_single=best,
        best_per_task=best_per_task(singles) if len(singles) > 1 else None,
        best_of=tuple(row for name, row in known.items() if name.startswith(BEST_OF)),
    )


def best_per_task(singles: Sequence[StrategyRow]) -> StrategyRow:
    """Return for each task the samples of its best worker; of several, with the fewest tokens."""
    by_task = defaultdict[str, list[StrategyRow]](list)
    for row in singles:
        for task, samples in _by_task(row).items():
            by_task[task].append(StrategyRow(row.strategy, tuple(samples)))
    best = [min(rows, key=_rank_key) for rows in by_task.values()]
    return StrategyRow(
        PER_TASK_BEST,
        tuple(sample for row in best for sample in row.samples),
        PER_TASK_BEST_NOTE.format(count=len(singles)),
    )


def _rank_key(row: StrategyRow) -> tuple[float, float]:
    return -sum(row.outcomes.values()), row.tokens if row.tokens is not None else float("inf")


def _by_task(row: StrategyRow) -> dict[str, list[Sample]]:
    found = defaultdict[str, list[Sample]](list)
    for sample in row.samples:
        found[sample.task].append(sample)
    return found


def _cost_per_task(rows: Sequence[StrategyRow]) -> tuple[Unit, list[float] | None]:
    """Return the cost per task of each row in one unit; None if unknown."""
    dollars = [row.cost_usd for row in rows]
    if all(dollars):
        return "USD", [part for part in dollars if part is not None]
    tokens = [row.tokens for row in rows]
    return "tokens", None if None in tokens else [part for part in tokens if part is not None]


class TaskOutcome(NamedTuple):
    """A task on one side: the share of right samples, and all answers."""

    task: str
    right: float
    answers: tuple[str | None, ...]


class Flip(NamedTuple):
    """A task with different outcomes on the two sides."""

    first: TaskOutcome
    second: TaskOutcome

    @property
    def is_gain(self) -> bool:
        return self.second.right > self.first.right


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcomes of the same tasks on two sides, in the same order."""

    first: tuple[TaskOutcome, ...]
    second: tuple[TaskOutcome, ...]

    @property
    def accuracies(self) -> tuple[IntervalEstimate, IntervalEstimate]:
        first, second = (
            estimate_share(o.right for o in side) for side in (self.first, self.second)
        )
        return first, second

    @property
    def difference(self) -> PairedDifference:
        """The lead of the second side."""
        return paired_difference([o.right for o in self.second], [o.right for o in self.first])

    @property
    def same_answers(self) -> IntervalEstimate:
        pairs = zip(self.first, self.second, strict=True)
        return estimate_share(first.answers == second.answers for first, second in pairs)

    @property
    def flips(self) -> tuple[Flip, ...]:
        """The tasks with different outcomes, gains first."""
        pairs = (Flip(*pair) for pair in zip(self.first, self.second, strict=True))
        differing = [flip for flip in pairs if flip.first.right != flip.second.right]
        return tuple(sorted(differing, key=lambda flip: not flip.is_gain))

    def is_within(self, most: float) -> bool:
        return abs(round_figure(self.difference.estimate.value)) <= round_figure(most)

    def document(self) -> dict[str, Any]:
        first, second = self.accuracies
        return {
            "n": len(self.first),
            "first": first.document(),
            "second": second.document(),
            "difference": difference_document(self.difference),
            "same_answers": self.same_answers.document(),
            "flipped": {
                "gained": [flip.first.task for flip in self.flips if flip.is_gain],
                "lost": [flip.first.task for flip in self.flips if not flip.is_gain],
            },
        }


def compare_directories(first: Path, second: Path, strategy: str) -> Comparison:
    one, other = (outcomes_of(read_eval_log(side), strategy) for side in (first, second))
    if alone := one.keys() ^ other.keys():
        raise UsageError(
            f"{len(alone)} tasks are in one of {first} and {second} alone; measure both with the "
            f"same suite, --limit, --seed and options"
        )
    return Comparison(tuple(one.values()), tuple(other[task] for task in one))


def outcomes_of(log: EvalLog, strategy: str) -> Mapping[str, TaskOutcome]:
    row = log.row(strategy)
    answers = defaultdict[str, list[str | None]](list)
    for sample in sorted(row.samples, key=lambda sample: sample.repeat):
        answers[sample.task].append(log.answer(strategy, sample))
    return {
        task: TaskOutcome(task, right, tuple(answers[task])) for task, right in row.outcomes.items()
    }
