"""Learning from reward over a tiny model: that it learns at all, from which rewards, and that a
training which stopped comes to the same end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import StoreError
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium.train.score import Score, Scorer
from support.recipes import POOL, TASK
from support.trainings import REWARD, adapter_bytes, base, let_it_plan, metrics, tiny_recipe

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from trl import GRPOTrainer

from podium.train import grpo, shared_prompts, worker_set
from podium.train.rollouts import Policy, Rollouts
from podium.train.training_log import last_checkpoint

pytestmark = pytest.mark.torch

__all__ = ["base"]

BANDIT = """
[model]
base = "BASE"
lora = { rank = 8, alpha = 16.0 }
[data]
kind = "file"
file = { path = "tasks.jsonl" }
[pool]
file = "pool.toml"
[prompt]
style  = "trained"
few_shot = false
access = "index"
[grpo]
steps = 25
questions = 2
rollouts = 16
learning_rate = 3e-2
schedule = "constant"
max_completion_tokens = 1
[run]
output = "out"
baselines = false
save_every = 100
"""

Earned = Callable[[str], float | None]


class Judge(Scorer):
    """Stands for the scorer: what a text earns is what the test says."""

    def __init__(self, earned: Earned) -> None:
        self.earned = earned
        self.asked: list[str] = []

    async def score(self, text: str, task: Any, pool: Any, **_: Any) -> Score:
        self.asked.append(text)
        reward = self.earned(text)
        return Score(reward, right=reward == 1.0, question=task.question, text=text)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[Earned], Judge]:
    """Let texts be the numbers of their tokens, and earn what the test says."""

    def install(earned: Earned) -> Judge:
        judge = Judge(earned)
        monkeypatch.setattr(worker_set, "make_scorer", lambda *_: judge)
        monkeypatch.setattr(Policy, "decode", lambda _, tokens: " ".join(map(str, tokens)))
        return judge

    return install


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tiny model write a plan now and then."""
    let_it_plan(monkeypatch)


# ---- learning


@pytest.mark.parametrize("settings", [(), ("grpo.max_pass_tokens=128",)], ids=["alone", "shared"])
def test_rewarded_plans_become_more_frequent(
    settings: tuple[str, ...], base: Path, tmp_path: Path, judge: Callable[[Earned], Judge]
) -> None:
    judge(lambda text: 1.0 if int(text) % 2 else 0.0)
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    (tmp_path / "tasks.jsonl").write_text(TASK, "utf-8")
    recipe = tiny_recipe(BANDIT, base, tmp_path, *settings)
    grpo.train(recipe)
    accuracy = [line["accuracy"] for line in metrics(recipe)]
    assert len(accuracy) == 25
    assert sum(accuracy[:3]) / 3 < 0.75
    assert sum(accuracy[-3:]) / 3 > 0.95


def test_plans_without_an_advantage_have_no_gradient(
    base: Path, tmp_path: Path, judge: Callable[[Earned], Judge]
) -> None:
    """Dropped rollouts neither move the policy nor count in the mean of the others."""
    judge(lambda text: None if int(text.split()[0]) % 2 else 1.0)
    recipe = tiny_recipe(REWARD, base, tmp_path, "grpo.steps=2", "run.baselines=false")
    torch.manual_seed(recipe.run.seed)
    before = Policy(recipe).model.state_dict()
    grpo.train(recipe)
    assert 0 < metrics(recipe)[0]["dropped_share"] < 1
    for name, weights in trained_weights(recipe).items():
        assert torch.equal(weights, before[name]), name


