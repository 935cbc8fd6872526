"""What a training would take, before it begins: rollouts, calls, tokens, money.

Counts follow from the recipe. Tokens and money rest on what the recipe's `[estimate]` assumes,
and on every worker being called as often as any other: nobody knows whom the conductor will
choose, so what the dearest would cost stands beside. A price that is unknown makes the sum
unknown. Replies that are kept and used again cost less than this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from podium.pool import Pool, WorkerProfile
from podium.train.method import EvolveTable, GrpoTable, SftTable
from podium.train.pools import wants_references
from podium.train.recipe import Recipe
from podium.usage import Usage

USUAL_POPULATION: Final = 32
"""The candidates of a step of evolution, where a recipe leaves their number to how many parameters
there are: so many for the paper's 10,240, and between 30 and 34 for half or twice of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The sums over a whole training.

    `examples` are those of `sft`; everything from `rollouts` on is 0 there. `candidates` are those
    of a step of evolution, where each has a rollout for every question. `conductor_tokens`
    is the most that plans can have. `usd` is None where the price of some worker is unknown:
    those are `unpriced`, and `usd_known` is for the calls to the others. `tried` are the most plans
    that exploring may carry out beside, which the other figures leave out: nobody knows how often
    no plan will be right. `usd_most` has them in it, and is what it would be if the dearest worker
    whose price is known got every call.
    """

    steps: int
    examples: int = 0
    questions: int = 0
    candidates: int = 0
    rollouts: int = 0
    tried: int = 0
    measured: int = 0
    worker_calls: int = 0
    worker_input_tokens: int = 0
    worker_output_tokens: int = 0
    conductor_tokens: int = 0
    usd: float | None = 0.0
    usd_known: float = 0.0
    usd_most: float = 0.0
    unpriced: tuple[str, ...] = ()


def estimate(recipe: Recipe, pool: Pool | None = None) -> Estimate:
    """What the recipe would take over the workers of that pool; only `sft` needs none."""
    match recipe.training:
        case SftTable() as sft:
            examples = sft.steps * sft.batch * max(1, len(sft.adapters))
            return Estimate(steps=sft.steps, examples=examples)
        case GrpoTable() as grpo:
            assert pool is not None, "plans are carried out by somebody"
            return _of_grpo(recipe, grpo, pool)
        case EvolveTable() as evolve:
            assert pool is not None, "a coordinator leads somebody"
            return _of_evolve(recipe, evolve, pool)


def calls_a_run(recipe: Recipe) -> float:
    """How many calls to workers a run is taken to have: as the recipe assumes, but no more than it
    may have turns, and all of those where nobody has the role to end it before."""
    evolve = recipe.evolve
    if evolve is None:
        return recipe.estimate.steps
    return min(recipe.estimate.steps, evolve.turns) if evolve.roles else evolve.turns


def _of_grpo(recipe: Recipe, grpo: GrpoTable, pool: Pool) -> Estimate:
    questions = recipe.batches * grpo.questions
    rollouts, measured = questions * grpo.rollouts, _measured(recipe)
    tried = questions * (grpo.explore_tries or grpo.explore)
    workers = [worker for worker in pool if recipe.prompt.one_worker in (None, worker.name)]
    calls = round((rollouts + measured) * recipe.estimate.steps)
    if wants_references(recipe, pool):
        calls += recipe.run.eval_tasks * len(workers)
    return replace(
        _called(recipe, workers, calls, more=round(tried * recipe.estimate.steps)),
        steps=grpo.steps,
        questions=questions,
        rollouts=rollouts,
        tried=tried,
        measured=measured,
        conductor_tokens=(rollouts + measured) * grpo.max_completion_tokens,
    )


def _of_evolve(recipe: Recipe, evolve: EvolveTable, pool: Pool) -> Estimate:
    questions = evolve.steps * evolve.questions
    candidates = evolve.population or USUAL_POPULATION
    rollouts, measured = questions * candidates, _measured(recipe)
    calls = round((rollouts + measured) * calls_a_run(recipe))
    return replace(
        _called(recipe, list(pool), calls),
        steps=evolve.steps,
        questions=questions,
        candidates=candidates,
        rollouts=rollouts,
        measured=measured,
    )


def _measured(recipe: Recipe) -> int:
    """How many questions are asked to measure progress, over the whole training."""
    every = recipe.run.eval_every
    return recipe.training.steps // every * recipe.run.eval_tasks if every else 0


def _called(
    recipe: Recipe, workers: Sequence[WorkerProfile], calls: int, *, more: int = 0
) -> Estimate:
    """What so many calls to these workers come to, and perhaps as many `more`."""
    assumed = recipe.estimate
    costs = [_cost_of_a_call(recipe, worker) for worker in workers]
    known = [cost for cost in costs if cost is not None]
    usd_known = calls * sum(known) / len(workers)
    return Estimate(
        steps=0,
        worker_calls=calls,
        worker_input_tokens=calls * assumed.input_tokens,
        worker_output_tokens=calls * assumed.output_tokens,
        usd=usd_known if len(known) == len(workers) else None,
        usd_known=usd_known,
        usd_most=(calls + more) * max(known, default=0.0),
        unpriced=tuple(worker.name for worker in workers if worker.price is None),
    )


def _cost_of_a_call(recipe: Recipe, worker: WorkerProfile) -> float | None:
    assumed = recipe.estimate
    usage = Usage(assumed.input_tokens, assumed.output_tokens, 0, 0, 0)
    return worker.price.cost(usage) if worker.price is not None else None
