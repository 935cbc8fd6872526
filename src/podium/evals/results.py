"""The row of a strategy: the figures of its samples, their statistics, and tables in Markdown.

An outcome is the share of right samples of one task. Samples of one task are not independent, so
intervals and tests are always over tasks.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

from podium._util.distribution import entropy_bits, shares
from podium.evals.sample import Sample

_DIFFICULTIES: Final = (
    "very easy",
    "easy",
    "introductory",
    "medium",
    "interview",
    "hard",
    "competition",
)


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
        return estimate_share(self.outcomes.values())

    @property
    def accuracy_given_valid(self) -> IntervalEstimate | None:
        """The accuracy of samples with a valid plan; None without any."""
        valid = _outcomes(sample for sample in self.samples if sample.valid)
        return estimate_share(valid.values()) if valid else None

    @property
    def by_kind(self) -> dict[str, IntervalEstimate]:
        return {kind: part.accuracy for kind, part in self.kinds.items()}

    @property
    def kinds(self) -> dict[str, StrategyRow]:
        return self._parts(lambda sample: sample.kind, str)

    @property
    def levels(self) -> dict[str, StrategyRow]:
        """A row per difficulty, the easiest first; empty if no difficulty is known."""
        return self._parts(difficulty, _difficulty_key)

    @property
    def worker_counts(self) -> Counter[str]:
        return Counter(worker for sample in self.samples for worker in sample.workers)

    @property
    def shape_counts(self) -> Counter[str]:
        return Counter(sample.shape for sample in self.samples)

    @property
    def role_counts(self) -> Counter[str]:
        return Counter(role.value for sample in self.samples for role in sample.roles)

    @property
    def entropy_bits(self) -> float:
        return entropy_bits(self.worker_counts)

    @property
    def worker_tokens(self) -> float | None:
        return mean(sample.worker_tokens for sample in self.samples)

    @property
    def orchestration_tokens(self) -> float | None:
        return mean(sample.orchestration_tokens for sample in self.samples)

    @property
    def tokens(self) -> float | None:
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
        return mean(sample.valid for sample in self.samples)

    @property
    def errors(self) -> int:
        return sum(sample.error is not None for sample in self.samples)

    def latency_quantile(self, q: float) -> float | None:
        """Return the quantile `q` of the latency in seconds, over samples without cached
        replies."""
        return quantile((s.seconds for s in self.samples if not s.cached_calls), q)

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

    def paired_difference(self, other: StrategyRow) -> PairedDifference:
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
                level: {**_accuracy_document(part), "steps": _round(part.steps())}
                for level, part in self.levels.items()
            },
            "valid_rate": _round(self.valid_rate),
            "accuracy_given_valid": None if valid is None else round_figure(valid.value),
            "interval_given_valid": None if valid is None else interval(valid),
            "steps": _round(self.steps()),
            "steps_by_skills": {
                str(skills): _round(self.steps(skills))
                for skills in sorted({s.skills for s in self.samples if s.skills is not None})
            },
            "calls": _round(self.calls),
            "worker_tokens": _round(self.worker_tokens),
            "orchestration_tokens": _round(self.orchestration_tokens),
            "cost_usd": self.cost_usd,
            "seconds": {
                "p50": _round(self.latency_quantile(0.5)),
                "p95": _round(self.latency_quantile(0.95)),
            },
            "entropy_bits": _round(self.entropy_bits),
            "worker_shares": _round_all(shares(self.worker_counts)),
            "topology_shares": _round_all(shares(self.shape_counts)),
            "role_shares": _round_all(shares(self.role_counts)),
            "errors": self.errors,
            "note": self.note,
        }
        if self.candidates is not None:
            document["candidates"] = _round_all(self.candidates)
        if any(sample.first_right is not None for sample in self.samples):
            document["recursion_gain"] = difference_document(self.recursion_gain)
            document["accepted_when_right"] = self.accepted_when_right.document()
        if best_single is not None and best_single is not self:
            document["against_best_single"] = difference_document(
                self.paired_difference(best_single)
            )
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
    return [round_figure(share.low), round_figure(share.high)]


def difference_document(difference: PairedDifference) -> dict[str, float]:
    return {
        **difference.estimate.document(),
        "gained": difference.gained,
        "lost": difference.lost,
        "p_value": difference.p_value,
    }


def _outcomes(samples: Iterable[Sample]) -> dict[str, float]:
    return _by_task((sample.task, sample.right) for sample in samples)


def _by_task(tries: Iterable[tuple[str, bool]]) -> dict[str, float]:
    found = defaultdict[str, list[bool]](list)
    for task, outcome in tries:
        found[task].append(outcome)
    return {task: sum(outcomes) / len(outcomes) for task, outcomes in found.items()}


def _difficulty_key(level: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort words by meaning, numbers by size, and the rest alphabetically."""
    word = level.casefold()
    position = _DIFFICULTIES.index(word) if word in _DIFFICULTIES else len(_DIFFICULTIES)
    parts = re.findall(r"\d+|\D+", word)
    return position, [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _accuracy_document(row: StrategyRow) -> dict[str, Any]:
    accuracy = row.accuracy
    return {
        "n": len(row.outcomes),
        "accuracy": round_figure(accuracy.value),
        "interval": interval(accuracy),
    }


def _round(number: float | None) -> float | None:
    return None if number is None else round_figure(number)


def _round_all(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round_figure(number) for name, number in numbers.items()}


UNKNOWN: Final = "–"
COLUMNS: Final = (
    *("strategy", "accuracy", "95 % interval", "valid", "steps", "calls"),
    *("worker tokens", "orchestration tokens", "USD", "entropy", "errors"),
)


def rows_table(rows: Iterable[tuple[str, StrategyRow]]) -> str:
    """Return strategies with their means per task; times are left out, as only they vary."""
    return markdown(COLUMNS, [_cells(name, row) for name, row in rows])


def shares_table(rows: Iterable[tuple[str, IntervalEstimate]]) -> str:
    cells = [(name, f"{share.value:.3f}", format_interval(share)) for name, share in rows]
    return markdown(("", "share", "95 % interval"), cells)


def notes(rows: Iterable[tuple[str, StrategyRow]]) -> list[str]:
    return [f"{name}: {row.note}" for name, row in rows if row.note]


def _cells(name: str, row: StrategyRow) -> Sequence[str]:
    return (
        name,
        f"{row.accuracy.value:.3f}",
        format_interval(row.accuracy),
        format_number(row.valid_rate, 3),
        format_number(row.steps(), 2),
        format_number(row.calls, 2),
        format_number(row.worker_tokens, 0),
        format_number(row.orchestration_tokens, 0),
        _format_usd(row.cost_usd),
        f"{row.entropy_bits:.2f}",
        str(row.errors),
    )


def format_interval(share: IntervalEstimate) -> str:
    return f"{share.low:.3f} to {share.high:.3f}"


def format_number(number: float | None, digits: int) -> str:
    return UNKNOWN if number is None else f"{number:.{digits}f}"


def _format_usd(dollars: float | None) -> str:
    return UNKNOWN if dollars is None else f"{dollars:.2g}" if dollars < 1 else f"{dollars:.2f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (columns, rule, *rows)
    )


