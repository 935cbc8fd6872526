"""What training is held against, measured with workers that never err or never know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.conductors import PlanningContext
from podium.core.errors import RequestRefused
from podium.core.pool import Pool, WorkerProfile
from podium.core.task import Task
from podium.train.diagnostics import (
    BASELINES_FILE,
    Accuracy,
    Baselines,
    measure_baselines,
    needs_baselines,
    read_baselines,
    write_baselines,
)
from podium.train.exercises import (
    Exercise,
    load_exercises,
)
from podium.train.recipe import Recipe
from podium.train.worker_set import recipe_pool
from podium_lab.etudes import FAMILIES, FlakyWorker
from podium_lab.etudes.training import held_out_etudes
from podium_lab.etudes.workers import oracle_workers
from support.harness import FakeWorker
from support.recipes import GRPO, everyday_exercises, make_recipe

ETUDES = """
[model]
base = "owner/model-7B"
[data]
kind = "etudes"
[pool]
oracle = true
[prompt]
access = "index"
[grpo]
steps = 3
questions = 4
rollouts = 4
learning_rate = 1e-6
[run]
output = "out"
eval_tasks = 60
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return make_recipe(tmp_path, ETUDES)


async def measured(recipe: Recipe, share_forgotten: float = 0.0) -> Baselines:
    pool = recipe_pool(recipe)
    workers = [FlakyWorker(worker, share_forgotten) for worker in oracle_workers()]
    return await measure_baselines(recipe, workers, pool, load_exercises(recipe, pool).held_out)


async def test_ideal_plans_reach_the_ceiling_and_no_worker_comes_near_it(recipe: Recipe) -> None:
    found = await measured(recipe)
    assert found.tasks == 60
    assert found.ceiling is not None
    assert found.ceiling.overall == 1.0
    assert set(found.ceiling.by_kind) == {etude.shape.value for etude in held_out_etudes(recipe)}
    assert set(found.workers) == {worker.profile.name for worker in oracle_workers()}
    assert found.best in FAMILIES
    assert 0 < found.workers[found.best].overall < 0.4
    assert found.workers["generalist"].overall == 0.0


async def test_a_specialist_alone_is_right_where_its_skill_is_all_there_is_to_it(
    recipe: Recipe,
) -> None:
    found = await measured(recipe)
    ones = [etude for etude in held_out_etudes(recipe) if etude.shape.value == "one"]
    for family in FAMILIES:
        mine = sum(etude.families == (family,) for etude in ones)
        assert found.workers[family].by_kind["one"] == pytest.approx(mine / len(ones))


async def test_the_ceiling_is_that_of_the_same_workers(recipe: Recipe) -> None:
    found = await measured(recipe, share_forgotten=0.3)
    assert found.ceiling is not None
    assert 0.2 < found.ceiling.overall < 0.9


async def test_ideal_plans_have_the_access_that_plans_may_have(tmp_path: Path) -> None:
    found = await measured(make_recipe(tmp_path, ETUDES, ["prompt.access=binary"]))
    assert found.ceiling is not None
    assert found.ceiling.by_kind["one"] == found.ceiling.by_kind["chain-2"] == 1.0


async def test_everyday_questions_have_no_answer_to_be_measured_by(recipe: Recipe) -> None:
    pool = recipe_pool(recipe)
    found = await measure_baselines(recipe, oracle_workers(), pool, everyday_exercises(recipe))
    assert (found.tasks, found.workers) == (0, {})


# ---- tasks of one's own


async def is_42(answer: str) -> bool:
    return answer == "42"


def asked(question: str, pool: Pool) -> Exercise:
    task = Task(id=question, question=question, grader=is_42, kind=question)
    return Exercise(task, PlanningContext(question=question, pool=pool))


async def test_a_worker_that_cannot_be_reached_is_left_out_and_others_have_no_ceiling(
    tmp_path: Path,
) -> None:
    sums = FakeWorker("sums", lambda request: "42" if request.text == "6 x 7?" else "40")
    gone = FakeWorker("gone", lambda request: RequestRefused("no such model"), fallback="sums")
    pool = Pool((sums.profile, gone.profile))
    exercises = [asked("6 x 7?", pool), asked("4 x 11?", pool)]
    recipe = make_recipe(tmp_path)
    found = await measure_baselines(recipe, [sums, gone], pool, exercises)
    assert found == Baselines(2, {"sums": Accuracy(0.5, {"6 x 7?": 1.0, "4 x 11?": 0.0})})
    assert sums.asked == ["6 x 7?", "4 x 11?"], "a worker alone is nobody's substitute"
    assert str(found) == "on 2 questions: sums alone 0.500, the best of all workers"


def test_they_are_measured_where_that_costs_nothing_or_is_wanted(tmp_path: Path) -> None:
    etudes = make_recipe(tmp_path, ETUDES)
    assert needs_baselines(etudes, recipe_pool(etudes))
    off = make_recipe(tmp_path, ETUDES, ["run.baselines=false"])
    assert not needs_baselines(off, recipe_pool(off))
    paid = make_recipe(tmp_path)
    assert not needs_baselines(paid, recipe_pool(paid))
    wanted = make_recipe(tmp_path, GRPO, ["run.baselines=true"])
    assert needs_baselines(wanted, recipe_pool(wanted))
    unpriced = Pool((WorkerProfile(name="one"),))
    assert not needs_baselines(paid, unpriced), "an unknown price may be a high one"


# ---- for diagnostics, and on disk

FOUND = Baselines(
    8,
    {
        "words": Accuracy(0.25, {"one": 0.5, "chain-2": 0.0}),
        "facts": Accuracy(0.5, {"one": 0.75, "chain-2": 0.25}),
        "codes": Accuracy(0.5, {"one": 1.0, "chain-2": 0.0}),
    },
    Accuracy(0.9, {"one": 1.0, "chain-2": 0.8}),
)


def test_the_best_worker_is_the_first_of_equally_good_ones() -> None:
    assert FOUND.best == "facts"
    assert Baselines(0, {}).best == ""


def test_baselines_are_read_back(tmp_path: Path) -> None:
    write_baselines(tmp_path, FOUND)
    assert read_baselines(tmp_path) == FOUND
    document = json.loads((tmp_path / BASELINES_FILE).read_text("utf-8"))
    assert (document["best_single"], document["ceiling"]["overall"]) == ("facts", 0.9)
    alone = Baselines(1, {"words": Accuracy(1.0, {"": 1.0})})
    write_baselines(tmp_path, alone)
    assert read_baselines(tmp_path) == alone


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"tasks": 1, "workers": 3, "ceiling": 0}'])
def test_unreadable_baselines_count_as_missing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / BASELINES_FILE).write_text(text, "utf-8")
    assert read_baselines(tmp_path) is None
