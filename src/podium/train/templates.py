"""Examples of plans over a pool file, for the warm start: the form of plans and their variety.

A template is a list of steps whose workers are letters: different letters are different models,
drawn again for each question, and the reward decides which model is good at what. `tool` is a
worker that runs programs. Some examples are second rounds: a first round's answer, right in half of
them, is accepted if it is right, and followed by another plan if not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.task import Task
from podium.core.workflow import Condition, Step, Workflow
from podium.train.examples import CONDUCTOR, TextExample
from podium.train.exercises import draw_exercises, load_task_split, recipe_prompt
from podium.train.recipe import Recipe, read_tables
from podium.train.worker_set import recipe_pool
from podium.workers.catalogue import Table

TOOL: Final = "tool"
TOOL_PROVIDERS: Final = ("python",)


class TemplateStep(Table):
    """A step of a template; its subtask is one of several texts."""

    worker: str
    subtask: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    access: Literal["all"] | Annotated[tuple[int, ...], Field(strict=False)] = ()
    condition: str | None = Field(default=None, alias="if")


class Template(Table):
    """A kind of plan, and how often it is drawn beside the others."""

    share: Annotated[float, Field(gt=0)] = 1.0
    steps: Annotated[tuple[TemplateStep, ...], Field(min_length=1, strict=False)]


class TemplatesFile(Table):
    """The templates of a warm start."""

    later_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    plan: Annotated[tuple[Template, ...], Field(min_length=1, strict=False)]


def template_examples(
    recipe: Recipe, split: Literal["train", "test"], count: int
) -> dict[str, list[TextExample]]:
    """Make `count` examples over the tasks of that split; the seed decides which."""
    assert recipe.sft is not None
    assert recipe.sft.templates is not None
    file = read_tables(TemplatesFile, Path(recipe.sft.templates), ())
    problems = load_task_split(recipe)
    records = problems.train if split == "train" else problems.held_out
    if not records:
        raise ConfigError("no task is held out to measure by; write run.eval_every = 0")
    rng = Random(f"{recipe.run.seed}/{split}/templates")  # noqa: S311 - repeatable, not secret
    tasks = [record.to_task() for record in records]
    return {CONDUCTOR: list(islice(_examples(recipe, file, tasks, rng), count))}


def _examples(
    recipe: Recipe, file: TemplatesFile, tasks: Sequence[Task], rng: Random
) -> Iterator[TextExample]:
    prompt = recipe_prompt(recipe)
    for task, context, _ in draw_exercises(recipe, tasks, recipe_pool(recipe), rng):
        wanted: Workflow | None = draw_plan(file.plan, context.pool, rng)
        if rng.random() < file.later_share:
            is_right = rng.random() < 0.5
            answer = task.answer if is_right else rng.choice(tasks).answer
            context = after_round(context, draw_plan(file.plan, context.pool, rng), answer)
            wanted = None if is_right else wanted
        reply = (
            plan.write_acceptance(prompt.order)
            if wanted is None
            else plan.write(wanted, context.pool, order=prompt.order)
        )
        yield TextExample(prompt.chat(context), reply)


def draw_plan(templates: Sequence[Template], pool: Pool, rng: Random) -> Workflow:
    tools = [worker.name for worker in pool if worker.provider in TOOL_PROVIDERS]
    models = [name for name in pool.names if name not in tools]
    fitting = []
    for template in templates:
        letters = {step.worker for step in template.steps}
        if (not letters & {TOOL} or tools) and len(letters - {TOOL}) <= len(models):
            fitting.append(template)
    if not fitting:
        raise ConfigError(f"no plan template suits a pool of {', '.join(pool.names)}")
    (template,) = rng.choices(fitting, [one.share for one in fitting])
    names = sorted({step.worker for step in template.steps} - {TOOL})
    chosen = dict(zip(names, rng.sample(models, len(names)), strict=True))
    if tools:
        chosen[TOOL] = rng.choice(tools)
    return Workflow(
        tuple(
            Step(
                chosen[step.worker],
                rng.choice(step.subtask),
                step.access,
                None if step.condition is None else Condition.parse(step.condition),
            )
            for step in template.steps
        )
    )


def after_round(context: PlanningContext, workflow: Workflow, answer: str) -> PlanningContext:
    reply = f"<answer>{answer}</answer>"
    steps = tuple(
        StepRecord(
            *(0, index, step.worker, step.subtask, step.access),
            *("done", reply, None, 0.0, 0.0),
            answered_by=step.worker,
        )
        for index, step in enumerate(workflow.steps)
    )
    return replace(context, rounds=(Round(0, workflow, steps),))
