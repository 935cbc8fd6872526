"""Diagnostics of a training step, warnings of policy collapse, and baselines to compare with.

    seen = diagnose(rollouts, baselines)
    seen.as_metrics()                   # flat numbers, for a line of JSON

Baselines are the accuracy of each worker alone and of ideal plans. They are measured once before
training, on the held-out questions (or on those that are trained on) with the same workers and
graders. `baselines.json` keeps them for a resumed training.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from podium._util.distribution import entropy_bits, shares
from podium._util.files import write_atomically
from podium._util.lab import lab_extra
from podium.conductors import plan
from podium.conductors.prompt import with_binary_access
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.task import Task
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium.train.score import Score, Scorer


class Rollout(NamedTuple):
    """One completion of the policy, scored. Rollouts of one question share their `group`."""

    group: Hashable
    score: Score
    tokens: int
    pool: Pool
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of right answers: over all tasks, and over those of each kind."""

    overall: float
    by_kind: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Accuracy measured before training: of each worker alone, and of ideal plans if known.

    A worker whose every call failed is missing from `workers`.
    """

    tasks: int
    workers: Mapping[str, Accuracy]
    ceiling: Accuracy | None = None

    @property
    def best(self) -> str:
        """The worker that is best alone, the first of those that are equally good."""
        return max(self.workers, key=lambda name: self.workers[name].overall, default="")

    def __str__(self) -> str:
        best = self.workers.get(self.best)
        parts = [f"{self.best} alone {best.overall:.3f}, the best of all workers"] if best else []
        parts += [f"ideal plans {self.ceiling.overall:.3f}"] if self.ceiling else []
        return f"on {self.tasks} questions: {'; '.join(parts) or 'no worker answered'}"


NO_BASELINES: Final = Baselines(0, {})


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


SAMPLES: Final = 2
"""How many of the best and of the worst rollouts of a step are kept to look at."""

METRICS: Final = (
    *("rollouts", "valid_rate", "accuracy", "accuracy_given_valid", "reward", "dropped_share"),
    *("groups_with_reward_variance", "mean_steps", "entropy_bits", "regret", "ceiling_gap"),
    *("mean_tokens", "max_plan_tokens", "truncated_rate"),
)
"""The numbers of a step that are logged under their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDiagnostics:
    """One step of training. A number that could not be counted is None.

    A dropped rollout counts neither as right nor as wrong. `steps` counts valid plans by length,
    0 for acceptances; `workers` are shares of the executed steps. `regret` is how much better the
    best single worker is, `ceiling_gap` how much better ideal plans are. `second_round_rates` are
    the shares of right and wrong answers that were accepted, and of wrong ones that were corrected.
    """

    rollouts: int
    valid_rate: float
    accuracy: float | None
    accuracy_given_valid: float | None
    accuracy_by_kind: Mapping[str, float]
    reward: float | None
    dropped_share: float
    main_drop_reason: str
    groups_with_reward_variance: float | None
    steps: Mapping[int, int]
    mean_steps: float | None
    shapes: Mapping[str, float]
    workers: Mapping[str, float]
    entropy_bits: float | None
    regret: float | None
    ceiling_gap: float | None
    mean_tokens: float
    max_plan_tokens: int
    truncated_rate: float | None
    second_round_rates: Mapping[str, float]
    samples: tuple[RolloutSample, ...] = ()
    max_tokens: int | None = None

    @property
    def largest_worker(self) -> tuple[str, float]:
        return max(self.workers.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def one_step_share(self) -> float:
        planned = sum(count for length, count in self.steps.items() if length)
        return self.steps.get(1, 0) / planned if planned else 0.0

    def __str__(self) -> str:
        name, share = self.largest_worker
        entropy = (
            f"entropy {self.entropy_bits:.2f} bits (most: {name} {share:.0%})"
            if self.entropy_bits is not None
            else "no worker was called"
        )
        rates = "".join(
            f"  {name.replace('_', ' ')} {share:.2f}"
            for name, share in self.second_round_rates.items()
        )
        return (
            f"reward {self.reward or 0.0:.3f}  accuracy {self.accuracy or 0.0:.3f}  "
            f"valid {self.valid_rate:.2f}  steps {self.mean_steps or 0.0:.2f}  "
            f"spread {self.groups_with_reward_variance or 0.0:.2f}  {entropy}  "
            f"tokens {self.mean_tokens:.0f}{rates}"
        )

    def as_metrics(self) -> dict[str, float]:
        known = {name: getattr(self, name) for name in METRICS}
        known["largest_worker_share"] = self.largest_worker[1]
        plans = sum(self.steps.values())
        tables: dict[str, Mapping[str, float]] = {
            "accuracy": self.accuracy_by_kind,
            "steps": {str(length): count / plans for length, count in self.steps.items()},
            "shape": self.shapes,
            "worker": self.workers,
            "second_round": self.second_round_rates,
        }
        metrics = {name: float(value) for name, value in known.items() if value is not None}
        for table, values in tables.items():
            metrics |= {f"{table}/{name}": value for name, value in sorted(values.items()) if name}
        return metrics


def diagnose(
    rollouts: Sequence[Rollout],
    baselines: Baselines = NO_BASELINES,
    *,
    max_tokens: int | None = None,
) -> StepDiagnostics:
    """Compute the metrics of these rollouts, with samples of the best and the worst.

    `max_tokens` is the limit of a completion.
    """
    if not rollouts:
        raise UsageError("there are no rollouts to diagnose; give at least one")
    scores = [rollout.score for rollout in rollouts]
    graded = [rollout for rollout in rollouts if rollout.score.reward is not None]
    dropped = Counter(score.problem for score in scores if score.reward is None)
    workflows = [score.workflow for score in scores if score.workflow is not None]
    lengths = [rollout.tokens for rollout in rollouts]
    calls = Counter(
        step.worker for score in scores for step in score.steps if step.status != "skipped"
    )
    idle = {name: 0.0 for rollout in rollouts for name in rollout.pool.names}
    shapes, workers = (
        shares(counts)
        for counts in (Counter(workflow.shape.value for workflow in workflows), calls)
    )
    best = baselines.workers.get(baselines.best)
    ceiling = baselines.ceiling
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
        dropped_share=dropped.total() / len(scores),
        main_drop_reason=dropped.most_common(1)[0][0] if dropped else "",
        groups_with_reward_variance=_spread(graded),
        steps=dict(sorted(Counter(len(s.workflow or ()) for s in scores if s.valid).items())),
        mean_steps=_mean(len(workflow) for workflow in workflows),
        shapes=shapes,
        workers=idle | workers,
        entropy_bits=entropy_bits(workers) if workers else None,
        regret=_shortfall(graded, best.by_kind if best else {}),
        ceiling_gap=_shortfall(graded, ceiling.by_kind if ceiling else {}),
        mean_tokens=sum(lengths) / len(lengths),
        max_plan_tokens=max(lengths),
        truncated_rate=_mean(n >= max_tokens for n in lengths) if max_tokens else None,
        second_round_rates=_second_round_rates(graded),
        samples=_samples(graded),
        max_tokens=max_tokens,
    )


