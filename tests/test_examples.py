"""What `examples/` shows is true: it runs as it stands, with no key and no network."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path

import pytest

from podium.cli import main
from podium.config import Settings, discover_settings
from podium.tasks import load_suite
from podium.train.recipe import read_recipe
from support.recipes import POOL
from support.tiny_model import tiny_model

EXAMPLES = Path(__file__).parent.parent / "examples"
OWN_TASKS = EXAMPLES / "own-tasks"
RECIPE = OWN_TASKS / "recipe.toml"

RIGHT = {
    "backwards": "```python\nprint(input()[::-1])\n```",
    "sum": "import sys\nprint(sum(map(int, sys.stdin)))",
}
"""Right answers to the tasks that have tests instead of one."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def train(*arguments: str) -> int:
    return main(["train", "grpo", str(RECIPE), *arguments])


async def test_every_own_task_takes_its_answer_and_no_other() -> None:
    tasks = load_suite(str(OWN_TASKS / "tasks.jsonl"))
    assert len(tasks) == 12
    right = [await task.grader(RIGHT.get(task.id, task.answer)) for task in tasks]
    wrong = [await task.grader("I do not know.") for task in tasks]
    assert (all(right), any(wrong)) == (True, False)


def test_the_training_on_own_tasks_is_estimated_without_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    assert train("--dry-run", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["missing"] == []
    assert output["estimate"]["rollouts"] == 60 * 8 * 16
    assert output["estimate"]["usd"] > 0


def over_the_pool(conductor: Path) -> Settings:
    """The settings of a file that names a conductor, over the workers of the example."""
    return asyncio.run(discover_settings({}, config=conductor, pool=OWN_TASKS / "pool.toml"))


def test_the_trained_conductor_is_the_one_that_the_recipe_makes() -> None:
    recipe, settings = read_recipe(RECIPE), over_the_pool(OWN_TASKS / "podium.toml")
    worker = settings.conductor.worker
    assert worker is not None
    assert worker.profile.name == f"transformers/{recipe.model.base}"
    assert Path(worker.options["adapter"]).resolve() == recipe.output.resolve() / "conductor"
    assert settings.conductor.max_steps == recipe.prompt.max_steps
    assert settings.conductor.prompt == recipe.prompt.style
    assert settings.pool.mask_names == recipe.prompt.mask_names
    assert len(settings.pool) == 3


def test_a_conductor_on_a_server_is_named_as_the_page_says(tmp_path: Path) -> None:
    page = (OWN_TASKS / "README.md").read_text("utf-8")
    assert f"vllm serve {read_recipe(RECIPE).model.base} " in page
    conductor = tmp_path / "podium.toml"
    conductor.write_text(page.partition("```toml\n")[2].partition("```")[0], "utf-8")
    worker = over_the_pool(conductor).conductor.worker
    assert worker is not None
    assert (worker.profile.provider, worker.profile.model) == ("vllm", "conductor")


@pytest.mark.torch
def test_two_steps_of_the_training_on_own_tasks_leave_a_conductor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    base, pool, output = tiny_model(tmp_path / "base"), tmp_path / "pool.toml", tmp_path / "out"
    pool.write_text(POOL, "utf-8")
    small = [f"model.base={base}", f"pool.file={pool}", "prompt.style=trained"]
    small += ["grpo.questions=2", "grpo.rollouts=4", "grpo.max_completion_tokens=8"]
    arguments = [word for value in small for word in ("--set", value)]
    assert train("--steps", "2", "--output", str(output), *arguments) == 0
    lines = (output / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert (output / "conductor" / "adapter_model.safetensors").exists()


def test_a_trainer_of_ones_own_gets_rewards() -> None:
    example = runpy.run_path(str(EXAMPLES / "own_trainer.py"))
    seen = asyncio.run(example["one_step"]())
    assert seen.rollouts == 128 * example["ROLLOUTS"]
    assert seen.valid_rate == 1.0
    assert 0 < seen.accuracy_by_kind["one"] < 0.5
    assert seen.accuracy_by_kind["chain-2"] < 0.05
