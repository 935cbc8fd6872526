"""Exercises that are left out because their prompts are too long, and what takes their places."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.train.exercises import MAX_SKIPPED_IN_A_ROW, load_exercises
from podium.train.recipe import Recipe
from podium.train.worker_set import recipe_pool
from podium_lab.etudes.tasks import everyday_questions
from support.recipes import GRPO, everyday_exercises, make_recipe

ETUDES = """
[model]
base = "owner/model-7B"
[data]
kind = "etudes"
[[data.etudes.stage]]
steps = 2
shapes = { one = 1 }
[[data.etudes.stage]]
shapes = { chain-3 = 1 }
[data.etudes]
everyday_share = 0.0
[pool]
oracle = true
[grpo]
steps = 5
questions = 8
rollouts = 4
learning_rate = 1e-6
[run]
output = "out"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return make_recipe(tmp_path, ETUDES)


def test_the_next_exercise_takes_the_place_of_one_that_is_too_long(recipe: Recipe) -> None:
    every = load_exercises(recipe, recipe_pool(recipe)).train
    left_out = {exercise.task.id for exercise in every[1::3]}
    fitting = load_exercises(recipe, recipe_pool(recipe), lambda e: e.task.id not in left_out).train
    assert len(every) == len(fitting) == 40
    stayed = [exercise for exercise in every[:16] if exercise.task.id not in left_out]
    assert 0 < len(stayed) < 16
    assert [one.task for one in fitting[: len(stayed)]] == [one.task for one in stayed]
    assert not left_out & {exercise.task.id for exercise in fitting}


def test_a_stage_lasts_as_long_however_many_are_left_out(recipe: Recipe) -> None:
    turn = iter(range(10_000))
    drawn = load_exercises(recipe, recipe_pool(recipe), lambda _: next(turn) % 3 == 0).train
    assert [exercise.task.kind for exercise in drawn] == ["one"] * 16 + ["chain-3"] * 24


def test_exercises_without_fit_are_reported(recipe: Recipe, tmp_path: Path) -> None:
    own = make_recipe(tmp_path, GRPO)
    for endless in (recipe, own):
        turn = iter(range(MAX_SKIPPED_IN_A_ROW))
        with pytest.raises(ConfigError, match="1,000 questions in a row have a prompt that is"):
            load_exercises(endless, recipe_pool(endless), lambda _, turn=turn: next(turn) < 0)  # type: ignore[misc]


def test_a_curriculum_that_ends_before_the_training_is_refused(tmp_path: Path) -> None:
    short = ETUDES.replace("shapes = { chain-3 = 1 }", "steps = 2\nshapes = { chain-3 = 1 }")
    with pytest.raises(ConfigError, match=r"the stages last 4 steps, and grpo\.steps is 5"):
        make_recipe(tmp_path, short)
    shorter = make_recipe(tmp_path, short, ["grpo.steps=3"])
    assert len(load_exercises(shorter, recipe_pool(shorter)).train) == 24


# ---- everyday questions


def test_everyday_questions_are_measured_where_etudes_are(recipe: Recipe, tmp_path: Path) -> None:
    asked = everyday_exercises(recipe)
    assert [exercise.task.question for exercise in asked] == list(everyday_questions("test"))
    assert {exercise.task.kind for exercise in asked} == {"everyday"}
    assert any(one.context.pool != other.context.pool for one, other in pairwise(asked))
    few = make_recipe(tmp_path, ETUDES, ["run.eval_tasks=3"])
    assert len(everyday_exercises(few)) == 3
    assert everyday_exercises(make_recipe(tmp_path, GRPO)) == []
