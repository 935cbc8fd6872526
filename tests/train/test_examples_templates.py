"""Plans of templates: models drawn anew, tools where they belong, and the form of second rounds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from podium.conductors import plan
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import Condition
from podium.tasks import load_source
from podium.train.examples import TemplatesFile, draw_plan, template_examples
from podium.train.recipe import Recipe, read_recipe, read_tables
from support.recipes import RECIPES

DATA = Path(__file__).parents[1] / "tasks" / "data"
FILE = read_tables(TemplatesFile, RECIPES / "parts" / "real-plans.toml", ())
MODELS = tuple(WorkerProfile(name=name) for name in ("ann", "bob", "cid"))
PYTHON = WorkerProfile(name="python", provider="python")


def warm_start(*overrides: str) -> Recipe:
    mix = ["data.mix.sources=['gsm8k:test']", f"data.mix.path={DATA}", "data.mix.per_source="]
    return read_recipe(RECIPES / "real-warm-start.toml", [*mix, *overrides])


def test_letters_are_different_models_and_tools_run_programs() -> None:
    rng, pool = Random(1), Pool((PYTHON, *MODELS))
    template = next(one for one in FILE.plan if one.steps[-1].condition == "differs 1 2")
    drawn = [draw_plan([template], pool, rng) for _ in range(60)]
    for workflow in drawn:
        first, tool, second, last = (step.worker for step in workflow.steps)
        assert tool == "python"
        assert {first, second, last} == {"ann", "bob", "cid"}
        assert workflow.steps[3].condition == Condition("differs", (1, 2))
    firsts = Counter(workflow.steps[0].worker for workflow in drawn)
    assert min(firsts.values()) > 10


def test_a_pool_without_tools_has_no_plans_with_them() -> None:
    rng = Random(1)
    lengths = {len(draw_plan(FILE.plan, Pool(MODELS[:1]), rng)) for _ in range(20)}
    assert lengths == {1}
    with pytest.raises(ConfigError, match="no plan template suits a pool of python"):
        draw_plan(FILE.plan, Pool((PYTHON,)), rng)


def test_every_example_is_a_plan_that_is_read_back_strictly() -> None:
    examples = template_examples(warm_start(), "train", 300)["conductor"]
    later = [example for example in examples if len(example.messages) > 2]
    assert 20 < len(later) < 80
    shapes = Counter[str]()
    for example in examples:
        workers = example.messages[0]["content"].partition("Models:\n")[2].count("\n") + 1
        pool = Pool(tuple(WorkerProfile(name=str(n)) for n in range(workers)))
        parsed = plan.parse(example.reply, pool, strict=True, may_accept=example in later)
        shapes[str(parsed.workflow and parsed.workflow.shape.value)] += 1
    assert {"one-shot", "chain", "fan-out/join", "None"} <= set(shapes)


def test_accepted_answers_are_right() -> None:
    answers = {task.question: task.answer for task in load_source("gsm8k:test", DATA)}
    examples = template_examples(warm_start(), "train", 200)["conductor"]
    later = [example for example in examples if len(example.messages) > 2]
    accepted = [example for example in later if not json.loads(example.reply)["steps"]]
    assert 0 < len(accepted) < len(later)
    for example in accepted:
        right = f"<answer>{answers[example.messages[1]['content']]}</answer>"
        assert right in example.messages[-1]["content"]


def test_words_for_workers_vary() -> None:
    examples = template_examples(warm_start(), "train", 100)["conductor"]
    systems = "\n".join(example.messages[0]["content"] for example in examples)
    for words in warm_start().pool.descriptions["python"]:
        assert words in systems
