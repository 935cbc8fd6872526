"""Recipes for tests: small, complete, and changed by a table or a key at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podium._util.lab import EVERYDAY
from podium.train.exercises import Exercise, load_exercises
from podium.train.recipe import Recipe, read_recipe
from podium.train.worker_set import recipe_pool

RECIPES = Path(__file__).parents[2] / "recipes"
OF_MODELS = sorted(path for path in RECIPES.glob("*.toml") if not path.stem.startswith("router"))
"""The recipes of models; those of routers have another form."""

GRPO = """
[model]
base = "owner/model-7B"
[data]
kind = "file"
file = { path = "tasks.jsonl" }
[pool]
file = "pool.toml"
[grpo]
steps = 10
questions = 4
rollouts = 8
learning_rate = 1e-6
[run]
output = "out"
"""

LESSONS = """
[model]
base = "smollm2-135m-instruct"
lora = { rank = 4 }
[data]
kind = "etudes"
[sft]
dataset = "specialists"
adapters = ["words", "lists"]
steps = 10
batch = 4
learning_rate = 1e-3
[run]
output = "out"
"""

EVOLVE = f"""
{GRPO.partition("[grpo]")[0]}
[evolve]
steps = 10
questions = 4
[run]
output = "out"
"""

POOL = """
[conductor]
kind = "rules"
[[worker]]
name = "one"
provider = "scripted"
price = { input = 1.0, output = 10.0 }
options = { reply = "ok" }
[[worker]]
name = "two"
provider = "scripted"
price = { input = 2.0, output = 20.0 }
options = { reply = "ok" }
"""

TASK = '{"question": "2 + 2?", "answer": "4", "grader": "number"}\n'


def write_recipe(directory: Path, text: str = GRPO) -> Path:
    """A recipe file, and beside it all that it names."""
    (directory / "tasks.jsonl").write_text(TASK, "utf-8")
    (directory / "pool.toml").write_text(POOL, "utf-8")
    path = directory / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def make_recipe(directory: Path, text: str = GRPO, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in such a file."""
    return read_recipe(write_recipe(directory, text), overrides)


def everyday_exercises(recipe: Recipe) -> list[Exercise]:
    """The everyday questions among the exercises that progress is measured by."""
    measured = load_exercises(recipe, recipe_pool(recipe)).held_out
    return [exercise for exercise in measured if exercise.task.kind == EVERYDAY]
