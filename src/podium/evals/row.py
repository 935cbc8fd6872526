"""A row of a table: what the samples of one strategy come to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.evals.sample import Sample
from podium.evals.statistics import (
    Difference,
    Share,
    entropy_bits,
    mean,
    paired_difference,
    rounded,
    shares,
    wilson,
)


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one strategy, in the order of the tasks, and what is told of them.

    `note` says what a reader must know to judge the row; `candidates` are the accuracies among
    which the row's was chosen, where it was.
    """

    strategy: str
    samples: tuple[Sample, ...]
    note: str = ""
    candidates: Mapping[str, float] | None = None

    @property
    def accuracy(self) -> Share:
        """The share of tasks that were answered rightly."""
        return share_of(sample.right for sample in self.samples)

    @property
    def by_kind(self) -> dict[str, Share]:
        """The same for each kind of task."""
        kinds = defaultdict[str, list[bool]](list)
        for sample in self.samples:
            kinds[sample.kind].append(sample.right)
        return {kind: share_of(outcomes) for kind, outcomes in sorted(kinds.items())}

    @property
    def worker_counts(self) -> Counter[str]:
        """How many steps each worker was given."""
        return Counter(worker for sample in self.samples for worker in sample.workers)

    @property
    def entropy_bits(self) -> float:
        """How evenly the steps are spread over the workers."""
        return entropy_bits(self.worker_counts)

    @property
    def worker_tokens(self) -> float | None:
        """The tokens of workers for a task, on average."""
        return mean(sample.worker_tokens for sample in self.samples)

    @property
    def orchestration_tokens(self) -> float | None:
        """The tokens of planning for a task, on average."""
        return mean(sample.orchestration_tokens for sample in self.samples)

    def steps(self, skills: int | None = None) -> float | None:
        """How many steps a task gets on average: any task, or one that needs so many skills."""
        return mean(s.steps for s in self.samples if skills is None or s.skills == skills)

    @property
    def recursion_gain(self) -> Difference:
        """How much more often the last answer is right than the first round's was."""
        last = [sample.right for sample in self.samples]
        first = [
            sample.right if sample.first_right is None else sample.first_right
            for sample in self.samples
        ]
        return paired_difference(last, first)

    @property
    def accepted_when_right(self) -> Share:
        """Of the first answers that were right, how many were accepted as they were."""
        return share_of(s.accepted is True for s in self.samples if s.first_right)

    def against(self, other: Row) -> Difference:
        """How much more often this strategy is right than another one on the same tasks."""
        return paired_difference(outcomes(self.samples), outcomes(other.samples))

    def document(self, best_single: Row | None = None) -> dict[str, Any]:
        """The row as JSON; shares with two figures of interval beside them."""
        accuracy, valid = self.accuracy, [sample for sample in self.samples if sample.valid]
        document: dict[str, Any] = {
            "strategy": self.strategy,
            "n": len(self.samples),
            "accuracy": rounded(accuracy.value),
            "interval": interval(accuracy),
            "by_kind": {
                kind: {
                    "n": sum(sample.kind == kind for sample in self.samples),
                    "accuracy": rounded(share.value),
                    "interval": interval(share),
                }
                for kind, share in self.by_kind.items()
            },
            "valid_rate": _rounded(mean(sample.valid for sample in self.samples)),
            "accuracy_given_valid": _rounded(mean(sample.right for sample in valid)),
            "steps": _rounded(self.steps()),
            "steps_by_skills": {
                str(skills): _rounded(self.steps(skills))
                for skills in sorted({s.skills for s in self.samples if s.skills is not None})
            },
            "worker_tokens": _rounded(self.worker_tokens),
            "orchestration_tokens": _rounded(self.orchestration_tokens),
            "entropy_bits": _rounded(self.entropy_bits),
            "worker_shares": _all_rounded(shares(self.worker_counts)),
            "topology_shares": _all_rounded(shares(Counter(s.topology for s in self.samples))),
            "faults": sum(sample.fault is not None for sample in self.samples),
            "note": self.note,
        }
        if self.candidates is not None:
            document["candidates"] = _all_rounded(self.candidates)
        if any(sample.first_right is not None for sample in self.samples):
            document["recursion_gain"] = difference_document(self.recursion_gain)
            document["accepted_when_right"] = self.accepted_when_right.document()
        if best_single is not None and best_single is not self:
            document["against_best_single"] = difference_document(self.against(best_single))
        return document


def share_of(outcomes: Iterable[bool]) -> Share:
    """The share of outcomes that are true."""
    found = list(outcomes)
    return wilson(sum(found), len(found))


def outcomes(samples: Sequence[Sample]) -> list[bool]:
    """Which of them are right."""
    return [sample.right for sample in samples]


def interval(share: Share) -> list[float]:
    """The two ends of a share's interval."""
    return [rounded(share.low), rounded(share.high)]


def difference_document(difference: Difference) -> dict[str, float]:
    """A paired difference as JSON."""
    return {
        **difference.share.document(),
        "gained": difference.gained,
        "lost": difference.lost,
        "p_value": difference.p_value,
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else rounded(number)


def _all_rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(number) for name, number in numbers.items()}
