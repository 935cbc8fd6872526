"""Two evaluations of the same tasks, held against each other task by task.

For one strategy over two pools, two trainings or two versions: what is compared are the samples
that `podium eval run --output DIR` wrote, so either side may come from another machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from podium.errors import UsageError
from podium.evals.row import difference_document
from podium.evals.statistics import Difference, Share, paired_difference, rounded, share_of
from podium.evals.written import sample_file


class Outcome(NamedTuple):
    """What one side made of a task."""

    right: bool
    answer: str | None


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
        return share_of(first.answer == second.answer for first, second in pairs)

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
        }


def compared(first: Path, second: Path, strategy: str) -> Comparison:
    """The samples of that strategy in two directories, which must be of the same tasks."""
    one, other = read_outcomes(first, strategy), read_outcomes(second, strategy)
    alone = one.keys() ^ other.keys()
    if alone:
        raise UsageError(
            f"{len(alone)} tasks are in one of {first} and {second} alone; measure both with the "
            f"same suite, --limit, --seed and options"
        )
    return Comparison(tuple(one.values()), tuple(other[task] for task in one))


def read_outcomes(directory: Path, strategy: str) -> Mapping[str, Outcome]:
    """What became of each task, by its id."""
    path = sample_file(directory, strategy)
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        written = ", ".join(sorted(file.stem for file in directory.glob("*.jsonl")))
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); {directory} has samples of "
            f"{written or 'no strategy'}: podium eval run --output writes them"
        ) from error
    return dict(_outcomes(path, lines))


def _outcomes(path: Path, lines: list[str]) -> Iterator[tuple[str, Outcome]]:
    for number, line in enumerate(lines, start=1):
        try:
            sample = json.loads(line)
            yield sample["task"], Outcome(sample["right"], sample["run"]["answer"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path}, line {number}: expected a sample as podium eval run --output writes "
                f"them, and it is none or was cut off; measure again"
            ) from error
