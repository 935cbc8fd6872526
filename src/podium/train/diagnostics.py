"""Diagnostics of a training step, and warnings of policy collapse.

seen = diagnose(rollouts, StepBaselines(best_single=0.17, ceiling=0.98))
seen.as_metrics()                   # flat numbers, for a line of JSON
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from podium._util.distribution import entropy_bits, shares
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.train.score import Score


class Rollout(NamedTuple):
    """One completion of the policy, scored. Rollouts of one question share their `group`."""

    group: Hashable
    score: Score
    tokens: int
    pool: Pool
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBaselines:
    """References for a training step; None is unknown.

    `best_single` is the accuracy of the best worker alone, `ceiling` that of ideal plans.
    """

    best_single: float | Mapping[str, float] | None = None
    ceiling: float | Mapping[str, float] | None = None
    multi_step_kinds: Collection[str] | None = None
    max_tokens: int | None = None


NO_REFERENCES: Final = StepBaselines()


@dataclass(frozen=True, slots=True)
class RolloutSample:
    """A rollout to look at."""

    question: str
    text: str
    answer: str
    reward: float
    right: bool
    kind: str
    problem: str

    def __str__(self) -> str:
        outcome = self.answer or self.problem
        return f"{self.reward:g} {self.kind}\n{self.question}\n{self.text}\n-> {outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDiagnostics:
    """One step of training. A number that could not be counted is None.

    A dropped rollout counts neither as right nor as wrong. `steps` counts valid plans by length,
    0 for acceptances; `workers` are shares of the executed steps. `regret` is how much better the
    best single worker is, `ceiling_gap` how much better ideal plans are. `later` has the shares of
    right and wrong answers that were accepted, and of wrong ones that were mended.
    """

    rollouts: int
    valid_rate: float
    accuracy: float | None
    accuracy_given_valid: float | None
    accuracy_by_kind: Mapping[str, float]
    reward: float | None
    dropped: float
    dropped_for: str
    groups_with_spread: float | None
    steps: Mapping[int, int]
    mean_steps: float | None
    shapes: Mapping[str, float]
    workers: Mapping[str, float]
    entropy_bits: float | None
    regret: float | None
    ceiling_gap: float | None
    mean_tokens: float
    most_tokens: int
    at_the_limit: float | None
    later: Mapping[str, float]
    samples: tuple[RolloutSample, ...] = ()
    references: StepBaselines = NO_REFERENCES

    @property
    def largest_worker(self) -> tuple[str, float]:
        """The worker with the most steps, and its share of them."""
        return max(self.workers.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def one_step(self) -> float:
        """The share of plans with one step, of those that have any."""
        planned = sum(count for length, count in self.steps.items() if length)
        return self.steps.get(1, 0) / planned if planned else 0.0

    def as_metrics(self) -> dict[str, float]:
        """Return all known numbers under flat names."""
        known = {
            "rollouts": self.rollouts,
            "valid_rate": self.valid_rate,
            "accuracy": self.accuracy,
            "accuracy_given_valid": self.accuracy_given_valid,
            "reward": self.reward,
            "dropped": self.dropped,
            "groups_with_spread": self.groups_with_spread,
            "mean_steps": self.mean_steps,
            "entropy_bits": self.entropy_bits,
            "largest_worker_share": self.largest_worker[1],
            "regret": self.regret,
            "ceiling_gap": self.ceiling_gap,
            "mean_tokens": self.mean_tokens,
            "most_tokens": self.most_tokens,
            "at_the_limit": self.at_the_limit,
        }
        plans = sum(self.steps.values())
        tables: dict[str, Mapping[str, float]] = {
            "accuracy": self.accuracy_by_kind,
            "steps": {str(length): count / plans for length, count in self.steps.items()},
            "shape": self.shapes,
            "worker": self.workers,
            "later": self.later,
        }
        metrics = {name: float(value) for name, value in known.items() if value is not None}
        for table, values in tables.items():
            metrics |= {f"{table}/{name}": value for name, value in sorted(values.items()) if name}
        return metrics


def diagnose(
    rollouts: Sequence[Rollout], references: StepBaselines = NO_REFERENCES, *, samples: int = 2
) -> StepDiagnostics:
    """Compute the metrics of these rollouts, with samples of the best and the worst."""
    if not rollouts:
        raise UsageError("there are no rollouts to diagnose; give at least one")
    scores = [rollout.score for rollout in rollouts]
    graded = [rollout for rollout in rollouts if not rollout.score.dropped]
    dropped = Counter(score.problem for score in scores if score.dropped)
    workflows = [score.workflow for score in scores if score.workflow is not None]
    lengths = [rollout.tokens for rollout in rollouts]
    workers = _worker_shares(rollouts)
    limit = references.max_tokens
    by_kind: dict[str, list[float]] = {}
    for rollout in graded:
        by_kind.setdefault(rollout.kind, []).append(rollout.score.right)
    return StepDiagnostics(
        rollouts=len(rollouts),
        valid_rate=sum(score.valid for score in scores) / len(scores),
        accuracy=_mean(rollout.score.right for rollout in graded),
        accuracy_given_valid=_mean(r.score.right for r in graded if r.score.valid),
        accuracy_by_kind={kind: sum(right) / len(right) for kind, right in by_kind.items()},
        reward=_mean(score.reward for score in scores if score.reward is not None),
        dropped=dropped.total() / len(scores),
        dropped_for=dropped.most_common(1)[0][0] if dropped else "",
        groups_with_spread=_spread(graded),
        steps=dict(sorted(Counter(len(s.workflow or ()) for s in scores if s.valid).items())),
        mean_steps=_mean(len(workflow) for workflow in workflows),
        shapes=shares(Counter(workflow.shape.value for workflow in workflows)),
        workers=workers,
        entropy_bits=entropy_bits(workers) if any(workers.values()) else None,
        regret=_shortfall(graded, references.best_single),
        ceiling_gap=_shortfall(graded, references.ceiling),
        mean_tokens=sum(lengths) / len(lengths),
        most_tokens=max(lengths),
        at_the_limit=_mean(length >= limit for length in lengths) if limit else None,
        later=_later(graded),
        samples=_samples(graded, samples),
        references=references,
    )


def _worker_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    asked = Counter[str]()
    for rollout in rollouts:
        for step in rollout.score.steps:
            if step.status != "skipped":
                asked[step.worker] += 1
    there = {name: 0.0 for rollout in rollouts for name in rollout.pool.names}
    return there | shares(asked)


def _later(graded: Sequence[Rollout]) -> dict[str, float]:
    right = [rollout.score for rollout in graded if rollout.score.was_right is True]
    wrong = [rollout.score for rollout in graded if rollout.score.was_right is False]
    found_shares = {
        "accepted_right": _mean(score.workflow is None for score in right),
        "accepted_wrong": _mean(score.workflow is None for score in wrong),
        "mended": _mean(score.right for score in wrong),
    }
    return {name: share for name, share in found_shares.items() if share is not None}


def _spread(graded: Sequence[Rollout]) -> float | None:
    """Return the share of groups with different rewards."""
    rewards: dict[Hashable, set[float | None]] = {}
    for rollout in graded:
        rewards.setdefault(rollout.group, set()).add(rollout.score.reward)
    return _mean(len(different) > 1 for different in rewards.values())


def _shortfall(
    graded: Sequence[Rollout], reference: float | Mapping[str, float] | None
) -> float | None:
    """Return by how much accuracy is below the reference, over the kinds that it knows."""
    if reference is None:
        return None
    if isinstance(reference, Mapping):
        known = reference
        return _mean(
            known[rollout.kind] - rollout.score.right for rollout in graded if rollout.kind in known
        )
    accuracy = _mean(rollout.score.right for rollout in graded)
    return None if accuracy is None else reference - accuracy


def _samples(graded: Sequence[Rollout], count: int) -> tuple[RolloutSample, ...]:
    """Return the best and the worst rollouts, each of another group."""
    ranked = sorted(graded, key=lambda rollout: rollout.score.reward or 0.0, reverse=True)
    best = _one_of_each_group(ranked)[:count]
    worst = [rollout for rollout in _one_of_each_group(ranked[::-1]) if rollout not in best]
    return tuple(_sample(rollout) for rollout in (*best, *worst[:count]))


def _one_of_each_group(rollouts: Sequence[Rollout]) -> list[Rollout]:
    first: dict[Hashable, Rollout] = {}
    for rollout in rollouts:
        first.setdefault(rollout.group, rollout)
    return list(first.values())


def _sample(rollout: Rollout) -> RolloutSample:
    score = rollout.score
    return RolloutSample(
        question=score.question,
        text=score.text,
        answer=(score.run.answer if score.run is not None else None) or "",
        reward=score.reward or 0.0,
        right=score.right,
        kind=rollout.kind,
        problem=score.problem,
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


LEAST_ROLLOUTS: Final = 16
"""Shares of fewer rollouts than this give no warning."""

MUCH_OF_ONE_WORKER: Final = 0.8
LITTLE_ENTROPY_BITS: Final = 0.5
NEARLY_ALL_ONE_STEP: Final = 0.95
MOSTLY_WRONG: Final = 0.5
FEW_VALID: Final = 0.5
FALLEN_TO: Final = 2 / 3
GROWN_TO: Final = 2.0
MANY_AT_THE_LIMIT: Final = 0.1
LITTLE_SPREAD: Final = 0.1
MANY_DROPPED: Final = 0.2


class CollapseDetector:
    """Watches the last `window` steps, and gives each warning once in as many."""

    def __init__(self, window: int = 20) -> None:
        if window < 1:
            raise UsageError(f"a watch over {window} steps sees nothing; give it at least 1")
        self.history: deque[StepDiagnostics] = deque(maxlen=window)
        self._window = window
        self._steps = 0
        self._told: dict[str, int] = {}

    def see(self, step: StepDiagnostics) -> tuple[str, ...]:
        """Add a step and return its new warnings."""
        warnings = collapse_warnings(step, tuple(self.history))
        self.history.append(step)
        self._steps += 1
        fresh = [
            name
            for name in warnings
            if self._steps - self._told.get(name, -self._window) >= self._window
        ]
        self._told |= dict.fromkeys(fresh, self._steps)
        return tuple(warnings[name] for name in fresh)


def collapse_warnings(
    seen: StepDiagnostics, earlier: Sequence[StepDiagnostics] = ()
) -> dict[str, str]:
    """Return warnings of policy collapse by name; `earlier` are the steps before."""
    if seen.rollouts < LEAST_ROLLOUTS:
        return {}
    checks = {
        "collapse": _collapse_onto_one_worker(seen),
        "leaning": _leaning_on_one_worker(seen),
        "steps": _step_collapse(seen),
        "valid": _validity(seen, earlier),
        "length": _length(seen, earlier),
        "spread": _lost_spread(seen),
        "dropped": _lost_rollouts(seen),
    }
    return {name: words for name, words in checks.items() if words}


def _collapse_onto_one_worker(seen: StepDiagnostics) -> str:
    if seen.entropy_bits is None or seen.entropy_bits >= LITTLE_ENTROPY_BITS:
        return ""
    return _about_one_worker(seen, "has collapsed onto")


def _leaning_on_one_worker(seen: StepDiagnostics) -> str:
    if seen.largest_worker[1] <= MUCH_OF_ONE_WORKER or _collapse_onto_one_worker(seen):
        return ""
    return _about_one_worker(seen, "leans on")


def _about_one_worker(seen: StepDiagnostics, verb: str) -> str:
    name, share = seen.largest_worker
    if len(seen.workers) < 2:
        return ""
    return (
        f"the policy {verb} one worker: {name} has {share:.0%} of the steps, and the entropy "
        f"over {len(seen.workers)} workers is {seen.entropy_bits or 0.0:.2f} bits; see "
        f"whether the tasks need the others at all"
    )


def _step_collapse(seen: StepDiagnostics) -> str:
    if seen.one_step <= NEARLY_ALL_ONE_STEP:
        return ""
    known = seen.references.multi_step_kinds
    wrong = {
        kind or "all tasks": accuracy
        for kind, accuracy in seen.accuracy_by_kind.items()
        if accuracy < MOSTLY_WRONG and (known is None or kind in known)
    }
    if not wrong:
        return ""
    found_shares = ", ".join(f"{kind} {accuracy:.2f}" for kind, accuracy in sorted(wrong.items()))
    return (
        f"{seen.one_step:.0%} of the plans have one step, while these are mostly wrong: "
        f"{found_shares}; let the warm start show more plans of several steps"
    )


def _validity(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics]) -> str:
    best = max((step.valid_rate for step in earlier), default=0.0)
    if seen.valid_rate < best * FALLEN_TO:
        fallen = f"from {best:.0%} to {seen.valid_rate:.0%} within {len(earlier)} steps"
        return f"valid plans fell {fallen}; lower the learning rate, or go back a checkpoint"
    if seen.valid_rate < FEW_VALID:
        return (
            f"only {seen.valid_rate:.0%} of the texts are plans; warm the policy up on the "
            f"format first, or look at the samples for what is wrong with them"
        )
    return ""


def _length(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics]) -> str:
    if seen.at_the_limit is not None and seen.at_the_limit >= MANY_AT_THE_LIMIT:
        return (
            f"{seen.at_the_limit:.0%} of the texts were cut off at "
            f"{seen.references.max_tokens} tokens and count as malformed; raise the limit if "
            f"plans need it, else the policy rambles"
        )
    least = min((step.mean_tokens for step in earlier), default=math.inf)
    if seen.mean_tokens > least * GROWN_TO:
        return (
            f"texts grew from {least:.0f} to {seen.mean_tokens:.0f} tokens within "
            f"{len(earlier)} steps; look at the samples for what is being repeated"
        )
    return ""


def _lost_spread(seen: StepDiagnostics) -> str:
    if seen.groups_with_spread is None or seen.groups_with_spread >= LITTLE_SPREAD:
        return ""
    easy = (seen.accuracy or 0.0) >= MOSTLY_WRONG
    return (
        f"only {seen.groups_with_spread:.0%} of the groups hold different rewards, so there "
        f"is next to nothing to learn from; the tasks are too {'easy' if easy else 'hard'}, "
        f"or the policy writes the same plan each time"
    )


def _lost_rollouts(seen: StepDiagnostics) -> str:
    if seen.dropped < MANY_DROPPED:
        return ""
    return f"{seen.dropped:.0%} of the rollouts were dropped, most for: {seen.dropped_for}"
