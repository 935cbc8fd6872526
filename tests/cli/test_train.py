from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.support import REPOSITORY, Podium
from podium.cli.pool import WorkerCheck
from podium.config import Settings
from podium.core.errors import install_command
from podium.train import preflight
from podium.train.recipe import Recipe
from podium.train.training_log import STATE_FILE
from support.recipes import EVOLVE, GRPO, LESSONS, OF_MODELS, TASK, write_recipe

SMALL = GRPO.replace("model-7B", "model-1M")
LORA_CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}


@dataclass
class Trainer:
    """Replaces the trainer, and records its arguments."""

    trained: list[Recipe] = field(default_factory=list)
    resumed: list[bool] = field(default_factory=list)

    def train(self, recipe: Recipe, *, resume: bool = False) -> None:
        assert (recipe.output / preflight.RECIPE_FILE).exists()
        self.trained.append(recipe)
        self.resumed.append(resume)
        checkpoint = recipe.output / "checkpoints" / "checkpoint-1"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / STATE_FILE).write_text("{}", "utf-8")


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    trainer = Trainer()
    for name in ("podium.train.sft", "podium.train.grpo", "podium_lab.evolution.training"):
        module: Any = ModuleType(name)
        module.train = trainer.train
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(preflight, "PACKAGES", ())
    monkeypatch.setattr(preflight, "EVOLUTION_PACKAGES", ())
    return trainer


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path, SMALL)


# ---- training


def test_a_recipe_is_checked_and_handed_to_its_trainer(
    podium: Podium, trainer: Trainer, recipe: Path
) -> None:
    ended = podium("train", "grpo", recipe)
    output = recipe.parent / "out"
    assert (ended.code, ended.out, ended.err) == (0, f"{output}\n", "")
    assert trainer.resumed == [False]


def test_learning_by_example_has_a_trainer_of_its_own(
    podium: Podium, trainer: Trainer, tmp_path: Path
) -> None:
    assert podium("train", "sft", write_recipe(tmp_path, LESSONS)).code == 0
    assert [read.kind for read in trainer.trained] == ["sft"]


def test_evolution_has_a_trainer_of_its_own(
    podium: Podium, trainer: Trainer, tmp_path: Path
) -> None:
    ended = podium("lab", "evolve", write_recipe(tmp_path, EVOLVE), "--steps", "3")
    assert ended.code == 0
    (read,) = trainer.trained
    assert (read.kind, read.training.steps) == ("evolve", 3)


def test_the_command_line_overrides_the_recipe(
    podium: Podium, trainer: Trainer, recipe: Path
) -> None:
    options = ["--steps", "3", "--seed", "7", "--output", "elsewhere"]
    ablations = ["--set", "prompt.few_shot=false", "--set", "prompt.access=index"]
    ablations += ["--set", "prompt.fixed_subtasks=true"]
    assert podium("train", "grpo", recipe, *options, *ablations).code == 0
    (read,) = trainer.trained
    assert read.grpo is not None
    assert (read.grpo.steps, read.run.seed) == (3, 7)
    assert read.output == Path.cwd() / "elsewhere"
    prompt = read.prompt
    assert (prompt.few_shot, prompt.access, prompt.fixed_subtasks) == (False, "index", True)


def test_a_training_continues_only_when_that_is_requested(
    podium: Podium, trainer: Trainer, recipe: Path
) -> None:
    assert podium("train", "grpo", recipe).code == 0
    again = podium("train", "grpo", recipe)
    assert again.code == 2
    assert "continue it with --resume" in again.complaint
    assert podium("train", "grpo", recipe, "--resume").code == 0
    assert trainer.resumed == [False, True]