def _second_round_rates(graded: Sequence[Rollout]) -> dict[str, float]:
    right, wrong = (
        [rollout.score for rollout in graded if rollout.score.was_right is was_right]
        for was_right in (True, False)
    )
    found = {
        "accepted_right": _mean(score.workflow is None for score in right),
        "accepted_wrong": _mean(score.workflow is None for score in wrong),
        "corrected": _mean(score.right for score in wrong),
    }
    return {name: share for name, share in found.items() if share is not None}


def _spread(graded: Sequence[Rollout]) -> float | None:
    """Return the share of groups with different rewards."""
    rewards: dict[Hashable, set[float | None]] = {}
    for rollout in graded:
        rewards.setdefault(rollout.group, set()).add(rollout.score.reward)
    return _mean(len(different) > 1 for different in rewards.values())


def _shortfall(graded: Sequence[Rollout], known: Mapping[str, float]) -> float | None:
    """Return by how much accuracy is below the reference, over the kinds that it knows."""
    return _mean(known[one.kind] - one.score.right for one in graded if one.kind in known)


def _samples(graded: Sequence[Rollout]) -> tuple[RolloutSample, ...]:
    """Return the best and the worst rollouts, each of another group."""
    ranked = sorted(graded, key=lambda rollout: rollout.score.reward or 0.0, reverse=True)
    best = _one_of_each_group(ranked)[:SAMPLES]
    shown = {id(rollout) for rollout in best}
    worst = [one for one in _one_of_each_group(ranked[::-1]) if id(one) not in shown]
    return tuple(_sample(rollout) for rollout in (*best, *worst[:SAMPLES]))


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


