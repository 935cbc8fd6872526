"""The switches of `[prompt]`, each seen in what the conductor reads and what workers are asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podium.conductors.plan import write
from podium.core.errors import ConfigError, MalformedPlan
from podium.core.pool import Limits, Pool
from podium.core.task import Task
from podium.core.workflow import Access, Step, Workflow
from podium.train.exercises import (
    recipe_prompt,
)
from podium.train.recipe import Recipe
from podium.train.worker_set import (
    make_scorer,
    recipe_pool,
    refuse_indices,
    with_fixed_subtasks,
)
from podium_lab.etudes import FlakyWorker
from podium_lab.etudes.values import UNSURE
from support.harness import FakeWorker
from support.recipes import GRPO, POOL, make_recipe

ETUDES = """
[model]
base = "owner/model-7B"
[data]
kind = "etudes"
[pool]
oracle = true
[grpo]
steps = 3
questions = 4
rollouts = 4
learning_rate = 1e-6
[run]
output = "out"
eval_tasks = 6
"""


async def is_42(answer: str) -> bool:
    return answer == "42"


TASK = Task(id="t", question="What is six times seven?", grader=is_42)


def chain(access: Access = "all") -> Workflow:
    return Workflow((Step("one", "Think"), Step("two", "Answer", access)))


def fakes(**limits: Limits) -> tuple[list[FakeWorker], Pool]:
    workers = [FakeWorker(name, lambda _: "42", limits=limits.get(name)) for name in ("one", "two")]
    return workers, Pool(tuple(worker.profile for worker in workers))


def recipe_with(directory: Path, *overrides: str) -> Recipe:
    return make_recipe(directory, GRPO, overrides)


# ---- the prompt


@pytest.mark.parametrize("access", ["index", "binary"])
def test_the_prompt_asks_for_the_access_that_the_recipe_says(tmp_path: Path, access: str) -> None:
    recipe = recipe_with(tmp_path, f"prompt.access={access}", "prompt.few_shot=false")
    prompt = recipe_prompt(recipe)
    assert (prompt.access, prompt.few_shot, prompt.style) == (access, False, "full")


# ---- who forgets


async def test_only_later_rounds_use_flaky_workers(tmp_path: Path) -> None:
    knowing, pool = fakes()
    flaky_workers = [FlakyWorker(worker, 1.0) for worker in knowing]
    scorer = make_scorer(recipe_with(tmp_path), knowing, flaky_workers)
    text = write(chain(), pool)
    first = await scorer.score(text, TASK, pool)
    assert first.right
    assert first.run is not None
    later = await scorer.score(text, TASK, pool, rounds=first.run.rounds)
    assert not later.right
    assert [step.reply for step in later.steps] == [UNSURE, UNSURE]


async def test_first_and_later_rounds_keep_to_the_limits_of_a_worker_together(
    tmp_path: Path,
) -> None:
    workers, pool = fakes(two=Limits(concurrency=1))
    flaky_workers = [FlakyWorker(worker, 0.0) for worker in workers]
    scorer = make_scorer(recipe_with(tmp_path), workers, flaky_workers)
    text = write(Workflow((Step("two", "Answer"),)), pool)
    first = await scorer.score(text, TASK, pool)
    assert first.run is not None
    behind = first.run.rounds
    await asyncio.gather(
        *(scorer.score(text, TASK, pool, rounds=rounds) for rounds in ((), behind, (), behind))
    )
    assert workers[1].most_in_flight == 1
    assert len(workers[1].asked) == 5


# ---- binary access


async def test_with_binary_access_a_plan_that_names_steps_is_malformed(tmp_path: Path) -> None:
    workers, pool = fakes()
    scorer = make_scorer(recipe_with(tmp_path, "prompt.access=binary"), workers)
    named = await scorer.score(write(chain((0,)), pool), TASK, pool)
    assert (named.valid, named.reward) == (False, 0.0)
    assert 'entry 1 is [0]; a step reads everything before it or nothing here: write ["all"]' in (
        named.problem
    )
    assert not workers[0].asked
    for access in ("all", ()):
        assert (await scorer.score(write(chain(access), pool), TASK, pool)).right
    index = make_scorer(recipe_with(tmp_path, "prompt.access=index"), workers)
    assert (await index.score(write(chain((0,)), pool), TASK, pool)).right


def test_everything_and_nothing_are_the_two_accesses() -> None:
    refuse_indices(chain("all"))
    refuse_indices(chain(()))
    with pytest.raises(MalformedPlan, match="access_list"):
        refuse_indices(chain((0,)))


# ---- fixed subtasks


async def test_with_fixed_subtasks_every_worker_gets_the_same_subtask(tmp_path: Path) -> None:
    workers, pool = fakes()
    recipe = recipe_with(tmp_path, "prompt.fixed_subtasks=true")
    text = write(chain(), pool)
    score = await make_scorer(recipe, workers).score(text, TASK, pool)
    for worker in workers:
        (message,) = worker.asked
        assert "Your subtask: Solve the user question" in message
        assert TASK.question in message
        assert "Think" not in message
    assert score.workflow == with_fixed_subtasks(chain())
    assert score.text == text


def test_fixed_subtasks_are_refused_where_workers_do_not_see_the_question(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prompt\.fixed_subtasks: the études' workers"):
        make_recipe(tmp_path, ETUDES, ["prompt.fixed_subtasks=true"])
    recipe = recipe_with(tmp_path, "prompt.fixed_subtasks=true")
    (tmp_path / "pool.toml").write_text(f"[pool]\nshare_question = false\n{POOL}", "utf-8")
    with pytest.raises(ConfigError, match="share_question is false"):
        recipe_pool(recipe)
