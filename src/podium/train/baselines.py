"""Baselines of a training: each worker alone, and ideal plans.

Both are measured once before training, on the held-out questions (or on those that are trained on)
with the same workers and graders. `references.json` keeps them for a resumed training.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podium._util.files import write_atomically
from podium._util.lab import lab_extra
from podium.conductors import plan
from podium.conductors.prompt import all_or_nothing
from podium.core.pool import Pool
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium.train.diagnostics import StepBaselines
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium.train.score import PlanScorer

if TYPE_CHECKING:
    from podium_lab.etudes import Etude

BASELINES_FILE: Final = "references.json"


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

    def references(self, multi_step_kinds: Iterable[str] | None, max_tokens: int) -> StepBaselines:
        """Return the baselines of a step, by kind: training may draw kinds in other shares."""
        best = self.workers.get(self.best)
        return StepBaselines(
            best_single=best.by_kind if best else None,
            ceiling=self.ceiling.by_kind if self.ceiling else None,
            multi_step_kinds=None if multi_step_kinds is None else frozenset(multi_step_kinds),
            max_tokens=max_tokens,
        )

    def __str__(self) -> str:
        best = self.workers.get(self.best)
        parts = [f"{self.best} alone {best.overall:.3f}, the best of all workers"] if best else []
        parts += [f"ideal plans {self.ceiling.overall:.3f}"] if self.ceiling else []
        return f"on {self.tasks} questions: {'; '.join(parts) or 'no worker answered'}"


async def measure_baselines(
    recipe: Recipe, scorer: PlanScorer, pool: Pool, exercises: Sequence[Exercise]
) -> Baselines:
    """Measure every worker alone and, for études, ideal plans; `scorer` is a plain one."""
    tasks = [exercise.task for exercise in exercises if exercise.task.plan_grader is None]
    one = recipe.prompt.one_worker
    names = pool.names if one is None else (one,)
    by_themselves = tuple(replace(pool[name], fallback=None) for name in names)
    pool = replace(pool, workers=by_themselves)
    ceiling, *alone = await asyncio.gather(
        _ceiling(recipe, scorer, pool),
        *(_accuracy(scorer, pool, tasks, partial(_alone, name)) for name in names),
    )
    found = zip(names, alone, strict=True)
    return Baselines(len(tasks), {name: own for name, own in found if own is not None}, ceiling)


async def _ceiling(recipe: Recipe, scorer: PlanScorer, pool: Pool) -> Accuracy | None:
    if recipe.data.kind != "etudes":
        return None
    with lab_extra():
        from podium_lab.etudes.tasks import etude_task
        from podium_lab.etudes.training import held_out_etudes
    etudes = {etude.id: etude for etude in held_out_etudes(recipe)}

    def ideal(task: Task) -> Workflow:
        workflow = _ideal(etudes[task.id], pool)
        return workflow if recipe.prompt.access == "index" else all_or_nothing(workflow)

    return await _accuracy(scorer, pool, [etude_task(etude) for etude in etudes.values()], ideal)


def _alone(worker: str, task: Task) -> Workflow:
    return Workflow((Step(worker, task.question),))


def _ideal(etude: Etude, pool: Pool) -> Workflow:
    """Return the ideal plan; the first worker gets the steps that no worker can do."""
    return etude.ideal(
        {family: family if family in pool.names else pool.names[0] for family in etude.families}
    )


async def _accuracy(
    scorer: PlanScorer, pool: Pool, tasks: Sequence[Task], make_plan: Callable[[Task], Workflow]
) -> Accuracy | None:
    """Return the accuracy of such plans, if any could be graded."""
    scores = await asyncio.gather(
        *(scorer.score(plan.write(make_plan(task), pool), task, pool) for task in tasks)
    )
    by_kind: dict[str, list[bool]] = {}
    for task, score in zip(tasks, scores, strict=True):
        if not score.dropped:
            by_kind.setdefault(task.kind, []).append(score.right)
    judged = [right for kind in by_kind.values() for right in kind]
    if not judged:
        return None
    return Accuracy(
        sum(judged) / len(judged),
        {kind: sum(right) / len(right) for kind, right in sorted(by_kind.items())},
    )


# ---- the file


def write_baselines(output: Path, measured: Baselines) -> None:
    """Write the baselines below the output."""
    document = {"best_single": measured.best, **asdict(measured)}
    write_atomically(
        output / BASELINES_FILE, json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    )


def read_baselines(output: Path) -> Baselines | None:
    """Read the baselines of that training; None if they cannot be read."""
    try:
        document = json.loads((output / BASELINES_FILE).read_text("utf-8"))
        ceiling = document["ceiling"]
        return Baselines(
            document["tasks"],
            {name: _read_accuracy(entry) for name, entry in document["workers"].items()},
            None if ceiling is None else _read_accuracy(ceiling),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_accuracy(entry: Mapping[str, Any]) -> Accuracy:
    return Accuracy(float(entry["overall"]), {k: float(v) for k, v in entry["by_kind"].items()})
