"""A coordinator evolved over a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.core.errors import Unavailable
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run
from podium.core.task import Task
from podium.train.recipe import Recipe
from podium_lab.etudes import ROLES
from podium_lab.evolution.coordinator import Coordinator
from podium_lab.evolution.hidden_states import HiddenStateReader
from podium_lab.evolution.training import Trial
from support.recipes import POOL, TASK
from support.tiny_model import HIDDEN
from support.trainings import base, metrics, tiny_recipe

pytest.importorskip("torch")
pytest.importorskip("cmaes")

from podium_lab.evolution import training as evolve
from podium_lab.evolution.training import COORDINATOR

pytestmark = pytest.mark.torch

__all__ = ["base"]

EVOLVED = """
[model]
base = "BASE"
[data]
kind = "etudes"
[[data.etudes.stage]]
shapes = { one = 1.0 }
[pool]
oracle = true
[evolve]
steps = 2
questions = 3
population = 4
sigma = 0.3
[run]
output = "out"
cache_mb = 1
"""


BANDIT = """
[model]
base = "BASE"
[data]
kind = "file"
file = { path = "tasks.jsonl" }
[pool]
file = "pool.toml"
[evolve]
steps = 12
questions = 8
population = 8
sigma = 0.3
turns = 1
roles = false
[run]
output = "out"
"""


def bandit(base: Path, directory: Path, *overrides: str, pool: str = POOL) -> Recipe:
    """One question, and two workers of which the first has the answer."""
    pool = pool.replace('reply = "ok"', 'reply = "4"', 1)
    (directory / "pool.toml").write_text(pool, "utf-8")
    (directory / "tasks.jsonl").write_text(TASK, "utf-8")
    return tiny_recipe(BANDIT, base, directory, *overrides)


def found(recipe: Recipe) -> Coordinator:
    return Coordinator.load(recipe.output / COORDINATOR)


def summary(recipe: Recipe) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((recipe.output / "summary.json").read_text("utf-8"))
    return document


def evolved(base: Path, directory: Path, *overrides: str) -> Recipe:
    recipe = tiny_recipe(EVOLVED, base, directory, *overrides)
    evolve.train(recipe)
    return recipe


# ---- learning


def test_the_search_prefers_right_workers(base: Path, tmp_path: Path) -> None:
    recipe = bandit(base, tmp_path)
    evolve.train(recipe)
    accuracy = [line["accuracy"] for line in metrics(recipe)]
    assert len(accuracy) == 12
    assert accuracy[0] < 0.75
    assert accuracy[-1] > 0.9
    assert metrics(recipe)[-1]["worker/one"] > 0.9


def test_a_training_leaves_a_coordinator_and_reports_what_it_took(
    base: Path, tmp_path: Path
) -> None:
    recipe = evolved(base, tmp_path, "run.eval_every=2", "run.eval_tasks=4")
    about = found(recipe).description
    assert (about.workers, about.roles) == (ROLES, ("thinker", "worker", "verifier"))
    assert (about.base, about.hidden_state_token, about.turns) == (str(base), "penultimate", 5)
    assert summary(recipe) | {"step": 2, "finished": True, "rollouts": 24} == summary(recipe)
    assert summary(recipe)["parameters"] == (9 + 3) * HIDDEN == found(recipe).parameters.size
    first, second, held_out = metrics(recipe)
    assert (first["step"], second["step"], held_out["step"]) == (1, 2, 2)
    assert first["rollouts"] == 3 * 4
    assert held_out["held_out/rollouts"] == 4


def test_the_same_seed_gives_the_same_end(base: Path, tmp_path: Path) -> None:
    one, again = evolved(base, tmp_path / "one"), evolved(base, tmp_path / "again")
    other = evolved(base, tmp_path / "other", "run.seed=-1")
    assert metrics(one) == metrics(again)
    assert np.array_equal(found(one).parameters, found(again).parameters)
    assert not np.array_equal(found(one).parameters, found(other).parameters)


# ---- ablations


def test_without_roles_every_turn_is_a_workers(base: Path, tmp_path: Path) -> None:
    recipe = evolved(base, tmp_path, "evolve.roles=false", "evolve.turns=2")
    about = found(recipe).description
    assert (about.roles, about.turns, about.size) == ((), 2, 9 * HIDDEN)
    assert metrics(recipe)[0]["role/worker"] == 1.0
    assert metrics(recipe)[0]["mean_turns"] == 2.0


def test_the_token_that_counts_is_the_recipes(base: Path, tmp_path: Path) -> None:
    short = ("evolve.steps=1", "evolve.turns=1")
    usual = evolved(base, tmp_path / "usual", *short)
    last = evolved(base, tmp_path / "last", *short, "evolve.hidden_state_token=last")
    assert metrics(usual) != metrics(last)


def test_singular_values_are_scaled_along_with_the_head(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_with: set[Any] = set()
    read = HiddenStateReader.read

    def noted(reader: HiddenStateReader, text: str, scales: Any = ()) -> Any:
        read_with.add(scales)
        return read(reader, text, scales)

    monkeypatch.setattr(HiddenStateReader, "read", noted)
    matrix = "model.layers.1.mlp.down_proj.weight"
    recipe = evolved(base, tmp_path, f'evolve.matrices=["{matrix}"]', "evolve.sigma=0.05")
    coordinator = found(recipe)
    assert coordinator.description.size == HIDDEN + 12 * HIDDEN
    ((scaled, scales),) = coordinator.scales
    assert scaled == matrix
    assert any(scales)
    assert len(read_with) == 2 * 4  # each candidate's own


# ---- directions


def test_along_directions_fewer_numbers_are_searched_for_the_same_head(
    base: Path, tmp_path: Path
) -> None:
    recipe = evolved(base, tmp_path, "evolve.principal_directions=5", "evolve.turns=2")
    head = found(recipe).head
    assert head.shape == (12, HIDDEN)
    assert np.linalg.matrix_rank(head, tol=1e-5) == 5
    assert summary(recipe)["parameters"] == 12 * 5


def test_along_directions_it_learns_too(base: Path, tmp_path: Path) -> None:
    recipe = bandit(base, tmp_path, "evolve.principal_directions=1", "evolve.sigma=1.0")
    evolve.train(recipe)
    assert metrics(recipe)[-1]["worker/one"] > 0.9


# ---- faults


def test_a_candidate_without_results_counts_as_the_mean() -> None:
    right, wrong, lost = (trial(right=True), trial(), trial(fault="no such model"))
    assert evolve.rewards_of([[right, lost], [wrong], [lost]]) == [1.0, 0.0, 0.5]
    with pytest.raises(Unavailable, match=r"no such model; fix that, then start again"):
        evolve.rewards_of([[lost], [lost]])


def trial(*, right: bool = False, fault: str = "") -> Trial:
    pool = Pool((WorkerProfile(name="one"),))
    run = Run(id="r", question="q", status="answered", pool=pool, conductor="", created_at="")
    return Trial(Task(id="1", question="q", grader=never), run, right, fault)


async def never(answer: str) -> bool:
    raise AssertionError("nothing is graded here")