Z_95: Final = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""

RESAMPLES: Final = 2_000
MIN_BOOTSTRAP_TASKS: Final = 20
"""The bootstrap is not used for fewer numbers."""

DIGITS: Final = 6
"""Decimal places of written figures."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A share, or a difference of shares, with its 95 % interval."""

    value: float
    low: float
    high: float

    def document(self) -> dict[str, float]:
        return {name: round_figure(getattr(self, name)) for name in ("value", "low", "high")}


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference of two accuracies on the same tasks.

    `gained` counts tasks that only the first got right, `lost` those that only the second did;
    `p_value` is McNemar's, exact and two-sided.
    """

    estimate: IntervalEstimate
    gained: int
    lost: int
    p_value: float


def round_figure(number: float) -> float:
    """Round a figure for output and for comparison with a threshold."""
    return round(number, DIGITS)


def wilson(successes: float, trials: int) -> IntervalEstimate:
    """Return a share with Wilson's score interval, which also holds near 0 and 1.

    Without trials the share is 0 and the interval 0 to 1. `successes` may be a sum of shares:
    these vary less than trials, so the interval holds.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials cannot be")
    if trials == 0:
        return IntervalEstimate(0.0, 0.0, 1.0)
    value = successes / trials
    weight = Z_95**2 / trials
    centre = (value + weight / 2) / (1 + weight)
    reach = Z_95 / (1 + weight) * math.sqrt(value * (1 - value) / trials + weight / (4 * trials))
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == trials else centre + reach
    return IntervalEstimate(value, low, high)


