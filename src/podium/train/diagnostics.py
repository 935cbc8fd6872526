"""What one step of training showed, in numbers.

    seen = diagnose(rollouts, References(best_single=0.17, ceiling=0.98))
    seen.as_metrics()                   # flat numbers, for a line of JSON

How right the plans are says little without who is asked, in how many steps and in which shapes.
All of it is computed from scores that are there already; nothing is asked or carried out here.
Which numbers are a reason to warn is `podium.train.collapse`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from podium._util.process import entropy_bits, shares
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
class References:
    """What a step of training is held against; None is unknown.

    `best_single` is the accuracy of the best worker when it is given every question as it is,
    `ceiling` that of ideal plans over the same workers: as one number, or by kind.
    `multi_step_kinds` are the kinds that no single worker can do in one step; where they are
    not known, any kind may be one. `max_tokens` is where a completion is cut off.
    """

    best_single: float | Mapping[str, float] | None = None
    ceiling: float | Mapping[str, float] | None = None
    multi_step_kinds: Collection[str] | None = None
    max_tokens: int | None = None


NO_REFERENCES: Final = References()


@dataclass(frozen=True, slots=True)
class Sample:
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
    """One step of training. Where nothing could be counted, a number is None.

    Shares are from 0 to 1. A dropped rollout counts as a plan, but neither as right nor as
    wrong. `steps` counts valid plans by their length, 0 being those that accept an answer;
    `shapes` are shares of the plans that have steps; `workers` are shares of the steps that
    were carried out, workers that nobody asked included. `regret` is how much better the best
    single worker would have done, `ceiling_gap` how much better ideal plans would have.
    `later` tells of rounds after an answer that is known to be right or wrong: how many of the
    right and of the wrong ones were accepted, and how many wrong ones were right in the end.
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
    samples: tuple[Sample, ...] = ()
    references: References = NO_REFERENCES

    @property
    def largest_worker(self) -> tuple[str, float]:
        """The worker that is asked most, and its share of the steps."""
        return max(self.workers.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def one_step(self) -> float:
        """The share of plans with one step, of those that have any."""
        planned = sum(count for length, count in self.steps.items() if length)
        return self.steps.get(1, 0) / planned if planned else 0.0

    def as_metrics(self) -> dict[str, float]:
        """Everything that is a number, under flat names; what is unknown is left out."""
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
    rollouts: Sequence[Rollout], references: References = NO_REFERENCES, *, samples: int = 2
) -> StepDiagnostics:
    """What these rollouts show, with that many of the best and of the worst to look at."""
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
    told = {
        "accepted_right": _mean(score.workflow is None for score in right),
        "accepted_wrong": _mean(score.workflow is None for score in wrong),
        "mended": _mean(score.right for score in wrong),
    }
    return {name: share for name, share in told.items() if share is not None}


def _spread(graded: Sequence[Rollout]) -> float | None:
    """The share of groups in which some rollout earned more than another."""
    rewards: dict[Hashable, set[float | None]] = {}
    for rollout in graded:
        rewards.setdefault(rollout.group, set()).add(rollout.score.reward)
    return _mean(len(different) > 1 for different in rewards.values())


def _shortfall(
    graded: Sequence[Rollout], reference: float | Mapping[str, float] | None
) -> float | None:
    """How far accuracy is below the reference, over the kinds that it knows."""
    if reference is None:
        return None
    if isinstance(reference, Mapping):
        known = reference
        return _mean(
            known[rollout.kind] - rollout.score.right for rollout in graded if rollout.kind in known
        )
    accuracy = _mean(rollout.score.right for rollout in graded)
    return None if accuracy is None else reference - accuracy


def _samples(graded: Sequence[Rollout], count: int) -> tuple[Sample, ...]:
    """The best and the worst, each of another group as far as there are enough."""
    ranked = sorted(graded, key=lambda rollout: rollout.score.reward or 0.0, reverse=True)
    best = _one_of_each_group(ranked)[:count]
    worst = [rollout for rollout in _one_of_each_group(ranked[::-1]) if rollout not in best]
    return tuple(_sample(rollout) for rollout in (*best, *worst[:count]))


def _one_of_each_group(rollouts: Sequence[Rollout]) -> list[Rollout]:
    first: dict[Hashable, Rollout] = {}
    for rollout in rollouts:
        first.setdefault(rollout.group, rollout)
    return list(first.values())


def _sample(rollout: Rollout) -> Sample:
    score = rollout.score
    return Sample(
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
