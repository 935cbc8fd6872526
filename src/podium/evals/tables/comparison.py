"""Two evaluations of the same tasks, held against each other task by task.

For one strategy over two pools, two trainings or two versions: what is compared are the samples
that `podium eval run --output DIR` wrote, so either side may come from another machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from podium.errors import UsageError
from podium.evals.tables.measured import Measured, read_measured
from podium.evals.tables.row import difference_document
from podium.evals.tables.statistics import Difference, Share, paired_difference, rounded, share_of


class Outcome(NamedTuple):
    """What one side made of a task: how often it was right, and the answer of every try."""

    task: str
    right: float
    answers: tuple[str | None, ...]


class Flip(NamedTuple):
    """A task that one side answers rightly more often than the other."""

    first: Outcome
    second: Outcome

    @property
    def is_gain(self) -> bool:
        """Whether the second side is the one that is right."""
        return self.second.right > self.first.right


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcomes of the same tasks on two sides, in the same order."""

    first: tuple[Outcome, ...]
    second: tuple[Outcome, ...]

    @property
    def accuracies(self) -> tuple[Share, Share]:
        """How often each side is right."""
        first, second = (share_of(o.right for o in side) for side in (self.first, self.second))
        return first, second

    @property
    def difference(self) -> Difference:
        """How much more often the second is right than the first."""
        return paired_difference([o.right for o in self.second], [o.right for o in self.first])

    @property
    def same_answers(self) -> Share:
        """How often both give the same answer, word for word."""
        pairs = zip(self.first, self.second, strict=True)
        return share_of(first.answers == second.answers for first, second in pairs)

    @property
    def flips(self) -> tuple[Flip, ...]:
        """The tasks on which the two differ, those that the second gains before those it loses."""
        pairs = (Flip(*pair) for pair in zip(self.first, self.second, strict=True))
        differing = [flip for flip in pairs if flip.first.right != flip.second.right]
        return tuple(sorted(differing, key=lambda flip: not flip.is_gain))

    def is_within(self, most: float) -> bool:
        """Whether neither is right more often by more than that."""
        return abs(rounded(self.difference.share.value)) <= rounded(most)

    def document(self) -> dict[str, Any]:
        """The comparison as JSON."""
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


def compared(first: Path, second: Path, strategy: str) -> Comparison:
    """The samples of that strategy in two directories, which must be of the same tasks."""
    return compare_measured(read_measured(first), read_measured(second), strategy)


def compare_measured(first: Measured, second: Measured, strategy: str) -> Comparison:
    """The same of two evaluations that were read already."""
    one, other = outcomes_of(first, strategy), outcomes_of(second, strategy)
    alone = one.keys() ^ other.keys()
    if alone:
        raise UsageError(
            f"{len(alone)} tasks are in one of {first.directory} and {second.directory} alone; "
            f"measure both with the same suite, --limit, --seed and options"
        )
    return Comparison(tuple(one.values()), tuple(other[task] for task in one))


def outcomes_of(measured: Measured, strategy: str) -> Mapping[str, Outcome]:
    """What became of each task, by its id."""
    row = measured.row(strategy)
    answers = defaultdict[str, list[str | None]](list)
    for sample in sorted(row.samples, key=lambda sample: sample.repeat):
        answers[sample.task].append(measured.answer(strategy, sample))
    return {
        task: Outcome(task, right, tuple(answers[task])) for task, right in row.outcomes.items()
    }