def test_a_training_that_died_before_its_first_checkpoint_restarts(
    podium: Podium, trainer: Trainer, recipe: Path
) -> None:
    assert podium("train", "grpo", recipe).code == 0
    (recipe.parent / "out" / "checkpoints" / "checkpoint-1" / STATE_FILE).unlink()
    ended = podium("train", "grpo", recipe, "--resume")
    assert ended.code == 0
    assert "has no checkpoint yet" in ended.complaint
    assert trainer.resumed == [False, False]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda where: (where / "pool.toml").unlink(), "pool.file: there is no "),
        (lambda where: (where / "tasks.jsonl").write_text('{"question": "q"}'), "line 1: the gra"),
        (lambda where: (where / "out").write_text(""), "out is a file"),
        (lambda where: (where / "recipe.toml").write_text(SMALL + "sede = 1"), "did you mean 'se"),
    ],
    ids=["no pool", "no answer", "no directory", "unknown key"],
)
def test_errors_are_reported_before_training(
    podium: Podium, trainer: Trainer, recipe: Path, break_it: Callable[[Path], Any], said: str
) -> None:
    break_it(recipe.parent)
    ended = podium("train", "grpo", recipe)
    assert ended.code == 2
    assert said in ended.complaint
    assert not trainer.trained
    assert not (recipe.parent / "out" / preflight.RECIPE_FILE).exists()


