"""A coordinator evolved over a tiny model: that it learns at all, from which runs, and that a
training which stopped comes to the same end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.core.errors import ConfigError, Unavailable
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run
from podium.core.task import Task
from podium.train.recipe import Recipe
from podium.train.training_log import TrainingLog
from podium_lab.etudes import ROLES
from podium_lab.evolution.coordinator import Coordinator
from podium_lab.evolution.hidden_states import HiddenStateReader
from podium_lab.evolution.trials import Trial
from support.recipes import POOL, TASK
from support.tiny_model import HIDDEN
from support.trainings import base, metrics, tiny_recipe

pytest.importorskip("torch")
pytest.importorskip("cmaes")

from podium.train.training_log import STATE_FILE, Checkpoint, last_checkpoint
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
    about = found(recipe).described
    assert (about.workers, about.roles) == (ROLES, ("thinker", "worker", "verifier"))
    assert (about.base, about.token, about.turns) == (str(base), "penultimate", 5)
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
    about = found(recipe).described
    assert (about.roles, about.turns, about.size) == ((), 2, 9 * HIDDEN)
    assert metrics(recipe)[0]["role/worker"] == 1.0
    assert metrics(recipe)[0]["mean_turns"] == 2.0


def test_random_search_has_as_many_runs_and_keeps_its_best_candidate(
    base: Path, tmp_path: Path
) -> None:
    recipe = bandit(base, tmp_path, "evolve.method=random", "evolve.steps=2")
    evolve.train(recipe)
    assert summary(recipe)["rollouts"] == 2 * 8 * 8
    deviation = found(recipe).parameters.std()
    assert deviation == pytest.approx(0.3, rel=0.25)  # one of those drawn, not their mean


def test_the_token_that_counts_is_the_recipes(base: Path, tmp_path: Path) -> None:
    short = ("evolve.steps=1", "evolve.turns=1")
    usual = evolved(base, tmp_path / "usual", *short)
    last = evolved(base, tmp_path / "last", *short, "evolve.token=last")
    assert metrics(usual) != metrics(last)


def test_singular_values_are_scaled_along_with_the_head(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_with: list[Any] = []
    with_scales = HiddenStateReader.with_scales

    def noted(reader: HiddenStateReader, matrices: Any, scales: Any) -> Any:
        read_with.append(scales)
        return with_scales(reader, matrices, scales)

    monkeypatch.setattr(HiddenStateReader, "with_scales", noted)
    matrix = "model.layers.1.mlp.down_proj.weight"
    recipe = evolved(base, tmp_path, f'evolve.matrices=["{matrix}"]', "evolve.sigma=0.05")
    coordinator = found(recipe)
    assert coordinator.described.size == HIDDEN + 12 * HIDDEN
    (scales,) = coordinator.scales
    assert scales.any()
    assert len({scale.tobytes() for (scale,) in read_with}) == 2 * 4  # each candidate's own


# ---- directions


def test_along_directions_fewer_numbers_are_searched_for_the_same_head(
    base: Path, tmp_path: Path
) -> None:
    recipe = evolved(base, tmp_path, "evolve.directions=5", "evolve.turns=2")
    head = found(recipe).head
    assert head.shape == (12, HIDDEN)
    assert np.linalg.matrix_rank(head, tol=1e-5) == 5
    assert summary(recipe)["parameters"] == 12 * 5


def test_along_directions_it_learns_too(base: Path, tmp_path: Path) -> None:
    recipe = bandit(base, tmp_path, "evolve.directions=1", "evolve.sigma=1.0")
    evolve.train(recipe)
    assert metrics(recipe)[-1]["worker/one"] > 0.9


def test_a_training_continues_along_the_directions_that_it_began_with(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = evolved(base, tmp_path, "run.minutes=1e-9", "evolve.directions=3")
    assert not (recipe.output / COORDINATOR).exists()

    def never_again(*arguments: Any) -> None:
        raise AssertionError("the directions are kept")

    with monkeypatch.context() as patch:
        patch.setattr(evolve, "principal_directions", never_again)
        evolve.train(recipe, resume=True)
    whole = evolved(base, tmp_path / "whole", "evolve.directions=3")
    assert np.array_equal(found(recipe).parameters, found(whole).parameters)


# ---- going on


def test_a_training_that_was_killed_gives_the_same_end(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evolved(base, tmp_path / "whole", "evolve.steps=4")
    cut = tiny_recipe(EVOLVED, base, tmp_path / "cut", "evolve.steps=4")
    with monkeypatch.context() as patch:
        patch.setattr(evolve, "rewards_of", killed_in_step(3))
        with pytest.raises(KeyboardInterrupt):
            evolve.train(cut)
    (cut.output / "checkpoints" / ".checkpoint-3.part").mkdir()
    kept = last_checkpoint(cut.output)
    assert kept is not None
    assert kept.step == 2
    assert Coordinator.load(kept.path / COORDINATOR).parameters.any()
    evolve.train(cut, resume=True)
    assert metrics(cut) == metrics(whole)
    assert np.array_equal(found(cut).parameters, found(whole).parameters)
    assert summary(cut)["rollouts"] == summary(whole)["rollouts"]
    assert sorted(path.name for path in (cut.output / "checkpoints").glob("checkpoint-*")) == [
        "checkpoint-3", "checkpoint-4",
    ]  # fmt: skip


def test_what_was_to_be_measured_when_it_was_killed_is_measured_as_it_continues(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("evolve.steps=3", "run.eval_every=1", "run.eval_tasks=2")
    whole = evolved(base, tmp_path / "whole", *settings)
    cut = tiny_recipe(EVOLVED, base, tmp_path / "cut", *settings)
    measured = TrainingLog.log_measurement

    def killed(training_log: TrainingLog, step: int, *arguments: Any, **rest: Any) -> None:
        if step == 2:
            raise KeyboardInterrupt
        measured(training_log, step, *arguments, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "log_measurement", killed)
        with pytest.raises(KeyboardInterrupt):
            evolve.train(cut)
    evolve.train(cut, resume=True)
    assert metrics(cut) == metrics(whole)


def killed_in_step(number: int) -> Callable[..., list[float]]:
    """Stands for what candidates earned, until the process is stopped."""
    rewards_of = evolve.rewards_of
    steps = iter(range(1, number + 1))

    def rewards(trials: Any) -> list[float]:
        if next(steps) == number:
            raise KeyboardInterrupt
        return rewards_of(trials)

    return rewards


def test_when_its_minutes_are_over_it_stops_and_can_go_on(base: Path, tmp_path: Path) -> None:
    recipe = evolved(base, tmp_path, "run.minutes=1e-9")
    assert not (recipe.output / COORDINATOR).exists()
    assert "finished" not in summary(recipe)
    evolve.train(recipe, resume=True)
    assert summary(recipe)["finished"] is True
    assert [line["step"] for line in metrics(recipe)] == [1, 2]


def test_a_search_that_diverges_is_not_resumed(base: Path, tmp_path: Path) -> None:
    recipe = evolved(base, tmp_path)
    kept = last_checkpoint(recipe.output)
    assert kept is not None
    where = kept.path / COORDINATOR
    was = Coordinator.load(where)
    was.with_parameters(was.parameters + 1).save(where)
    with pytest.raises(ConfigError, match="the versions of cmaes and numpy that it began with"):
        evolve.train(recipe, resume=True)


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        "{}",
        '{"step": 2, "rewards": {}}',
        '{"step": 2, "rewards": [[0, 0, 1, 1]]}',
        '{"step": 2, "rewards": [[0, 0, 1, 1], [0, 0, 1]]}',
        '{"step": 2, "rewards": [[0, 0, 1, 1], [0, 0, 1, null]]}',
        '{"step": 2, "rewards": [[0, 0, 1, 1], [0, 0, 1, "none"]]}',
    ],
)
def test_a_damaged_checkpoint_is_named_with_what_to_do(tmp_path: Path, state: str) -> None:
    (tmp_path / STATE_FILE).write_text(state, "utf-8")
    with pytest.raises(ConfigError) as raised:
        evolve.kept_rewards(Checkpoint(tmp_path, 2), 4)
    assert str(raised.value) == (
        f"{tmp_path / STATE_FILE}: expected in 'rewards' a number for each of 4 candidates in each "
        f"of 2 steps, and it is damaged; remove {tmp_path} to resume from the checkpoint before "
        f"it, or start over in another directory with --output"
    )


def test_without_the_damaged_checkpoint_it_continues_from_the_one_before(
    base: Path, tmp_path: Path
) -> None:
    recipe = evolved(base, tmp_path)
    before = found(recipe).parameters
    kept = last_checkpoint(recipe.output)
    assert kept is not None
    (kept.path / STATE_FILE).write_text("{}", "utf-8")
    with pytest.raises(ConfigError, match=f"remove {kept.path}"):
        evolve.train(recipe, resume=True)
    shutil.rmtree(kept.path)
    evolve.train(recipe, resume=True)
    assert np.array_equal(found(recipe).parameters, before)
    assert [line["step"] for line in metrics(recipe)] == [1, 2]


def test_a_training_does_not_go_on_with_other_workers(base: Path, tmp_path: Path) -> None:
    recipe = bandit(base, tmp_path, "evolve.steps=1")
    evolve.train(recipe)
    with (tmp_path / "pool.toml").open("a", encoding="utf-8") as pool:
        pool.write('[[worker]]\nname = "three"\nprovider = "scripted"\noptions = { reply = "4" }\n')
    with pytest.raises(ConfigError, match="its coordinator has other workers and models than the"):
        evolve.train(recipe, resume=True)


# ---- faults


def test_a_candidate_without_results_counts_as_the_mean() -> None:
    right, wrong, lost = (trial(right=True), trial(), trial(fault="no such model"))
    assert evolve.rewards_of([[right, lost], [wrong], [lost]]) == [1.0, 0.0, 0.5]
    with pytest.raises(Unavailable, match=r"no such model; fix that, then continue with --resume"):
        evolve.rewards_of([[lost], [lost]])


def trial(*, right: bool = False, fault: str = "") -> Trial:
    pool = Pool((WorkerProfile(name="one"),))
    run = Run(id="r", question="q", status="answered", pool=pool, conductor="", created_at="")
    return Trial(Task(id="1", question="q", grader=never), run, right, fault)


async def never(answer: str) -> bool:
    raise AssertionError("nothing is graded here")
