"""`podium train` for real, over a tiny model: killed in the midst of it and gone on with, and by
two processes that train together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import free_port
from cli.support import REPOSITORY, Podium
from podium.train.recipe import Recipe, read_recipe
from podium.train.training_log import last_checkpoint
from support.shared_directory import made_once
from support.trainings import LESSONS, REWARD, adapter_bytes, base, metrics, tiny_recipe

pytest.importorskip("torch")
pytest.importorskip("trl")

pytestmark = pytest.mark.torch

__all__ = ["base"]

ONE_OF_TWO = REPOSITORY / "tests" / "support" / "one_of_two.py"
PATIENCE_SECONDS = 120.0


def test_a_training_says_where_it_is_and_nothing_else_on_its_output(
    podium: Podium, base: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(LESSONS, base, tmp_path)
    ended = podium("train", "sft", tmp_path / "recipe.toml")
    assert (ended.code, ended.out) == (0, f"{recipe.output}\n")
    assert "step 4/4" in ended.err
    assert (recipe.output / "words" / "adapter_model.safetensors").exists()


def test_a_training_that_was_killed_continues_to_the_same_weights_and_leaves_nothing_half_done(
    podium: Podium,
    base: Path,
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more threads add in another order
    settings = ("sft.steps=60", "run.max_checkpoints=1", "run.save_every=10")
    whole = tiny_recipe(LESSONS, base, tmp_path / "whole", *settings)
    said = [part for setting in settings for part in ("--set", setting)]
    assert podium("train", "sft", tmp_path / "whole" / "recipe.toml", *said).code == 0
    killed = tiny_recipe(LESSONS, base, tmp_path / "killed", *settings)
    command = ("train", "sft", tmp_path / "killed" / "recipe.toml", *said)
    process = start(*command)
    wait_for(lambda: last_checkpoint(killed.output) is not None, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    checkpoint = last_checkpoint(killed.output)
    assert checkpoint is not None
    assert checkpoint.step < 60
    left = {path.name for path in killed.output.iterdir()} - {"summary.json"}
    assert left == {"checkpoints", "metrics.jsonl", "recipe.json", "samples.jsonl"}
    assert "--resume" in podium(*command).complaint
    assert podium(*command, "--resume").code == 0
    for name in ("words", "lists"):
        assert adapter_bytes(killed, name) == adapter_bytes(whole, name)
    steps = [line["step"] for line in metrics(killed)]
    assert steps == sorted(set(steps))


OUR_LINES = ("step ", "on 8 questions: ", "warning: ")


def test_ctrl_c_prints_only_how_to_resume(
    base: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    settings = ("grpo.steps=1000", "run.eval_tasks=8", "run.max_checkpoints=1")
    recipe = tiny_recipe(REWARD, base, tmp_path, *settings)
    said = [part for setting in settings for part in ("--set", setting)]
    process = start("train", "grpo", tmp_path / "recipe.toml", *said)
    wait_for(lambda: (last := last_checkpoint(recipe.output)) and last.step > 2, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (130, "")
    *lines, last = err.splitlines()
    assert [line for line in lines if not line.startswith(OUR_LINES)] == []
    checkpoint = last_checkpoint(recipe.output)
    assert checkpoint is not None
    going_on = f"repeat the command with --resume to continue from step {checkpoint.step}"
    assert last == f"podium: interrupted; {going_on}"


def wait_for(happened: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.005)


# ---- two processes

EVERY = ("run.eval_every=2", "run.eval_tasks=3")
TRAININGS = {
    "examples": ("sft", LESSONS, ("sft.steps=2", *EVERY)),
    "questions": ("grpo", REWARD, ("grpo.steps=2", *EVERY)),
    "a-question": ("grpo", REWARD, ("grpo.steps=2", "grpo.questions=1", "run.baselines=false")),
}


@dataclass(frozen=True)
class Together:
    """What two processes came to, and what each had a hand in."""

    directory: Path

    def recipe(self, name: str) -> Recipe:
        _, text, settings = TRAININGS[name]
        base = read_recipe(self.directory / name / "recipe.toml").model.base
        return tiny_recipe(text, Path(base), self.directory / name, *settings)

    def entries(self, name: str) -> list[dict[str, Any]]:
        files = [self.directory / f"{name}-{process}.json" for process in (0, 1)]
        return [json.loads(file.read_text("utf-8")) for file in files]


@pytest.fixture(scope="module")
def together(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """Three trainings, by two processes that accelerate started as if on two machines."""
    return Together(made_once(tmp_path_factory, "together", lambda location: train(location, base)))


def train(directory: Path, base: Path) -> None:
    """Have two processes train together, in that directory."""
    commands = {}
    for name, (kind, text, settings) in TRAININGS.items():
        tiny_recipe(text, base, directory / name, *settings)
        said = [part for setting in settings for part in ("--set", setting)]
        commands[name] = ["train", kind, str(directory / name / "recipe.toml"), *said]
    (directory / "commands.json").write_text(json.dumps(commands), "utf-8")
    port = free_port()
    launched = [launch(directory, rank, port) for rank in (0, 1)]
    try:
        for process in launched:
            _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, complaints
    finally:
        for process in launched:
            process.kill()


def launch(directory: Path, rank: int, port: int) -> subprocess.Popen[str]:
    """Start accelerate on one of two machines, both of which are this one."""
    config = REPOSITORY / "deploy" / "accelerate" / "two-machines.yaml"
    values = ("--config_file", config, "--num_processes", "2")
    where = ("--main_process_port", str(port), "--machine_rank", str(rank))
    work = (ONE_OF_TWO, directory / "commands.json")
    return subprocess.Popen(
        [sys.executable, "-m", "accelerate.commands.launch", *values, *where, *work],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(REPOSITORY / name) for name in ("src", "tests")),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PODIUM_HOME": str(directory / "home"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_file_for_one_machine_is_that_for_two_without_the_way_between_them() -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    one, two = (
        load_config_from_file(str(REPOSITORY / "deploy" / "accelerate" / f"{name}.yaml")).to_dict()
        for name in ("one-machine", "two-machines")
    )
    differing = {key for key in {**one, **two} if one.get(key) != two.get(key)}
    assert differing == {"num_machines", "num_processes", "main_process_ip", "main_process_port"}
    assert (one["num_machines"], two["num_machines"]) == (1, 2)


@pytest.mark.parametrize("name", TRAININGS)
def test_both_processes_reach_the_same_weights_and_one_of_them_writes(
    together: Together, name: str
) -> None:
    first, second = together.entries(name)
    assert first["code"] == second["code"] == 0
    assert first["weights"] == second["weights"]
    recipe = together.recipe(name)
    steps = [line["step"] for line in metrics(recipe)]
    assert steps == sorted(steps)
    assert json.loads((recipe.output / "summary.json").read_text("utf-8"))["finished"] is True
    checkpoint = last_checkpoint(recipe.output)
    assert checkpoint is not None
    assert checkpoint.step == 2


def test_two_processes_learn_from_the_same_examples_as_one_would(
    together: Together, podium: Podium, base: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    kind, text, settings = TRAININGS["examples"]
    alone = tiny_recipe(text, base, tmp_path, *settings)
    said = [part for setting in settings for part in ("--set", setting)]
    assert podium("train", kind, tmp_path / "recipe.toml", *said).code == 0
    for name in ("words", "lists"):
        one, both = (
            load_file(recipe.output / name / "adapter_model.safetensors")
            for recipe in (alone, together.recipe("examples"))
        )
        for matrix in one:
            assert one[matrix].sub(both[matrix]).abs().max().item() < 1e-3


def test_questions_are_divided_between_processes_without_loss(together: Together) -> None:
    first, second = together.entries("questions")
    assert first["numbers"] == [[0, 0, 0, 0], [2, 2, 2, 2]]
    assert second["numbers"] == [[1, 1, 1, 1], [3, 3, 3, 3]]
    lines = metrics(together.recipe("questions"))
    assert [line["rollouts"] for line in lines if "rollouts" in line] == [8.0, 8.0]
    assert [line["held_out/rollouts"] for line in lines if "held_out/rollouts" in line] == [3.0]


def test_processes_that_share_a_question_write_different_plans_for_it(together: Together) -> None:
    first, second = together.entries("a-question")
    assert first["numbers"] == second["numbers"] == [[0, 0], [1, 1]]
    assert first["tokens"] != second["tokens"]
    lines = metrics(together.recipe("a-question"))
    assert [line["rollouts"] for line in lines] == [4.0, 4.0]