def estimate_share(outcomes: Iterable[float]) -> IntervalEstimate:
    """Return the mean outcome, with Wilson's interval for single samples or few tasks, else with a
    bootstrap interval over tasks."""
    found = list(outcomes)
    if _is_binary(found):
        return wilson(round(sum(found)), len(found))
    return (
        wilson(math.fsum(found), len(found))
        if len(found) < MIN_BOOTSTRAP_TASKS
        else bootstrap(found)
    )


def bootstrap(numbers: Sequence[float]) -> IntervalEstimate:
    """Return the mean with a bootstrap percentile interval; the order of the numbers is ignored."""
    if not numbers:
        raise ValueError("the mean of no numbers cannot be; give at least one")
    return _bootstrap_interval(tuple(sorted(numbers)))


@lru_cache(maxsize=512)
def _bootstrap_interval(numbers: tuple[float, ...]) -> IntervalEstimate:
    """Resample; cached because tables use the same figure several times."""
    count = len(numbers)
    rng = Random(count)  # noqa: S311 - repeatable
    means = sorted(math.fsum(rng.choices(numbers, k=count)) / count for _ in range(RESAMPLES))
    value = math.fsum(numbers) / count
    low, high = _between(means, 0.025), _between(means, 0.975)
    return IntervalEstimate(value, min(low, value), max(high, value))


def paired_difference(one: Sequence[float], other: Sequence[float]) -> PairedDifference:
    """Return how much more often `one` is right than `other`, task by task.

    The interval is Agresti and Min's: Wald's for matched pairs, with half a pair added to each
    of the four cells, which helps if few pairs differ. For repeated tasks, unless they are few,
    it is a bootstrap interval.
    """
    if len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} outcomes are not of the same tasks")
    differences = [a - b for a, b in zip(one, other, strict=True)]
    gained = sum(difference > 0 for difference in differences)
    lost = sum(difference < 0 for difference in differences)
    is_binary = _is_binary(one) and _is_binary(other)
    estimate = (
        _matched_pairs(differences)
        if is_binary or len(differences) < MIN_BOOTSTRAP_TASKS
        else bootstrap(differences)
    )
    return PairedDifference(estimate, gained, lost, mcnemar(gained, lost))


def _matched_pairs(differences: Sequence[float]) -> IntervalEstimate:
    """Compute the interval: the added half pairs keep the sum and add one to the squares."""
    total = math.fsum(differences)
    pairs = len(differences) + 2.0
    squares = math.fsum(difference**2 for difference in differences) + 1.0
    value, centre = total / len(differences) if differences else 0.0, total / pairs
    spread = math.sqrt(max(0.0, squares - total**2 / pairs)) / pairs
    low, high = centre - Z_95 * spread, centre + Z_95 * spread
    return IntervalEstimate(value, max(-1.0, min(low, value)), min(1.0, max(high, value)))


def _is_binary(outcomes: Sequence[float]) -> bool:
    return all(outcome in (0, 1) for outcome in outcomes)


def mcnemar(gained: int, lost: int) -> float:
    """Return the p-value of McNemar's exact test; for repeated tasks, of the sign test."""
    differing = gained + lost
    tail = sum(math.comb(differing, count) for count in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**differing))


def mean(numbers: Iterable[float | None]) -> float | None:
    """Return the mean; None without numbers or if one is unknown."""
    found = list(numbers)
    if not found or any(number is None for number in found):
        return None
    return math.fsum(number for number in found if number is not None) / len(found)


def quantile(numbers: Iterable[float], q: float) -> float | None:
    ordered = sorted(numbers)
    return _between(ordered, q) if ordered else None


def _between(ordered: Sequence[float], q: float) -> float:
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
