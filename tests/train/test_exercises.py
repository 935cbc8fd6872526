"""Which questions a conductor is trained on, and over which pools. What is left out because its
prompt is too long is in `test_fitting`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.train.exercises import load_exercises
from podium.train.recipe import Recipe, read_recipe
from podium.train.worker_set import recipe_pool
from support.recipes import GRPO, everyday_exercises, make_recipe

ETUDES = """
[model]
base = "owner/model-7B"
[data]
kind = "etudes"
[data.etudes]
everyday_share = 0.25
[pool]
oracle = true
worker_dropout = 0.5
[prompt]
max_steps = 4
mask_names = false
[grpo]
steps = 10
questions = 8
rollouts = 4
learning_rate = 1e-6
[run]
output = "out"
eval_tasks = 40
"""

FIVE = Pool(
    (
        WorkerProfile(name="a", fallback="b"),
        WorkerProfile(name="b"),
        WorkerProfile(name="c"),
        WorkerProfile(name="d"),
        WorkerProfile(name="e"),
    )
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A directory for recipes over a file of three tasks."""
    recipe = make_recipe(tmp_path)
    task = {"answer": "4", "grader": "number"}
    written = (json.dumps({**task, "id": name, "question": name}) for name in ("x", "y", "z"))
    assert recipe.data.file is not None
    Path(recipe.data.file.path).write_text("\n".join(written), "utf-8")
    return tmp_path


def own_recipe(directory: Path, *settings: str) -> Recipe:
    path = directory / "recipe.toml"
    path.write_text(GRPO, "utf-8")
    return read_recipe(path, settings)


def pools(recipe: Recipe) -> list[str]:
    drawn = load_exercises(recipe, FIVE).train
    return ["".join(exercise.context.pool.names) for exercise in drawn]


# ---- études


def test_there_is_an_exercise_for_every_question_of_every_step(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, ETUDES)
    drawn = load_exercises(recipe, recipe_pool(recipe)).train
    assert len(drawn) == 80
    assert all(one.task.question == one.context.question for one in drawn)
    assert {one.context.max_steps for one in drawn} == {4}
    assert {one.context.pool.mask_names for one in drawn} == {False}


def test_steps_that_go_over_the_same_questions_have_none_of_their_own(tmp_path: Path) -> None:
    stages = '[{ steps = 4, shapes = { one = 1.0 } }, { shapes = { "chain-3" = 1.0 } }]'
    settings = [f"data.etudes.stage={stages}", "data.etudes.everyday_share=0.0", "grpo.steps=7"]
    recipe = make_recipe(tmp_path, ETUDES, [*settings, "grpo.num_iterations=2"])
    assert recipe.grpo is not None
    kinds = [one.task.kind for one in load_exercises(recipe, recipe_pool(recipe)).train]
    a_step = recipe.grpo.questions
    assert kinds == ["one"] * 2 * a_step + ["chain-3"] * 2 * a_step


def test_a_seed_gives_the_same_exercises_and_another_gives_others(tmp_path: Path) -> None:
    drawn = []
    for seed in (1, 1, 2):
        recipe = make_recipe(tmp_path, ETUDES, [f"run.seed={seed}"])
        drawn.append([one.context for one in load_exercises(recipe, recipe_pool(recipe)).train])
    assert drawn[0] == drawn[1] != drawn[2]


def test_as_many_questions_are_everyday_ones_as_the_recipe_says(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, ETUDES, ["grpo.steps=50"])
    kinds = Counter(one.task.kind for one in load_exercises(recipe, recipe_pool(recipe)).train)
    assert kinds["everyday"] == pytest.approx(100, abs=30)


def test_pools_differ_from_question_to_question_and_lack_no_worker_that_is_needed(
    tmp_path: Path,
) -> None:
    recipe = make_recipe(tmp_path, ETUDES)
    drawn = load_exercises(recipe, recipe_pool(recipe)).train
    assert len({one.context.pool.names for one in drawn}) > 40
    sizes = [len(one.context.pool.workers) for one in drawn]
    assert min(sizes) < 6 < max(sizes)
    assert all(one.context.pool.share_question is False for one in drawn)


def test_held_out_exercises_are_never_trained_on(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, ETUDES, ["grpo.steps=50"])
    pool = recipe_pool(recipe)
    measured = load_exercises(recipe, pool).held_out
    trained = load_exercises(recipe, pool).train
    assert len(measured) == 40 + len(everyday_exercises(recipe))
    assert not {one.task.question for one in measured} & {one.task.question for one in trained}
    described = {worker.description for one in trained for worker in one.context.pool}
    others = {worker.description for one in measured for worker in one.context.pool}
    assert not described & others


# ---- tasks over a pool


def test_every_task_comes_once_before_any_comes_again(own: Path) -> None:
    names = [one.task.id for one in load_exercises(own_recipe(own), FIVE).train]
    assert len(names) == 40
    for where in range(0, 39, 3):
        assert sorted(names[where : where + 3]) == ["x", "y", "z"]
    assert len({tuple(names[where : where + 3]) for where in range(0, 39, 3)}) > 1


def test_ids_mean_the_same_in_every_question_unless_the_pool_is_shuffled(own: Path) -> None:
    assert set(pools(own_recipe(own))) == {"abcde"}
    shuffled = pools(own_recipe(own, "pool.shuffle=true"))
    assert len(set(shuffled)) > 20
    assert {"".join(sorted(names)) for names in shuffled} == {"abcde"}


def test_a_question_may_have_a_part_of_the_pool_of_any_size_that_is_allowed(own: Path) -> None:
    subset = ("pool.subset.smallest=2", "pool.subset.largest=4", "grpo.steps=50")
    drawn = pools(own_recipe(own, *subset))
    assert {len(names) for names in drawn} == {2, 3, 4}
    assert all(list(names) == sorted(names) for names in drawn)  # in their order
    sizes = Counter(len(names) for names in drawn)
    assert min(sizes.values()) > 40  # every size is as likely


def test_a_missing_fallback_is_removed(own: Path) -> None:
    subset = ("pool.subset.smallest=2", "pool.subset.largest=4")
    for one in load_exercises(own_recipe(own, *subset), FIVE).train:
        pool = one.context.pool
        if "a" in pool.names:
            assert pool["a"].fallback == ("b" if "b" in pool.names else None)
