"""Training with another trainer than Podium's: what there is to ask, and what a plan earns.

A policy is anything that writes a text where it is asked with messages. This one gives the whole
question to a worker drawn at random: put your own in its place, and learn from the rewards. The
workers are perfect ones, so nothing is downloaded and nothing but the plan can be at fault.

    python examples/own_trainer.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from podium import Step, Workflow
from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.request import Message
from podium.train.diagnostics import Rollout, StepDiagnostics, diagnose
from podium.train.exercises import load_exercises
from podium.train.recipe import read_recipe
from podium.train.score import Scorer
from podium.train.worker_set import recipe_pool
from podium_lab.etudes.workers import oracle_workers

RECIPE = Path(__file__).parent.parent / "recipes" / "etudes.toml"
ROLLOUTS = 8


def policy(messages: Sequence[Message], context: PlanningContext, rng: Random) -> str:
    """A plan. A model would read the messages; this one needs to know no more than the pool."""
    worker = rng.choice(context.pool.names)
    return plan.write(Workflow((Step(worker, context.question),)), context.pool)


async def one_step() -> StepDiagnostics:
    """The questions of one step, each tried several times, as a trainer would."""
    recipe = read_recipe(RECIPE, ["pool.adapters=", "pool.oracle=true", "grpo.steps=1"])
    prompt = Prompt(style=recipe.prompt.style, plan_format="lists", few_shot=recipe.prompt.few_shot)
    scorer = Scorer(oracle_workers(), reward=recipe.reward.reward())
    rng = Random(7)  # noqa: S311 - repeatable, not secret
    rollouts = []
    for task, context, number in load_exercises(recipe, recipe_pool(recipe)).train:
        messages = prompt.messages(context)
        texts = [policy(messages, context, rng) for _ in range(ROLLOUTS)]
        scores = await asyncio.gather(*(scorer.score(t, task, context.pool) for t in texts))
        rollouts += [
            Rollout(number, score, len(score.text.split()), context.pool, task.kind)
            for score in scores
        ]
    return diagnose(rollouts)


if __name__ == "__main__":
    for name, value in asyncio.run(one_step()).as_metrics().items():
        sys.stdout.write(f"{name:24} {value:.3f}\n")