def test_plans_that_move_nothing_need_not_be_read(
    base: Path,
    tmp_path: Path,
    judge: Callable[[Earned], Judge],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the plans of every question read, or only of those where they earned differently."""
    judge(lambda text: 1.0 if int(text) % 24 == 0 else 0.0)
    weights = []
    for name in ("some", "all"):
        if name == "all":
            monkeypatch.setattr(
                shared_prompts, "completion_rows", lambda advantages, _: advantages == advantages
            )
        (tmp_path / name).mkdir()
        (tmp_path / name / "pool.toml").write_text(POOL, "utf-8")
        (tmp_path / name / "tasks.jsonl").write_text(TASK, "utf-8")
        settings = ("grpo.max_pass_tokens=128", "grpo.steps=2", "grpo.questions=8")
        recipe = tiny_recipe(BANDIT, base, tmp_path / name, *settings)
        grpo.train(recipe)
        weights.append(trained_weights(recipe))
        assert 0 < metrics(recipe)[0]["groups_with_reward_variance"] < 1
    for name, trained in weights[0].items():
        assert torch.allclose(trained, weights[1][name], atol=1e-5), name


def train_numbers(directory: Path, base: Path, *settings: str) -> Recipe:
    """Train on texts that are numbers, of which odd ones are right; shared prompts."""
    directory.mkdir()
    (directory / "pool.toml").write_text(POOL, "utf-8")
    (directory / "tasks.jsonl").write_text(TASK, "utf-8")
    steps = ("grpo.steps=3", "grpo.questions=8", "grpo.loss_type=dapo")
    recipe = tiny_recipe(BANDIT, base, directory, *steps, *settings)
    grpo.train(recipe)
    return recipe


def test_passes_with_a_backward_pass_each_train_as_one_pass_does(
    base: Path,
    tmp_path: Path,
    judge: Callable[[Earned], Judge],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge(lambda text: 1.0 if int(text) % 2 else 0.0)
    passes: list[int] = []
    pack_rows = shared_prompts.pack_rows

    def count(rows: Any, max_tokens: int) -> Any:
        parts = list(pack_rows(rows, max_tokens))
        passes.append(len(parts))
        return parts

    monkeypatch.setattr(shared_prompts, "pack_rows", count)
    monkeypatch.setattr(shared_prompts, "MAX_ROW_TOKENS", 70)
    many = trained_weights(train_numbers(tmp_path / "many", base, "grpo.max_pass_tokens=80"))
    assert max(passes) > 4
    passes.clear()
    one = trained_weights(train_numbers(tmp_path / "one", base, "grpo.max_pass_tokens=100000"))
    assert max(passes) == 1
    for name, weights in one.items():
        assert torch.allclose(weights, many[name], atol=1e-4), name


def test_a_pass_without_a_finite_gradient_is_left_out_and_the_others_train(
    base: Path,
    tmp_path: Path,
    judge: Callable[[Earned], Judge],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judge(lambda text: 1.0 if int(text) % 2 else 0.0)
    monkeypatch.setattr(shared_prompts, "MAX_ROW_TOKENS", 70)
    compute_loss, factors = GRPOTrainer._compute_loss, iter((1.0, float("nan")))
    monkeypatch.setattr(
        GRPOTrainer,
        "_compute_loss",
        lambda trainer, model, inputs: compute_loss(trainer, model, inputs) * next(factors, 1.0),
    )
    torch.manual_seed(0)
    begun = train_numbers(tmp_path / "begun", base, "grpo.max_pass_tokens=80", "grpo.steps=1")
    errors = capsys.readouterr().err
    assert errors.count("1 passes had a gradient that is not finite") == 1
    assert "the step was left out" not in errors
    weights = trained_weights(begun)
    assert all(one.isfinite().all() for one in weights.values())
    assert any(one.any() for name, one in weights.items() if "lora_B" in name)


@pytest.mark.parametrize("settings", [(), ("grpo.max_pass_tokens=128",)], ids=["alone", "shared"])
def test_batches_of_truncated_plans_change_nothing(
    settings: tuple[str, ...], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Policy.sample

    def cut_off(policy: Policy, *arguments: Any, **rest: Any) -> Any:
        return [
            replace(one, tokens=(9,) * len(one.tokens), ended=False)
            for one in sample(policy, *arguments, **rest)
        ]

    monkeypatch.setattr(Policy, "sample", cut_off)
    truncated = ("grpo.steps=1", "grpo.mask_truncated=true", "run.baselines=false")
    recipe = tiny_recipe(REWARD, base, tmp_path, *truncated, *settings)
    torch.manual_seed(recipe.run.seed)
    before = Policy(recipe).model.state_dict()
    grpo.train(recipe)
    for name, weights in trained_weights(recipe).items():
        assert torch.equal(weights, before[name]), name


def test_the_entropy_of_plans_that_are_read_stands_for_all(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entropies = []
    compute_loss = GRPOTrainer._compute_loss

    def spy(trainer: Any, model: Any, inputs: dict[str, Any]) -> Any:
        loss = compute_loss(trainer, model, inputs)
        entropies.extend(trainer._metrics["train"]["entropy"])
        return loss

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", spy)
    for name, settings in (("alone", ()), ("shared", ("grpo.max_pass_tokens=128",))):
        taken = ("grpo.steps=1", "run.baselines=false", *settings)
        grpo.train(tiny_recipe(REWARD, base, tmp_path / name, *taken))
    alone, shared = entropies
    assert shared == pytest.approx(alone, rel=0.1)


def test_every_completion_gets_its_own_reward(
    base: Path,
    tmp_path: Path,
    judge: Callable[[Earned], Judge],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What TRL learns from, row by row: tokens beside the advantage of just these tokens."""
    judge(lambda text: float(text.split()[0]))
    seen: list[tuple[list[int], float]] = []
    compute_loss = GRPOTrainer._compute_loss

    def spy(trainer: Any, model: Any, inputs: dict[str, Any]) -> Any:
        rows = zip(inputs["completion_ids"].tolist(), inputs["advantages"].tolist(), strict=True)
        seen.extend(rows)
        return compute_loss(trainer, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", spy)
    settings = ("grpo.steps=1", "grpo.questions=3", "grpo.rollouts=4", "grpo.micro_batch=2")
    recipe = tiny_recipe(
        REWARD, base, tmp_path, *settings, "grpo.scale_rewards=none", "run.baselines=false"
    )
    batches: list[list[int]] = []
    collect = Rollouts.collect

    def remember(rollouts: Rollouts, exercises: Sequence[Exercise], loop: Any) -> Any:
        batch = collect(rollouts, exercises, loop)
        batches.append([attempt.tokens[0] for attempt in batch.plans])
        return batch

    monkeypatch.setattr(Rollouts, "collect", remember)
    grpo.train(recipe)
    (first_tokens,) = batches
    groups = [first_tokens[where : where + 4] for where in (0, 4, 8)]
    expected = sorted((token, token - sum(group) / 4) for group in groups for token in group)
    found = sorted((tokens[0], advantage) for tokens, advantage in seen)
    assert [token for token, _ in found] == [token for token, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected])


LEFT_OUT = ("grpo.steps=3", "run.baselines=false", "grpo.schedule=constant")


def test_a_gradient_that_is_no_number_leaves_the_step_out(
    base: Path,
    tmp_path: Path,
    plans: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compute_loss, factors = GRPOTrainer._compute_loss, iter((1.0, float("nan"), 1.0))
    monkeypatch.setattr(
        GRPOTrainer,
        "_compute_loss",
        lambda trainer, model, inputs: compute_loss(trainer, model, inputs) * next(factors),
    )
    recipe = tiny_recipe(REWARD, base, tmp_path, *LEFT_OUT)
    seen: list[dict[str, Any]] = []
    on_step_end = grpo._GrpoRun.on_step_end

    def remember(run: Any, *arguments: Any, **rest: Any) -> None:
        weights = run._trainer.model.state_dict()
        seen.append({name: one.clone() for name, one in weights.items() if "lora" in name})
        on_step_end(run, *arguments, **rest)

    monkeypatch.setattr(grpo._GrpoRun, "on_step_end", remember)
    grpo.train(recipe)
    assert capsys.readouterr().err.count("a gradient is not finite; the step was left out") == 1
    first, second, third = seen
    assert all(torch.equal(first[name], second[name]) for name in first)  # in spite of momentum
    assert any(not torch.equal(second[name], third[name]) for name in first)


def trained_weights(recipe: Recipe) -> dict[str, Any]:
    """The adapter that was written, by the names that peft has for it in memory."""
    from safetensors.torch import load_file

    tensors = load_file(recipe.output / "conductor" / "adapter_model.safetensors")
    return {name.replace(".weight", ".default.weight"): one for name, one in tensors.items()}


# ---- one training


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A training that nothing happened to."""
    recipe = tiny_recipe(REWARD, base, tmp_path_factory.mktemp("whole"), *MEASURED)
    with pytest.MonkeyPatch.context() as patched:
        let_it_plan(patched)
        grpo.train(recipe)
    return recipe


MEASURED = ("run.eval_every=2", "run.eval_tasks=2", "run.eval_temperature=1.0")


def test_a_training_has_a_line_for_every_step_and_every_measurement(whole: Recipe) -> None:
    lines = [(line["step"], "reward" in line) for line in metrics(whole)]
    assert lines == [(1, True), (2, True), (2, False), (3, True), (4, True), (4, False)]
    assert all(line["rollouts"] == 8 for line in metrics(whole) if "reward" in line)
    assert any(0 < line["valid_rate"] < 1 for line in metrics(whole) if "reward" in line)
    summary = read_summary(whole)
    assert (summary["step"], summary["rollouts"], summary["finished"]) == (4, 32, True)
    assert summary["cache_misses"] > 0


def test_a_recipe_and_its_seed_give_the_same_conductor_each_time(
    whole: Recipe, base: Path, tmp_path: Path, plans: None
) -> None:
    again = tiny_recipe(REWARD, base, tmp_path / "again", *MEASURED)
    other = tiny_recipe(REWARD, base, tmp_path / "other", *MEASURED, "run.seed=43")
    for recipe in (again, other):
        grpo.train(recipe)
    assert adapter_bytes(again) == adapter_bytes(whole) != adapter_bytes(other)
    assert metrics(again) == metrics(whole) != metrics(other)


def test_no_thread_of_a_training_outlives_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the machine is on fire")

    monkeypatch.setattr(Rollouts, "collect", broken)
    before = set(threading.enumerate())
    recipe = tiny_recipe(REWARD, base, tmp_path, "run.baselines=false")
    with pytest.raises(RuntimeError, match="on fire"):
        grpo.train(recipe)
    assert set(threading.enumerate()) <= before


# ---- stopped, and gone on with


def test_a_training_that_stopped_in_time_continues_to_the_same_conductor(
    whole: Recipe, base: Path, tmp_path: Path, plans: None
) -> None:
    stopped = tiny_recipe(REWARD, base, tmp_path, *MEASURED, "run.minutes=1e-9")
    grpo.train(stopped)
    assert read_summary(stopped)["step"] == 1
    assert "finished" not in read_summary(stopped)
    assert not (stopped.output / "conductor").exists()
    gone_on = tiny_recipe(REWARD, base, tmp_path, *MEASURED)
    grpo.train(gone_on, resume=True)
    assert metrics(gone_on) == metrics(whole)
    assert adapter_bytes(gone_on) == adapter_bytes(whole)
    assert read_summary(gone_on)["rollouts"] == 32


def test_a_training_that_broke_continues_from_its_last_checkpoint(
    whole: Recipe, base: Path, tmp_path: Path, plans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(REWARD, base, tmp_path, *MEASURED)
    collect = Rollouts.collect

    def break_at_the_fourth(rollouts: Rollouts, exercises: Sequence[Exercise], loop: Any) -> Any:
        if any(exercise.number == 6 for exercise in exercises):
            raise RuntimeError("the machine is on fire")
        return collect(rollouts, exercises, loop)

    with monkeypatch.context() as patched:
        patched.setattr(Rollouts, "collect", break_at_the_fourth)
        with pytest.raises(RuntimeError, match="on fire"):
            grpo.train(recipe)
    checkpoint = last_checkpoint(recipe.output)
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert metrics(recipe)[-1]["step"] == 3
    grpo.train(recipe, resume=True)
    assert metrics(recipe) == metrics(whole)  # step 3 is logged once
    assert adapter_bytes(recipe) == adapter_bytes(whole)
    assert read_summary(recipe)["rollouts"] == 40  # it was done twice, and took its time twice


def test_after_ctrl_c_nothing_of_the_workflows_under_way_continues(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            values.append("cancelled")
            raise

    def collect(rollouts: Rollouts, exercises: Any, loop: asyncio.AbstractEventLoop) -> Any:
        asyncio.run_coroutine_threadsafe(work(), loop)
        raise KeyboardInterrupt

    monkeypatch.setattr(Rollouts, "collect", collect)
    with pytest.raises(KeyboardInterrupt):
        grpo.train(tiny_recipe(REWARD, base, tmp_path, "run.baselines=false"))
    assert values == ["cancelled"]


def test_a_full_disk_is_explained_and_leaves_the_checkpoint_before(
    whole: Recipe, base: Path, tmp_path: Path, plans: None
) -> None:
    recipe = tiny_recipe(REWARD, base, tmp_path, *MEASURED)
    no_room = recipe.output / "checkpoints" / "checkpoint-4" / "optimizer.pt"
    no_room.parent.mkdir(parents=True)
    no_room.symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"no space left in .*the checkpoint of step 2 is whole"):
        grpo.train(recipe)
    assert not (recipe.output / "conductor").exists()
    no_room.unlink()
    grpo.train(recipe, resume=True)
    assert adapter_bytes(recipe) == adapter_bytes(whole)


def read_summary(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((recipe.output / "summary.json").read_text("utf-8"))
    return found


# ---- other trackers


def test_metrics_and_diagnostics_also_go_where_the_recipe_says(
    base: Path, tmp_path: Path, plans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub replaces TensorBoard and records its calls."""
    heard: list[dict[str, float]] = []

    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        heard.append(dict(logs))

    call_policy = type("Board", (TrainerCallback,), {"on_log": on_log})
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "tensorboard", call_policy)
    settings = ('run.log=["jsonl", "tensorboard"]', "grpo.steps=1", "run.baselines=false")
    recipe = tiny_recipe(REWARD, base, tmp_path, *settings)
    grpo.train(recipe)
    (line,) = metrics(recipe)
    for name in ("valid_rate", "entropy_bits", "mean_steps", "groups_with_reward_variance"):
        assert heard[0][name] == pytest.approx(line[name], abs=1e-4)
    assert "loss" in heard[0]
