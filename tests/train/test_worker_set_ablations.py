"""The switches of `[prompt]`, each seen in what the conductor reads and what workers are asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podium.conductors.plan import write
from podium.core.errors import ConfigError, MalformedPlan
from podium.core.pool import Limits, Pool, WorkerProfile
from podium.core.task import Task
from podium.core.workflow import Access, Step, Workflow
from podium.train.exercises import (
    everyday_exercises,
    exercises,
    held_out_exercises,
    recipe_pool,
    recipe_prompt,
    repeat_worker,
)
from podium.train.recipe import Recipe
from podium.train.worker_set import make_scorers, refuse_indices, with_fixed_subtasks
from podium_lab.etudes import GENERALIST, FlakyWorker
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import oracle_workers
from support.recipes import GRPO, POOL, make_recipe
from support.stage import Actor

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


def actors(**limits: Limits) -> tuple[list[Actor], Pool]:
    workers = [Actor(name, lambda _: "42", limits=limits.get(name)) for name in ("one", "two")]
    return workers, Pool(tuple(worker.profile for worker in workers))


def recipe_with(directory: Path, *overrides: str) -> Recipe:
    return make_recipe(directory, GRPO, overrides)


# ---- the prompt


@pytest.mark.parametrize("access", ["index", "binary"])
def test_the_prompt_asks_for_the_access_that_the_recipe_says(tmp_path: Path, access: str) -> None:
    recipe = recipe_with(tmp_path, f"prompt.access={access}", "prompt.few_shot=false")
    prompt = recipe_prompt(recipe)
    assert (prompt.access, prompt.few_shot, prompt.length) == (access, False, "full")


# ---- who forgets


async def test_only_later_rounds_use_flaky_workers(tmp_path: Path) -> None:
    knowing, pool = actors()
    flaky_workers = [FlakyWorker(worker, 1.0) for worker in knowing]
    scorer = make_scorers(recipe_with(tmp_path), knowing, flaky_workers).recipe
    text = write(chain(), pool)
    first = await scorer.score(text, TASK, pool)
    assert first.right
    assert first.run is not None
    later = await scorer.score(text, TASK, pool, rounds=first.run.rounds)
    assert not later.right
    assert [step.reply for step in later.steps] == [UNSURE, UNSURE]


@pytest.mark.parametrize("one_worker", [[], ["prompt.one_worker=two"]], ids=["each", "one for all"])
async def test_first_and_later_rounds_keep_to_the_limits_of_a_worker_together(
    tmp_path: Path, one_worker: list[str]
) -> None:
    workers, pool = actors(two=Limits(concurrency=1))
    flaky_workers = [FlakyWorker(worker, 0.0) for worker in workers]
    scorer = make_scorers(recipe_with(tmp_path, *one_worker), workers, flaky_workers).recipe
    pool = repeat_worker(pool["two"], pool) if one_worker else pool
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
    workers, pool = actors()
    scorer = make_scorers(recipe_with(tmp_path, "prompt.access=binary"), workers).recipe
    named = await scorer.score(write(chain((0,)), pool), TASK, pool)
    assert (named.valid, named.reward) == (False, 0.0)
    assert 'entry 1 is [0]; a step reads everything before it or nothing here: write ["all"]' in (
        named.problem
    )
    assert not workers[0].asked
    for access in ("all", ()):
        assert (await scorer.score(write(chain(access), pool), TASK, pool)).right
    index = make_scorers(recipe_with(tmp_path, "prompt.access=index"), workers).recipe
    assert (await index.score(write(chain((0,)), pool), TASK, pool)).right


def test_everything_and_nothing_are_the_two_accesses() -> None:
    refuse_indices(chain("all"))
    refuse_indices(chain(()))
    with pytest.raises(MalformedPlan, match="access_list"):
        refuse_indices(chain((0,)))


# ---- fixed subtasks


async def test_with_fixed_subtasks_every_worker_gets_the_same_subtask(tmp_path: Path) -> None:
    workers, pool = actors()
    recipe = recipe_with(tmp_path, "prompt.fixed_subtasks=true")
    text = write(chain(), pool)
    score = await make_scorers(recipe, workers).recipe.score(text, TASK, pool)
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


# ---- one worker


def test_one_worker_stands_in_every_place_and_is_described_alike(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, "prompt.one_worker=two", "prompt.mask_names=false")
    (exercise, *_) = exercises(recipe, recipe_pool(recipe))
    pool = exercise.context.pool
    assert pool.names == ("two", "two-2")
    assert pool["two-2"].price == pool["two"].price == recipe_pool(recipe)["two"].price


async def test_whatever_place_a_plan_names_it_asks_the_one_worker(tmp_path: Path) -> None:
    workers, pool = actors()
    recipe = recipe_with(tmp_path, "prompt.one_worker=two")
    everywhere = repeat_worker(pool["two"], pool)
    score = await make_scorers(recipe, workers).recipe.score(write(chain(), pool), TASK, everywhere)
    assert [step.worker for step in score.steps] == ["two", "two-2"]
    assert (len(workers[0].asked), len(workers[1].asked)) == (0, 2)
    assert score.right


async def test_its_limits_hold_over_all_places_together(tmp_path: Path) -> None:
    workers, pool = actors(two=Limits(concurrency=1))
    recipe = recipe_with(tmp_path, "prompt.one_worker=two")
    both = Workflow((Step("one", "A"), Step("two", "B"), Step("one", "C", "all")))
    everywhere = repeat_worker(pool["two"], pool)
    assert (
        await make_scorers(recipe, workers).recipe.score(write(both, pool), TASK, everywhere)
    ).right
    assert workers[1].most_in_flight == 1


def test_it_has_no_fallback() -> None:
    one = WorkerProfile(name="one", fallback="two")
    pool = Pool((one, WorkerProfile(name="two")))
    assert [worker.fallback for worker in repeat_worker(one, pool)] == [None, None]


async def test_one_worker_takes_every_place_of_an_etudes_pool_also_where_it_was_left_out(
    tmp_path: Path,
) -> None:
    recipe = make_recipe(tmp_path, ETUDES, ["prompt.one_worker=words", "pool.drop=0.9"])
    pool = recipe_pool(recipe)
    drawn = [*exercises(recipe, pool), *held_out_exercises(recipe, pool)]
    scorer = make_scorers(recipe, oracle_workers()).recipe
    for exercise in drawn:
        pool = exercise.context.pool
        assert {name.partition("-")[0] for name in pool.names} == {"words"}
        assert len({worker.description for worker in pool}) == 1
        last = Workflow((Step(pool.names[-1], exercise.task.question),))
        assert (await scorer.score(write(last, pool), exercise.task, pool)).valid


def test_an_everyday_plan_is_graded_by_the_one_workers_role(tmp_path: Path) -> None:
    for one, is_sensible in ((GENERALIST, True), ("misleading", False)):
        recipe = make_recipe(tmp_path, ETUDES, [f"prompt.one_worker={one}"])
        exercise = everyday_exercises(recipe)[0]
        assert exercise.task.plan_grader is not None
        plan = Workflow((Step(exercise.context.pool.names[-1], exercise.task.question),))
        assert exercise.task.plan_grader(plan) is is_sensible


def test_rounds_that_many_workers_played_are_no_start_for_one(tmp_path: Path) -> None:
    overrides = ["prompt.one_worker=words", "data.etudes.later_round_share=0.1"]
    with pytest.raises(ConfigError, match="later_round_share: these rounds were played by many"):
        make_recipe(tmp_path, ETUDES, overrides)