MIN_ROLLOUTS: Final = 16
"""Shares of fewer rollouts than this give no warning."""

MAX_WORKER_SHARE: Final = 0.8
MIN_ENTROPY_BITS: Final = 0.5
MAX_ONE_STEP_SHARE: Final = 0.95
MIN_ACCURACY: Final = 0.5
MIN_VALID_RATE: Final = 0.5
MAX_VALID_RATE_FALL: Final = 2 / 3
MAX_LENGTH_GROWTH: Final = 2.0
MAX_TRUNCATED_RATE: Final = 0.1
MIN_GROUPS_WITH_REWARD_VARIANCE: Final = 0.1
MAX_DROPPED: Final = 0.2


def collapse_warnings(
    seen: StepDiagnostics, earlier: Sequence[StepDiagnostics] = ()
) -> dict[str, str]:
    """Return warnings of policy collapse by name; `earlier` are the steps before."""
    if seen.rollouts < MIN_ROLLOUTS:
        return {}
    return {
        **_worker_warnings(seen),
        **_step_warnings(seen),
        **_text_warnings(seen, earlier),
        **_reward_warnings(seen),
    }


def _worker_warnings(seen: StepDiagnostics) -> dict[str, str]:
    name, share = seen.largest_worker
    collapsed = seen.entropy_bits is not None and seen.entropy_bits < MIN_ENTROPY_BITS
    if len(seen.workers) < 2 or not (collapsed or share > MAX_WORKER_SHARE):
        return {}
    words = (
        f"the policy {'has collapsed onto' if collapsed else 'leans on'} one worker: {name} has "
        f"{share:.0%} of the steps, and the entropy over {len(seen.workers)} workers is "
        f"{seen.entropy_bits or 0.0:.2f} bits; see whether the tasks need the others at all"
    )
    return {"collapse" if collapsed else "leaning": words}


def _step_warnings(seen: StepDiagnostics) -> dict[str, str]:
    """Warn of one-step plans; whether a kind of task needs more is not known here."""
    wrong = ", ".join(
        f"{kind or 'all tasks'} {accuracy:.2f}"
        for kind, accuracy in sorted(seen.accuracy_by_kind.items())
        if accuracy < MIN_ACCURACY
    )
    if seen.one_step_share <= MAX_ONE_STEP_SHARE or not wrong:
        return {}
    return {
        "steps": f"{seen.one_step_share:.0%} of the plans have one step, while these are mostly "
        f"wrong: {wrong}; if they need several, let the warm start show more of those"
    }


def _text_warnings(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics]) -> dict[str, str]:
    found = {}
    best = max((step.valid_rate for step in earlier), default=0.0)
    least = min((step.mean_tokens for step in earlier), default=math.inf)
    if seen.valid_rate < best * MAX_VALID_RATE_FALL:
        found["valid"] = (
            f"valid plans fell from {best:.0%} to {seen.valid_rate:.0%} within {len(earlier)} "
            f"steps; lower the learning rate, or go back a checkpoint"
        )
    elif seen.valid_rate < MIN_VALID_RATE:
        found["valid"] = (
            f"only {seen.valid_rate:.0%} of the texts are plans; warm the policy up on the "
            f"format first, or look at the samples for what is wrong with them"
        )
    if seen.truncated_rate is not None and seen.truncated_rate >= MAX_TRUNCATED_RATE:
        found["length"] = (
            f"{seen.truncated_rate:.0%} of the texts were cut off at "
            f"{seen.max_tokens} tokens and count as malformed; raise the limit if "
            f"plans need it, else the policy rambles"
        )
    elif seen.mean_tokens > least * MAX_LENGTH_GROWTH:
        found["length"] = (
            f"texts grew from {least:.0f} to {seen.mean_tokens:.0f} tokens within "
            f"{len(earlier)} steps; look at the samples for what is being repeated"
        )
    return found


