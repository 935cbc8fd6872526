"""The row of a strategy: the figures of its samples."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from podium._util.distribution import entropy_bits, shares
from podium.evals.sample import Sample
from podium.evals.statistics import (
    IntervalEstimate,
    PairedDifference,
    estimate_share,
    mean,
    paired_difference,
    quantile,
    round_figure,
)

_LEVELS: Final = ("very easy", "easy", "introductory", "medium", "interview", "hard", "competition")
"""Words for difficulty, the easiest first."""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """The samples of one strategy, in the order of the tasks.

    A task with several samples counts once, by its share of right ones. `note` is a caveat for
    readers; `candidates` are the accuracies among which the row was chosen, if it was.
    """

    strategy: str
    samples: tuple[Sample, ...]
    note: str = ""
    candidates: Mapping[str, float] | None = None

    @property
    def outcomes(self) -> dict[str, float]:
        """The share of right samples by task id."""
        return _outcomes(self.samples)

    @property
    def accuracy(self) -> IntervalEstimate:
        """The share of tasks answered correctly."""
        return estimate_share(self.outcomes.values())

    @property
    def accuracy_given_valid(self) -> IntervalEstimate | None:
        """The accuracy of samples with a valid plan; None without any."""
        valid = _outcomes(sample for sample in self.samples if sample.valid)
        return estimate_share(valid.values()) if valid else None

    @property
    def by_kind(self) -> dict[str, IntervalEstimate]:
        """The accuracy by kind of task."""
        return {kind: part.accuracy for kind, part in self.kinds.items()}

    @property
    def kinds(self) -> dict[str, StrategyRow]:
        """A row per kind of task."""
        return self._parts(lambda sample: sample.kind, str)

    @property
    def levels(self) -> dict[str, StrategyRow]:
        """A row per difficulty, the easiest first; empty if no difficulty is known."""
        return self._parts(difficulty, _by_level)

    @property
    def worker_counts(self) -> Counter[str]:
        """The number of steps by worker."""
        return Counter(worker for sample in self.samples for worker in sample.workers)

    @property
    def role_counts(self) -> Counter[str]:
        """The number of steps by role."""
        return Counter(role.value for sample in self.samples for role in sample.roles)

    @property
    def workers_by_role(self) -> Counter[tuple[str, str]]:
        """The number of steps by worker and role."""
        return Counter(
            (worker, role.value)
            for sample in self.samples
            if sample.roles
            for worker, role in zip(sample.workers, sample.roles, strict=True)
        )

    @property
    def entropy_bits(self) -> float:
        """The entropy of the workers' shares of steps."""
        return entropy_bits(self.worker_counts)

    @property
    def worker_tokens(self) -> float | None:
        """The mean worker tokens per task."""
        return mean(sample.worker_tokens for sample in self.samples)

    @property
    def orchestration_tokens(self) -> float | None:
        """The mean planning tokens per task."""
        return mean(sample.orchestration_tokens for sample in self.samples)

    @property
    def tokens(self) -> float | None:
        """The mean tokens per task."""
        parts = (self.worker_tokens, self.orchestration_tokens)
        return None if None in parts else sum(part or 0.0 for part in parts)

    @property
    def cost_usd(self) -> float | None:
        """The mean cost per task without cached replies."""
        return mean(sample.cost_usd for sample in self.samples)

    @property
    def calls(self) -> float | None:
        """The mean calls per task, planning included."""
        return mean(sample.calls for sample in self.samples)

    @property
    def valid_rate(self) -> float | None:
        """The share of samples with a valid plan."""
        return mean(sample.valid for sample in self.samples)

    @property
    def errors(self) -> int:
        """The number of samples with an error."""
        return sum(sample.error is not None for sample in self.samples)

    def seconds(self, share: float) -> float | None:
        """Return that quantile of the latency, over samples without cached replies."""
        return quantile((s.seconds for s in self.samples if not s.cached_calls), share)

    def steps(self, skills: int | None = None) -> float | None:
        """Return the mean steps per task, of all tasks or of those with so many skills."""
        return mean(s.steps for s in self.samples if skills is None or s.skills == skills)

    @property
    def recursion_gain(self) -> PairedDifference:
        """The gain of the last answer over the first round's."""
        first = _by_task(
            (sample.task, sample.right if sample.first_right is None else sample.first_right)
            for sample in self.samples
        )
        return paired_difference(list(self.outcomes.values()), list(first.values()))

    @property
    def accepted_when_right(self) -> IntervalEstimate:
        """The share of right first answers that were accepted unchanged."""
        right_at_first = (sample for sample in self.samples if sample.first_right)
        accepted = _by_task((sample.task, sample.accepted is True) for sample in right_at_first)
        return estimate_share(accepted.values())

    def against(self, other: StrategyRow) -> PairedDifference:
        """Return the paired difference to another strategy on the tasks that both have."""
        mine, theirs = self.outcomes, other.outcomes
        both = [task for task in mine if task in theirs]
        return paired_difference([mine[task] for task in both], [theirs[task] for task in both])

    def document(self, best_single: StrategyRow | None = None) -> dict[str, Any]:
        """Return the row as JSON. All but `seconds` is reproducible."""
        valid = self.accuracy_given_valid
        document: dict[str, Any] = {
            "strategy": self.strategy,
            **_accuracy_document(self),
            "samples": len(self.samples),
            "by_kind": {kind: _accuracy_document(part) for kind, part in self.kinds.items()},
            "by_difficulty": {
                level: {**_accuracy_document(part), "steps": _rounded(part.steps())}
                for level, part in self.levels.items()
            },
            "valid_rate": _rounded(self.valid_rate),
            "accuracy_given_valid": None if valid is None else round_figure(valid.value),
            "interval_given_valid": None if valid is None else interval(valid),
            "steps": _rounded(self.steps()),
            "steps_by_skills": {
                str(skills): _rounded(self.steps(skills))
                for skills in sorted({s.skills for s in self.samples if s.skills is not None})
            },
            "calls": _rounded(self.calls),
            "worker_tokens": _rounded(self.worker_tokens),
            "orchestration_tokens": _rounded(self.orchestration_tokens),
            "cost_usd": self.cost_usd,
            "seconds": {
                "p50": _rounded(self.seconds(0.5)),
                "p95": _rounded(self.seconds(0.95)),
            },
            "entropy_bits": _rounded(self.entropy_bits),
            "worker_shares": _all_rounded(shares(self.worker_counts)),
            "topology_shares": _all_rounded(shares(Counter(s.topology for s in self.samples))),
            "role_shares": _all_rounded(shares(self.role_counts)),
            "errors": self.errors,
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

    def _parts(
        self, part: Callable[[Sample], str | None], order: Callable[[str], Any]
    ) -> dict[str, StrategyRow]:
        found = defaultdict[str, list[Sample]](list)
        for sample in self.samples:
            name = part(sample)
            if name is not None:
                found[name].append(sample)
        return {
            name: StrategyRow(self.strategy, tuple(found[name]))
            for name in sorted(found, key=order)
        }


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Errors of a strategy from one source: how many samples, and the first message."""

    strategy: str
    error_source: str
    count: int
    first: str


def summarise_errors(rows: Iterable[StrategyRow]) -> tuple[ErrorSummary, ...]:
    """Summarise the errors by strategy and source, the most frequent first."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        for sample in row.samples:
            if sample.error is not None:
                found[row.strategy, sample.error_source].append(sample.error)
    summaries = [ErrorSummary(*key, len(errors), errors[0]) for key, errors in found.items()]
    return tuple(sorted(summaries, key=lambda summary: -summary.count))


def difficulty(sample: Sample) -> str | None:
    """Return the task's difficulty, else the number of skills, else None."""
    if sample.difficulty is not None:
        return sample.difficulty
    if sample.skills is None:
        return None
    return "1 skill" if sample.skills == 1 else f"{sample.skills} skills"


def interval(share: IntervalEstimate) -> list[float]:
    """Return the two ends of an interval."""
    return [round_figure(share.low), round_figure(share.high)]


def difference_document(difference: PairedDifference) -> dict[str, float]:
    """Return a paired difference as JSON."""
    return {
        **difference.share.document(),
        "gained": difference.gained,
        "lost": difference.lost,
        "p_value": difference.p_value,
    }


def _outcomes(samples: Iterable[Sample]) -> dict[str, float]:
    return _by_task((sample.task, sample.right) for sample in samples)


def _by_task(tries: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Return the share of true outcomes by task."""
    found = defaultdict[str, list[bool]](list)
    for task, outcome in tries:
        found[task].append(outcome)
    return {task: sum(outcomes) / len(outcomes) for task, outcomes in found.items()}


def _by_level(level: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort words by meaning, numbers by size, and the rest alphabetically."""
    word = level.casefold()
    position = _LEVELS.index(word) if word in _LEVELS else len(_LEVELS)
    parts = re.findall(r"\d+|\D+", word)
    return position, [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _accuracy_document(row: StrategyRow) -> dict[str, Any]:
    accuracy = row.accuracy
    return {
        "n": len(row.outcomes),
        "accuracy": round_figure(accuracy.value),
        "interval": interval(accuracy),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round_figure(number)


def _all_rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round_figure(number) for name, number in numbers.items()}
