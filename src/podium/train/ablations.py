"""How a recipe's `[prompt]` has plans asked for, read and carried out: the paper's ablations.

    few_shot = false       the prompt shows no worked examples
    access = "binary"      a step reads everything before it or nothing: the prompt teaches that,
                           and a plan that names steps by their indices is malformed
    fixed_subtasks = true  every worker gets the subtask "Solve the user question". Plans keep their
                           three lists, so that one parser reads them all, but what the conductor
                           writes as subtasks reaches no worker
    one_worker = "name"    this worker stands in every place of the pool: under its own name in
                           the first, as name-2, name-3, … after that, and described alike

Whoever scores plans for a recipe takes its prompt and its scorer from here, and then has what the
switches say. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podium.conductors.prompt import Prompt
from podium.core.errors import MalformedPlan, UnknownWorker
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import CallPolicy
from podium.engine.limits import Gate
from podium.train.recipe import FIXED_SUBTASK, Recipe
from podium.train.score import Scorer


def recipe_prompt(recipe: Recipe) -> Prompt:
    """The words with which the recipe asks for plans."""
    asked = recipe.prompt
    return Prompt(asked.length, "lists", few_shot=asked.few_shot, access=asked.access)


def recipe_scorer(
    recipe: Recipe, workers: Sequence[Worker], later: Sequence[Worker] | None = None
) -> Scorer:
    """The scorer of the recipe's plans over these workers, all of whose switches it honours;
    `later` are the same as rounds after the first meet them."""
    asked, call_policy = recipe.prompt, CallPolicy()
    later = workers if later is None else later
    if asked.one_worker is not None:
        call_policy = _OneGate(worker_named(workers, asked.one_worker))
        workers, later = (_in_all_places(asked.one_worker, item) for item in (workers, later))

    def amend(workflow: Workflow) -> Workflow:
        if asked.access == "binary":
            refuse_indices(workflow)
        return with_fixed_subtasks(workflow) if asked.fixed_subtasks else workflow

    return Scorer(
        workers,
        reward=recipe.reward.reward(),
        max_steps=asked.max_steps,
        amend=amend,
        call_policy=call_policy,
        later=later,
    )


def _in_all_places(name: str, workers: Sequence[Worker]) -> list[Worker]:
    worker = worker_named(workers, name)
    return [_StandIn(worker, place_name(name, position)) for position in range(len(workers))]


# ---- what is made of a plan


def refuse_indices(workflow: Workflow) -> None:
    """Raise `MalformedPlan` where a step reads some of the steps before it, named one by one."""
    for index, step in enumerate(workflow.steps):
        if step.access not in ((), "all"):
            raise MalformedPlan(
                "access_list",
                f"entry {index} is {list(step.access)}; a step reads everything before it or "
                f'nothing here: write ["all"] or []',
            )


def with_fixed_subtasks(workflow: Workflow) -> Workflow:
    """The workflow with the same words for every worker."""
    return Workflow(tuple(replace(step, subtask=FIXED_SUBTASK) for step in workflow.steps))


# ---- one worker in every place


def in_every_place(worker: WorkerProfile, pool: Pool) -> Pool:
    """The pool with that worker in each of its places."""
    alike = replace(worker, fallback=None)
    places = range(len(pool))
    return replace(
        pool,
        workers=tuple(
            replace(alike, name=place_name(worker.name, position)) for position in places
        ),
    )


def place_name(worker: str, position: int) -> str:
    """Return the worker's name at that position; the names of a pool must differ."""
    return f"{worker}-{position + 1}" if position else worker


def under_one_name(workflow: Workflow, worker: str) -> Workflow:
    """The workflow with that worker, under its own name, in every step."""
    return Workflow(tuple(replace(step, worker=worker) for step in workflow.steps))


def worker_named(workers: Sequence[Worker], name: str) -> Worker:
    """The one among the workers that has the name."""
    for worker in workers:
        if worker.profile.name == name:
            return worker
    raise UnknownWorker(name, tuple(worker.profile.name for worker in workers))


class _StandIn(Worker):
    """The worker in another place, by another name."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.profile = replace(worker.profile, name=name, fallback=None)
        self._worker = worker

    async def reply(self, request: Request) -> Reply:
        """Return the worker's own reply; cached replies are equal at every position."""
        return await self._worker.reply(request)


class _OneGate(CallPolicy):
    """A board with one gate for all: the limits are the worker's, in however many places."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    def gate(self, worker: Worker) -> Gate:
        """The gate of the one worker there is."""
        return super().gate(self._worker)