def _reward_warnings(seen: StepDiagnostics) -> dict[str, str]:
    found = {}
    varied = seen.groups_with_reward_variance
    if varied is not None and varied < MIN_GROUPS_WITH_REWARD_VARIANCE:
        easy = (seen.accuracy or 0.0) >= MIN_ACCURACY
        found["reward_variance"] = (
            f"only {varied:.0%} of the groups hold different rewards, so there "
            f"is next to nothing to learn from; the tasks are too {'easy' if easy else 'hard'}, "
            f"or the policy writes the same plan each time"
        )
    if seen.dropped_share >= MAX_DROPPED:
        found["dropped"] = (
            f"{seen.dropped_share:.0%} of the rollouts were dropped, "
            f"most for: {seen.main_drop_reason}"
        )
    return found


BASELINES_FILE: Final = "baselines.json"


def needs_baselines(recipe: Recipe, pool: Pool) -> bool:
    """Return `run.baselines`, or whether all workers are free if it is left out."""
    if recipe.run.baselines is not None:
        return recipe.run.baselines
    return all(worker.price is not None and worker.price.is_free for worker in pool)


async def find_baselines(
    recipe: Recipe,
    workers: Sequence[Worker],
    pool: Pool,
    exercises: Sequence[Exercise],
    *,
    resume: bool,
) -> Baselines | None:
    """Read the baselines on resume, or else measure and write them; None where none are wanted."""
    if not needs_baselines(recipe, pool):
        return None
    found = read_baselines(recipe.output) if resume else None
    if found is None:
        found = await measure_baselines(recipe, workers, pool, exercises)
        write_baselines(recipe.output, found)
    return found


async def measure_baselines(
    recipe: Recipe, workers: Sequence[Worker], pool: Pool, exercises: Sequence[Exercise]
) -> Baselines:
    """Measure every worker alone and, for études, ideal plans."""
    scorer = Scorer(workers, max_steps=recipe.prompt.max_steps)
    tasks = [exercise.task for exercise in exercises if exercise.task.plan_grader is None]
    names = pool.names
    pool = replace(pool, workers=tuple(replace(worker, fallback=None) for worker in pool))
    ceiling, *alone = await asyncio.gather(
        _measure_ideal_plans(recipe, scorer, pool),
        *(_accuracy(scorer, pool, tasks, partial(_ask_alone, name)) for name in names),
    )
    found = zip(names, alone, strict=True)
    return Baselines(len(tasks), {name: own for name, own in found if own is not None}, ceiling)


async def _measure_ideal_plans(recipe: Recipe, scorer: Scorer, pool: Pool) -> Accuracy | None:
    if recipe.data.kind != "etudes":
        return None
    with lab_extra():
        from podium_lab.etudes.tasks import etude_task
        from podium_lab.etudes.training import held_out_etudes
    etudes = {etude.id: etude for etude in held_out_etudes(recipe)}

    def ideal(task: Task) -> Workflow:
        """Return the ideal plan; the first worker gets the steps that no worker can do."""
        steps = etudes[task.id].own_plan.steps
        able = (
            step if step.worker in pool.names else replace(step, worker=pool.names[0])
            for step in steps
        )
        workflow = Workflow(tuple(able))
        return workflow if recipe.prompt.access == "index" else with_binary_access(workflow)

    return await _accuracy(scorer, pool, [etude_task(etude) for etude in etudes.values()], ideal)


def _ask_alone(worker: str, task: Task) -> Workflow:
    return Workflow((Step(worker, task.question),))


async def _accuracy(
    scorer: Scorer, pool: Pool, tasks: Sequence[Task], make_plan: Callable[[Task], Workflow]
) -> Accuracy | None:
    scores = await asyncio.gather(
        *(scorer.score(plan.write(make_plan(task), pool), task, pool) for task in tasks)
    )
    by_kind: dict[str, list[bool]] = {}
    for task, score in zip(tasks, scores, strict=True):
        if score.reward is not None:
            by_kind.setdefault(task.kind, []).append(score.right)
    judged = [right for kind in by_kind.values() for right in kind]
    if not judged:
        return None
    return Accuracy(
        sum(judged) / len(judged),
        {kind: sum(right) / len(right) for kind, right in sorted(by_kind.items())},
    )


def write_baselines(output: Path, measured: Baselines) -> None:
    document = {"best_single": measured.best, **asdict(measured)}
    write_atomically(
        output / BASELINES_FILE, json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    )


def read_baselines(output: Path) -> Baselines | None:
    """Read the baselines of that training; None if they cannot be read."""
    try:
        return TypeAdapter(Baselines).validate_json((output / BASELINES_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
