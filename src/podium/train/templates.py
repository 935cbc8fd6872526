"""Plan templates: the examples of a conductor's warm start over a pool file.

A template is a list of steps whose workers are letters: different letters are different models,
drawn again for each question. `tool` is a worker that runs programs; other words are names of the
pool. Some examples are second rounds: a first round's answer, right in half of them, is accepted if
it is right, and followed by another plan if not.

Drawn at random, templates teach the form of plans. With `sft.search_tasks` they are first executed
on training tasks with every choice of workers, by successive halving, and `plans.toml` in the
output has the result: templates again, with names for letters, a benchmark, and a share that grows
with the reward.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Annotated, Final, Literal

from pydantic import Field

from podium._util.files import write_atomically
from podium._util.tables import Table
from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.task import Task
from podium.core.workflow import Condition, Step, Workflow
from podium.train.examples import TextExample
from podium.train.exercises import draw_exercises, load_task_split, recipe_prompt
from podium.train.recipe import Recipe, read_tables
from podium.train.score import Score
from podium.train.training_log import is_main_process, wait_for_everyone
from podium.train.worker_set import connect_workers, recipe_pool

TOOL: Final = "tool"
TOOL_PROVIDERS: Final = ("python",)

PLANS_FILE: Final = "plans.toml"
SEARCH_ROUNDS: Final = 3
KEPT_SHARE: Final = 4
"""Of the plans of a round, one in so many stays, and meets as many times the tasks."""

REWARD_SPREAD: Final = 0.02
"""A plan is drawn e times as often as one whose reward is lower by this."""


class TemplateStep(Table):
    """A step of a template; its subtask is one of several texts."""

    worker: str
    subtask: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    access: Literal["all"] | Annotated[tuple[int, ...], Field(strict=False)] = ()
    condition: str | None = Field(default=None, alias="if")


class Template(Table):
    """A kind of plan, and how often it is drawn beside the others; `benchmark` limits it to that
    benchmark's tasks."""

    share: Annotated[float, Field(gt=0)] = 1.0
    benchmark: str | None = None
    steps: Annotated[tuple[TemplateStep, ...], Field(min_length=1, strict=False)]

    @property
    def letters(self) -> list[str]:
        """The workers that stand for any model."""
        return sorted({step.worker for step in self.steps if len(step.worker) == 1})

    def assignments(self, pool: Pool) -> Iterator[dict[str, str]]:
        """Yield every choice of workers of the pool for the letters and the tool."""
        tools = [worker.name for worker in pool if worker.provider in TOOL_PROVIDERS]
        models = [name for name in pool.names if name not in tools]
        named = {step.worker for step in self.steps} - {*self.letters, TOOL}
        needs_tool = any(step.worker == TOOL for step in self.steps)
        if not named <= {*pool.names} or (needs_tool and not tools):
            return
        for chosen in permutations(models, len(self.letters)):
            for tool in tools if needs_tool else [""]:
                yield {TOOL: tool, **dict(zip(self.letters, chosen, strict=True))}

    def workflow(
        self, names: Mapping[str, str], choose: Callable[[Sequence[str]], str]
    ) -> Workflow:
        """Return the plan with these workers; `choose` picks one of a step's subtasks."""
        return Workflow(
            tuple(
                Step(
                    names.get(step.worker, step.worker),
                    choose(step.subtask),
                    step.access,
                    None if step.condition is None else Condition.parse(step.condition),
                )
                for step in self.steps
            )
        )


class TemplatesFile(Table):
    """The templates of a warm start."""

    later_round_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    plan: Annotated[tuple[Template, ...], Field(min_length=1, strict=False)]


def template_examples(
    recipe: Recipe, split: Literal["train", "test"], count: int
) -> list[TextExample]:
    """Make `count` examples over the tasks of that split; the seed decides which."""
    sft = recipe.sft
    assert sft is not None
    assert sft.templates is not None
    problems = load_task_split(recipe)
    records = problems.train if split == "train" else problems.held_out
    if not records:
        raise ConfigError("no task is held out to measure by; write run.eval_every = 0")
    tasks = [record.to_task() for record in records]
    file = read_tables(TemplatesFile, Path(sft.templates), ())
    if sft.search_tasks:
        found = recipe.output / PLANS_FILE
        if split == "train" and is_main_process() and not found.exists():
            asyncio.run(_write_best_plans(recipe, file, tasks, found))
        wait_for_everyone()
        file = read_tables(TemplatesFile, found, ())
    rng = Random(f"{recipe.run.seed}/{split}/templates")  # noqa: S311 - repeatable, not secret
    return list(islice(_examples(recipe, file, tasks, rng), count))


def _examples(
    recipe: Recipe, file: TemplatesFile, tasks: Sequence[Task], rng: Random
) -> Iterator[TextExample]:
    prompt = recipe_prompt(recipe)
    for task, context, _ in draw_exercises(recipe, tasks, recipe_pool(recipe), rng):
        wanted: Workflow | None = draw_plan(file.plan, context.pool, rng, benchmark_of(task))
        if rng.random() < file.later_round_share:
            is_right = rng.random() < 0.5
            answer = task.answer if is_right else rng.choice(tasks).answer
            before = draw_plan(file.plan, context.pool, rng, benchmark_of(task))
            context = after_round(context, before, answer)
            wanted = None if is_right else wanted
        reply = (
            plan.write_acceptance(prompt.layout)
            if wanted is None
            else plan.write(wanted, context.pool, layout=prompt.layout)
        )
        yield TextExample(prompt.chat(context), reply)