def test_a_pool_that_does_not_answer_is_reported_before_anything_is_trained(
    podium: Podium, trainer: Trainer, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check_models(settings: Settings, seconds: float) -> list[WorkerCheck]:
        return [WorkerCheck(worker="one", error="asleep"), WorkerCheck(worker="two")]

    monkeypatch.setattr("podium.cli.train.check_models", check_models)
    ended = podium("train", "grpo", recipe)
    assert ended.code == 1
    assert ended.complaint.endswith("no answer from one: asleep")
    assert not trainer.trained


def test_only_one_of_accelerates_processes_asks_the_workers_and_writes(
    podium: Podium, trainer: Trainer, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert podium("train", "grpo", recipe).code == 0
    (recipe.parent / "out" / "checkpoints" / "checkpoint-1" / STATE_FILE).unlink()

    async def check_models(settings: Settings, seconds: float) -> list[WorkerCheck]:
        raise AssertionError("the first process asks for all")

    monkeypatch.setattr("podium.cli.train.check_models", check_models)
    monkeypatch.setenv("RANK", "1")
    ended = podium("train", "grpo", recipe)
    assert (ended.code, ended.out) == (0, "")
    assert len(trainer.trained) == 2


def test_without_the_training_packages_the_extra_is_named(
    podium: Podium, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "PACKAGES", ("no_such_package",))
    ended = podium("train", "grpo", recipe)
    assert ended.code == 2
    assert install_command("train") in ended.complaint


def test_the_wrong_way_of_training_is_reported(podium: Podium, recipe: Path) -> None:
    assert "a recipe for podium train grpo" in podium("train", "sft", recipe).complaint


# ---- the dry run


def test_a_dry_run_reports_every_value_and_trains_nothing(
    podium: Podium, trainer: Trainer, recipe: Path
) -> None:
    ended = podium("train", "grpo", recipe, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["grpo.rollouts", "8"] in lines
    assert ["prompt.few_shot", "true"] in lines
    assert ["reward.right", "1.0"] in lines
    assert ["rollouts", "320"] in lines
    assert ["worker", "calls", "960,", "at", "3", "a", "plan"] in lines
    assert "$" in next(line for line in ended.out.splitlines() if line.startswith("  cost"))
    assert not trainer.trained
    assert not (recipe.parent / "out").exists()


def test_a_dry_run_of_evolution_reports_candidates_and_runs(podium: Podium, tmp_path: Path) -> None:
    ended = podium("lab", "evolve", write_recipe(tmp_path, EVOLVE), "--dry-run")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["candidates", "32", "a", "step"] in lines
    assert ["rollouts", "1,280"] in lines
    assert ["worker", "calls", "3,840,", "at", "3", "a", "run"] in lines
    assert not any(line[:1] == ["prompt.few_shot"] for line in lines)


def test_a_dry_run_needs_none_of_the_training_packages(
    podium: Podium, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "PACKAGES", ("no_such_package",))
    assert podium("train", "grpo", recipe, "--dry-run").code == 0


def test_a_dry_run_reports_what_is_missing(podium: Podium, recipe: Path) -> None:
    (recipe.parent / "pool.toml").unlink()
    ended = podium("train", "grpo", recipe, "--dry-run")
    assert ended.code == 0
    assert ended.complaint.startswith("missing: pool.file: there is no ")


def test_a_dry_run_in_json_is_one_object(podium: Podium, recipe: Path) -> None:
    document = podium("train", "grpo", recipe, "--dry-run", "--json").json
    assert document["kind"] == "grpo"
    assert document["recipe"]["grpo"]["questions"] == 4
    assert document["estimate"]["worker_calls"] == 960
    assert document["missing"] == []


def test_an_unknown_price_is_reported_in_the_dry_run(podium: Podium) -> None:
    recipe = REPOSITORY / "recipes" / "conductor-7b.toml"
    cost = next(
        line
        for line in podium("train", "grpo", recipe, "--dry-run").out.splitlines()
        if line.startswith("  cost")
    )
    assert "unknown: no price for gemma-3-27b-it" in cost
    assert podium("train", "grpo", recipe, "--dry-run", "--json").json["estimate"]["usd"] is None


def test_free_workers_are_reported_as_free(podium: Podium) -> None:
    recipe = REPOSITORY / "recipes" / "etudes.toml"
    assert "$0: every worker is free" in podium("train", "grpo", recipe, "--dry-run").out


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_every_recipe_that_comes_with_podium_can_be_tried_dry(podium: Podium, path: Path) -> None:
    tables = path.read_text("utf-8").splitlines()
    (kind,) = {"sft", "grpo", "evolve"} & {table.strip("[]") for table in tables}
    noun = "lab" if kind == "evolve" else "train"
    document = podium(noun, kind, path, "--dry-run", "--json").json
    assert document["estimate"]["steps"] > 0


PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("**/*.md")),
    *sorted((REPOSITORY / "examples").glob("*/README.md")),
    REPOSITORY / "lab" / "evolved.md",
]
A_TRAINING = re.compile(
    r"^(?:\$ )?(?:\./)?podium ((?:train (?:sft|grpo)|lab evolve) (?:.*\\\n)*.*)$", re.MULTILINE
)


def trainings_on(page: Path) -> Iterator[tuple[str, ...]]:
    """The commands on that page that begin a training by a recipe of ours, word by word."""
    for command in A_TRAINING.findall(page.read_text("utf-8")):
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        if (REPOSITORY / words[2]).exists():
            words[2] = str(REPOSITORY / words[2])
            yield tuple(word for word in words if word not in ("--dry-run", "--resume"))


TOLD = sorted({words for page in PAGES for words in trainings_on(page)})


def test_the_pages_tell_of_trainings() -> None:
    assert len(TOLD) > 15


@pytest.mark.parametrize("words", TOLD, ids=lambda words: Path(words[2]).stem)
def test_every_training_on_the_pages_could_begin(podium: Podium, words: tuple[str, ...]) -> None:
    tried = podium(*words, "--dry-run")
    assert tried.code == 0, tried.err


# ---- data and export


def test_the_tasks_of_a_recipe_are_written_as_json_lines(podium: Podium, recipe: Path) -> None:
    ended = podium("train", "data", recipe, "-o", "mix.jsonl")
    assert (ended.code, ended.out) == (0, "1 task in mix.jsonl\n")
    written = json.loads(Path("mix.jsonl").read_text("utf-8"))
    assert written["question"] == json.loads(TASK)["question"]


def test_an_adapter_is_exported_for_the_base_that_it_names(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[tuple[Path, Path, str]] = []

    def export_adapter(adapter_dir: Path, output: Path, *, base: str) -> Path:
        exported.append((adapter_dir, output, base))
        return output

    module: Any = ModuleType("podium.train.gguf")
    module.export_adapter = export_adapter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(preflight, "PACKAGES", ())
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": "small"}',
        "utf-8",
    )
    assert podium("train", "export", adapter, "-o", "a.gguf").out == "a.gguf\n"
    assert podium("train", "export", adapter, "-o", "a.gguf", "--base", "large").code == 0
    assert exported == [(adapter, Path("a.gguf"), base) for base in ("small", "large")]


def test_a_directory_without_an_adapter_is_reported(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "PACKAGES", ())
    ended = podium("train", "export", tmp_path, "-o", "a.gguf")
    assert ended.code == 2
    assert "holds no adapter" in ended.complaint
    config = dict(LORA_CONFIG)
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    ended = podium("train", "export", tmp_path, "-o", "a.gguf")
    assert "name it with --base" in ended.complaint
    config["base_model_name_or_path"] = "owner/name"
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    ended = podium("train", "export", tmp_path, "-o", "a.gguf")
    assert "is an adapter of owner/name" in ended.complaint
    assert "name that of the same model with --base" in ended.complaint
