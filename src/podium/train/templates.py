"""Plan templates: the examples of a conductor's warm start over a pool file.

A template is a list of steps whose workers are letters: different letters are different models,
drawn again for each question. `tool` is a worker that runs programs; other words are names of the
pool. Some examples are second rounds: a first round's answer, right in half of them, is accepted if
it is right, and followed by another plan if not.

Drawn at random, templates teach the form of plans. With `sft.search_tasks` they are first executed
on training tasks with every choice of workers, by successive halving, and `plans.toml` in the
output has the result: the plans of each benchmark, with names for letters and a share that grows
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
from statistics import fmean
from typing import Annotated, Final, Literal

from pydantic import Field

from podium._util.files import sha256_file, write_atomically
from podium._util.tables import Table
from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.task import Task
from podium.core.workflow import Condition, Step, Workflow
from podium.tasks import load_source
from podium.train.examples import TextExample
from podium.train.exercises import draw_exercises, load_task_split, recipe_prompt
from podium.train.recipe import Recipe, read_tables
from podium.train.score import Score
from podium.train.training_log import process_count
from podium.train.worker_set import connect_workers, recipe_pool

TOOL: Final = "tool"
TOOL_PROVIDERS: Final = ("python",)

PLANS_FILE: Final = "plans.toml"
SEARCH_ROUNDS: Final = 3
HALVING_FACTOR: Final = 4
"""Of the plans of a round, one in so many stays, and meets as many times the tasks."""

TEMPERATURE: Final = 0.02
"""A plan is drawn e times as often as one whose reward is lower by this."""

RUNS_AT_ONCE: Final = 2_000


class TemplateStep(Table):
    """A step of a template; its subtask is one of several texts."""

    worker: str
    subtask: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    access: Literal["all"] | Annotated[tuple[int, ...], Field(strict=False)] = ()
    condition: str | None = Field(default=None, alias="if")


class Template(Table):
    """A kind of plan, and how often it is drawn beside the others.

    One of a `benchmark` was found by a search: it is for that benchmark's tasks, and all its
    workers are names.
    """

    share: Annotated[float, Field(gt=0)] = 1.0
    benchmark: str | None = None
    steps: Annotated[tuple[TemplateStep, ...], Field(min_length=1, strict=False)]

    @property
    def placeholders(self) -> list[str]:
        """The workers that stand for any model."""
        if self.benchmark is not None:
            return []
        return sorted({step.worker for step in self.steps if len(step.worker) == 1})

    def assignments(self, pool: Pool) -> Iterator[dict[str, str]]:
        """Yield every choice of workers of the pool for the letters and the tool."""
        tools = [worker.name for worker in pool if worker.provider in TOOL_PROVIDERS]
        models = [name for name in pool.names if name not in tools]
        needs_tool = self.benchmark is None and any(step.worker == TOOL for step in self.steps)
        named = {step.worker for step in self.steps} - {*self.placeholders}
        if needs_tool:
            named.remove(TOOL)
        if not named <= {*pool.names} or (needs_tool and not tools):
            return
        for chosen in permutations(models, len(self.placeholders)):
            for tool in tools if needs_tool else [""]:
                names = dict(zip(self.placeholders, chosen, strict=True))
                yield names | {TOOL: tool} if tool else names

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
    """The templates of a warm start; a search adds the checksum of the file it began with."""

    later_round_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    source_sha256: str | None = None
    plan: Annotated[tuple[Template, ...], Field(min_length=1, strict=False)]


def template_examples(
    recipe: Recipe,
    split: Literal["train", "test"],
    count: int,
    note: Callable[[str], None] = lambda line: None,
) -> list[TextExample]:
    """Make `count` examples over the tasks of that split; the seed decides which.

    `note` prints the progress of a search.
    """
    sft = recipe.sft
    assert sft is not None
    assert sft.templates is not None
    problems = load_task_split(recipe)
    records = problems.train if split == "train" else problems.held_out
    tasks = [record.to_task() for record in records]
    benchmarks = benchmarks_of(recipe)
    path, found = Path(sft.templates), recipe.output / PLANS_FILE
    file = read_tables(TemplatesFile, path, ())
    if sft.search_tasks:
        checksum = sha256_file(path)
        if not found.exists() or read_tables(TemplatesFile, found, ()).source_sha256 != checksum:
            if process_count() > 1:
                raise ConfigError("sft.search_tasks needs one process; the others would wait")
            groups: dict[str, list[Task]] = defaultdict(list)
            for task in tasks:
                groups[benchmarks[task.id]].append(task)
            lines = asyncio.run(_search_plans(recipe, file, groups, note))
            lines.insert(0, f'source_sha256 = "{checksum}"')
            lines.insert(1, f"later_round_share = {file.later_round_share}")
            found.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(found, "\n".join([*lines, ""]))
        file = read_tables(TemplatesFile, found, ())
    rng = Random(f"{recipe.run.seed}/{split}/templates")  # noqa: S311 - repeatable, not secret
    return list(islice(_examples(recipe, file, tasks, benchmarks, rng), count))


def benchmarks_of(recipe: Recipe) -> dict[str, str]:
    """Return the benchmark of each task by its id: its source in the recipe, without splits."""
    mix, suite = recipe.data.mix, recipe.data.suite
    names = mix.sources if mix is not None else [suite.name] if suite is not None else []
    path = mix.path if mix is not None else suite.path if suite is not None else None
    return {
        record.id: name.partition(":")[0]
        for name in sorted(names)
        for record in load_source(name, Path(path) if path else None)
    }


def _examples(
    recipe: Recipe,
    file: TemplatesFile,
    tasks: Sequence[Task],
    benchmarks: Mapping[str, str],
    rng: Random,
) -> Iterator[TextExample]:
    prompt = recipe_prompt(recipe)
    answers: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        answers[benchmarks[task.id]].append(task.answer)
    for task, context, _ in draw_exercises(recipe, tasks, recipe_pool(recipe), rng):
        benchmark = benchmarks[task.id]
        wanted: Workflow | None = draw_plan(file.plan, context.pool, rng, benchmark)
        if rng.random() < file.later_round_share:
            answer = task.answer if rng.random() < 0.5 else rng.choice(answers[benchmark])
            context = after_round(context, task, answer, rng)
            wanted = None if answer == task.answer else wanted
        reply = (
            plan.write_acceptance(prompt.layout)
            if wanted is None
            else plan.write(wanted, context.pool, layout=prompt.layout)
        )
        yield TextExample(prompt.chat(context), reply)


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


def after_round(context: PlanningContext, task: Task, answer: str, rng: Random) -> PlanningContext:
    """Return the context after a round in which one worker answered so."""
    step = Step(rng.choice(context.pool.names), "Answer the question.")
    record = StepRecord(
        round=0,
        index=0,
        worker=step.worker,
        subtask=step.subtask,
        access=step.access,
        status="done",
        reply=f"\\boxed{{{answer}}}" if "\\boxed" in task.question else answer,
        error=None,
        started_ms=0.0,
        finished_ms=0.0,
        answered_by=step.worker,
    )
    return replace(context, rounds=(Round(0, Workflow((step,)), (record,)),))


async def _search_plans(
    recipe: Recipe,
    file: TemplatesFile,
    groups: Mapping[str, Sequence[Task]],
    note: Callable[[str], None],
) -> list[str]:
    """Search the plans of each benchmark, all at once; return them as lines of templates."""
    assert recipe.sft is not None
    workers, layout = connect_workers(recipe), recipe_prompt(recipe).layout
    slots = asyncio.Semaphore(RUNS_AT_ONCE)

    async def score(workflow: Workflow, task: Task) -> Score:
        text = plan.write(workflow, workers.pool, layout=layout)
        async with slots:
            return await workers.scorer.score(text, task, workers.pool)

    async def search_group(benchmark: str, tasks: Sequence[Task]) -> list[str]:
        scored = await search(plans, tasks, count, score)
        estimates = estimate_rewards(scored)
        best = max(estimates, key=lambda one: estimates[one])
        right = fmean(one.right for one in scored[best])
        note(f"{benchmark}: {right:.1%} of {len(scored[best])} tasks right by {_describe(best)}")
        return [
            line
            for workflow in sorted(estimates, key=lambda one: -estimates[one])
            for line in _template_lines(
                benchmark, workflow, estimates[workflow] - estimates[best], scored[workflow]
            )
        ]

    plans, count = list(all_plans(file.plan, workers.pool)), recipe.sft.search_tasks
    note(f"searching {len(plans)} plans for each of {', '.join(groups)}")
    try:
        found = await asyncio.gather(*(search_group(*group) for group in groups.items()))
    finally:
        await workers.close()
    return [line for lines in found for line in lines]


def count_runs(recipe: Recipe, pool: Pool) -> int:
    """Return how many plans `sft.search_tasks` executes."""
    sft, mix = recipe.sft, recipe.data.mix
    if sft is None or sft.templates is None or not sft.search_tasks:
        return 0
    file = read_tables(TemplatesFile, Path(sft.templates), ())
    sources = {source.partition(":")[0] for source in mix.sources} if mix is not None else {""}
    plans = len(list(all_plans(file.plan, pool)))
    return len(sources) * sft.search_tasks * SEARCH_ROUNDS * plans


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
    tasks_per_plan: int,
    score: Callable[[Workflow, Task], Awaitable[Score]],
) -> dict[Workflow, list[Score]]:
    """Return the scores of the plans by successive halving.

    All plans meet the same tasks: `tasks_per_plan` in the first round, and `HALVING_FACTOR` times
    as many new ones in each round for those that stay.
    """
    scored: dict[Workflow, list[Score]] = {one: [] for one in plans}
    kept, begin = list(plans), 0
    for _ in range(SEARCH_ROUNDS):
        drawn = tasks[begin : begin + tasks_per_plan]
        pairs = [(one, task) for task in drawn for one in kept]
        scores = await asyncio.gather(*(score(*pair) for pair in pairs))
        for (one, _), found in zip(pairs, scores, strict=True):
            scored[one].append(found)
        ranked = sorted(kept, key=lambda one: mean_reward(scored[one]), reverse=True)
        kept = ranked[: math.ceil(len(ranked) / HALVING_FACTOR)]
        begin, tasks_per_plan = begin + tasks_per_plan, tasks_per_plan * HALVING_FACTOR
    return scored


def mean_reward(scores: Sequence[Score]) -> float:
    """Return the mean over runs that count; a run whose worker failed says nothing of the plan."""
    rewards = [one.reward for one in scores if one.reward is not None]
    return fmean(rewards) if rewards else 0.0


def estimate_rewards(scored: Mapping[Workflow, Sequence[Score]]) -> dict[Workflow, float]:
    """Estimate each plan's reward, with a deduction for few tasks.

    Plans that were dropped met fewer and other tasks: they are compared with the mean of the
    finalists on the same ones.
    """
    most = max(map(len, scored.values()))
    finalists = [scores for scores in scored.values() if len(scores) == most]
    means = [mean_reward(on_task) for on_task in zip(*finalists, strict=True)]
    estimates = {}
    for workflow, scores in scored.items():
        pairs = zip(scores, means, strict=False)
        gains = [one.reward - mean for one, mean in pairs if one.reward is not None]
        if gains:
            estimates[workflow] = fmean(means) + fmean(gains) - 0.5 / math.sqrt(len(gains))
    return estimates


def _describe(workflow: Workflow) -> str:
    return " -> ".join(
        step.worker + ("" if step.condition is None else f" if {step.condition}")
        for step in workflow.steps
    )


def _template_lines(
    benchmark: str, workflow: Workflow, behind: float, scores: Sequence[Score]
) -> Iterator[str]:
    """Yield the plan as a template; `behind` is its distance from the best reward."""
    right, reward = fmean(one.right for one in scores), mean_reward(scores)
    yield ""
    yield f"[[plan]] # {right:.1%} of {len(scores)} tasks right, reward {reward:.3f}"
    yield f"benchmark = {json.dumps(benchmark)}"
    yield f"share = {max(math.exp(behind / TEMPERATURE), 1e-9):.3g}"
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