def benchmark_of(task: Task) -> str:
    return task.id.partition("/")[0]


def draw_plan(
    templates: Sequence[Template], pool: Pool, rng: Random, benchmark: str | None = None
) -> Workflow:
    """Draw a template by its share, and workers for its letters."""
    fitting = {
        index: assignments
        for index, one in enumerate(templates)
        if one.benchmark in (None, benchmark) and (assignments := list(one.assignments(pool)))
    }
    if not fitting:
        raise ConfigError(f"no plan template suits a pool of {', '.join(pool.names)}")
    (index,) = rng.choices([*fitting], [templates[index].share for index in fitting])
    return templates[index].workflow(rng.choice(fitting[index]), rng.choice)


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


async def _write_best_plans(
    recipe: Recipe, file: TemplatesFile, tasks: Sequence[Task], path: Path
) -> None:
    """Search the plans of each benchmark, all at once, and write them as templates."""
    assert recipe.sft is not None
    by_benchmark: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_benchmark[benchmark_of(task)].append(task)
    workers, layout = connect_workers(recipe), recipe_prompt(recipe).layout

    async def score(workflow: Workflow, task: Task) -> Score:
        text = plan.write(workflow, workers.pool, layout=layout)
        return await workers.scorer.score(text, task, workers.pool)

    plans = list(all_plans(file.plan, workers.pool))
    try:
        searches = (
            search(plans, drawn, recipe.sft.search_tasks, score) for drawn in by_benchmark.values()
        )
        results = dict(zip(by_benchmark, await asyncio.gather(*searches), strict=True))
    finally:
        await workers.close()
    lines = [f"later_round_share = {file.later_round_share}"]
    for benchmark, scored in results.items():
        best = max(map(lower_bound, scored.values()))
        for workflow in sorted(scored, key=lambda one: -lower_bound(scored[one])):
            share = math.exp((lower_bound(scored[workflow]) - best) / REWARD_SPREAD)
            lines += _template_lines(benchmark, workflow, max(share, 1e-9), scored[workflow])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(lines) + "\n")


def count_runs(recipe: Recipe, pool: Pool) -> int:
    """Return how many plans `sft.search_tasks` executes."""
    sft, mix = recipe.sft, recipe.data.mix
    if sft is None or sft.templates is None or not sft.search_tasks:
        return 0
    file = read_tables(TemplatesFile, Path(sft.templates), ())
    plans, benchmarks = len(list(all_plans(file.plan, pool))), 1
    if mix is not None:
        benchmarks = len({source.partition(":")[0] for source in mix.sources})
    return benchmarks * sft.search_tasks * SEARCH_ROUNDS * plans


def all_plans(templates: Sequence[Template], pool: Pool) -> Iterator[Workflow]:
    """Yield every template with every choice of workers, and the first subtask of each step."""
    seen = set[Workflow]()
    for template in templates:
        for names in template.assignments(pool):
            workflow = template.workflow(names, lambda texts: texts[0])
            if workflow not in seen:
                seen.add(workflow)
                yield workflow


async def search(
    plans: Sequence[Workflow],
    tasks: Sequence[Task],
    count: int,
    score: Callable[[Workflow, Task], Awaitable[Score]],
) -> dict[Workflow, list[Score]]:
    """Return the scores of the plans by successive halving.

    All plans meet the same tasks: `count` in the first round, and `KEPT_SHARE` times as many in
    each round for those that stay.
    """
    scored: dict[Workflow, list[Score]] = {one: [] for one in plans}
    kept, begin = list(plans), 0
    for _ in range(SEARCH_ROUNDS):
        drawn = tasks[begin : begin + count]
        pairs = [(one, task) for task in drawn for one in kept]
        scores = await asyncio.gather(*(score(*pair) for pair in pairs))
        for (one, _), found in zip(pairs, scores, strict=True):
            scored[one].append(found)
        ranked = sorted(kept, key=lambda one: -fmean(map(reward_of, scored[one])))
        kept, begin, count = (
            ranked[: math.ceil(len(ranked) / KEPT_SHARE)],
            begin + count,
            count * KEPT_SHARE,
        )
    return scored


def reward_of(score: Score) -> float:
    """Return the reward; 0 for a run that says nothing, since a worker failed."""
    return score.reward or 0.0


def lower_bound(scores: Sequence[Score]) -> float:
    """Return the mean reward less its standard error: few tasks may have been lucky ones."""
    rewards = [reward_of(one) for one in scores]
    error = stdev(rewards) / math.sqrt(len(rewards)) if len(rewards) > 1 else 1.0
    return fmean(rewards) - error


def _template_lines(
    benchmark: str, workflow: Workflow, share: float, scores: Sequence[Score]
) -> Iterator[str]:
    accuracy = fmean(one.right for one in scores)
    reward = fmean(map(reward_of, scores))
    yield ""
    yield f"[[plan]] # {accuracy:.1%} of {len(scores)} tasks right, reward {reward:.3f}"
    yield f"benchmark = {json.dumps(benchmark)}"
    yield f"share = {share:.3g}"
    yield "steps = ["
    for step in workflow.steps:
        parts = [
            f"worker = {json.dumps(step.worker)}",
            f"subtask = [{json.dumps(step.subtask, ensure_ascii=False)}]",
            f"access = {json.dumps(step.access)}",
            *([] if step.condition is None else [f"if = {json.dumps(str(step.condition))}"]),
        ]
        yield f"    {{ {', '.join(parts)} }},"
    yield "]"
