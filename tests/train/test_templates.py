"""Plans of templates: models drawn anew, tools where they belong, and the form of second rounds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from podium.conductors import plan
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.task import Task
from podium.core.workflow import Condition, Step, Workflow
from podium.tasks import load_source
from podium.train import templates
from podium.train.preflight import estimate
from podium.train.recipe import Recipe, read_recipe, read_tables
from podium.train.score import Score
from podium.train.templates import (
    Template,
    TemplatesFile,
    all_plans,
    draw_plan,
    estimate_rewards,
    search,
    template_examples,
)
from podium.train.worker_set import recipe_pool
from support.recipes import RECIPES

DATA = Path(__file__).parents[1] / "tasks" / "data"
FILE = read_tables(TemplatesFile, RECIPES / "parts" / "real-plans.toml", ())
MODELS = tuple(WorkerProfile(name=name) for name in ("ann", "bob", "cid"))
PYTHON = WorkerProfile(name="python", provider="python")


def warm_start(*overrides: str) -> Recipe:
    mix = ["data.mix.sources=['gsm8k:test']", f"data.mix.path={DATA}", "data.mix.per_source="]
    return read_recipe(RECIPES / "real-warm-start.toml", [*mix, "sft.search_tasks=", *overrides])


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
    assert lengths == {1, 3}  # one model answers, or has three ways
    with pytest.raises(ConfigError, match="no plan template suits a pool of python"):
        draw_plan(FILE.plan, Pool((PYTHON,)), rng)


def test_every_example_is_a_plan_that_is_read_back_strictly() -> None:
    examples = template_examples(warm_start(), "train", 300)
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
    examples = template_examples(warm_start(), "train", 200)
    later = [example for example in examples if len(example.messages) > 2]
    accepted = [example for example in later if not json.loads(example.reply)["steps"]]
    assert 0 < len(accepted) < len(later)
    for example in accepted:
        right = answers[example.messages[1]["content"]]
        assert f"\\boxed{{{right}}}" in example.messages[-1]["content"]


def test_words_for_workers_vary() -> None:
    examples = template_examples(warm_start(), "train", 100)
    systems = "\n".join(example.messages[0]["content"] for example in examples)
    for words in warm_start().pool.descriptions["python"]:
        assert words in systems


def test_a_search_gives_the_best_plans_more_tasks() -> None:
    plans = [Workflow((Step(f"w{n}", "Answer."),)) for n in range(16)]
    met: dict[Workflow, list[str]] = {one: [] for one in plans}

    async def grade(answer: str) -> bool:
        raise AssertionError(answer)

    async def score(workflow: Workflow, task: Task) -> Score:
        met[workflow].append(task.id)
        return Score(plans.index(workflow) / 16)

    tasks = [Task(id=str(n), question="?", grader=grade) for n in range(50)]
    scored = asyncio.run(search(plans, tasks, 2, score))
    assert [len(scored[one]) for one in plans] == [2] * 12 + [10] * 3 + [42]
    assert met[plans[-1]][:2] == met[plans[0]] == ["0", "1"]
    assert len({*met[plans[-1]]}) == 42


def test_plans_that_were_dropped_are_compared_on_the_tasks_that_they_met() -> None:
    """The first tasks were easy: seven of eight is less than what the finalist did there."""
    right, wrong = Score(1.0, right=True), Score(0.0)
    finalist, dropped, failed = (Workflow((Step(name, "Answer."),)) for name in "abc")
    scored = {
        finalist: [right] * 8 + [wrong, right] * 12,
        dropped: [right] * 7 + [wrong],
        failed: [Score(None)] * 8,
    }
    estimates = estimate_rewards(scored)
    assert estimates.keys() == {finalist, dropped}
    assert estimates[dropped] < estimates[finalist] - 0.2


def test_examples_follow_the_plans_that_were_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one worker alone is right, almost all examples ask that worker."""

    class Scored:
        async def score(self, text: str, task: Task, pool: Pool) -> Score:
            workflow = plan.parse(text, pool, strict=True).workflow
            assert workflow is not None
            right = workflow.steps[-1].worker == "mathematician"
            return Score(right - 0.1 * len(workflow), right=right)

    async def close() -> None:
        pass

    connections = []

    def connected(recipe: Recipe) -> SimpleNamespace:
        connections.append(recipe)
        return SimpleNamespace(pool=recipe_pool(recipe), scorer=Scored(), close=close)

    monkeypatch.setattr(templates, "connect_workers", connected)
    recipe = warm_start("sft.search_tasks=1", "pool.subset=", f"run.output={tmp_path / 'out'}")
    examples = template_examples(recipe, "train", 200)
    first = [example for example in examples if len(example.messages) == 2]
    counts = Counter(example.reply.count("worker") for example in first)
    assert counts[1] > 0.9 * len(first)
    text = (tmp_path / "out" / "plans.toml").read_text()
    assert text.count('benchmark = "gsm8k"') == len(list(all_plans(FILE.plan, recipe_pool(recipe))))
    assert "[[plan]] # 100.0% of 3 tasks right, reward 0.900" in text
    searched = len(connections)
    assert template_examples(recipe, "train", 200) == examples  # read back, not searched again
    assert len(connections) == searched == 1
    other = tmp_path / "templates.toml"
    other.write_text(Path(recipe.sft.templates).read_text() + "\n# changed\n")  # type: ignore[union-attr, arg-type]
    overrides = ("sft.search_tasks=1", f"run.output={tmp_path / 'out'}", f"sft.templates={other}")
    template_examples(warm_start(*overrides), "train", 200)
    assert len(connections) == 2


def test_a_dry_run_counts_the_plans_that_are_searched() -> None:
    recipe = warm_start("sft.search_tasks=2")
    plans = len(list(all_plans(FILE.plan, recipe_pool(recipe))))
    assert estimate(recipe, recipe_pool(recipe)).rollouts == 2 * 3 * plans
    assert estimate(warm_start(), recipe_pool(recipe)).worker_calls == 0


def test_workers_of_plans_that_were_found_are_names() -> None:
    step = {"worker": "q", "subtask": ["Answer."]}
    found = Template.model_validate({"benchmark": "gsm8k", "steps": [step]})
    pool = Pool(tuple(WorkerProfile(name=name) for name in ("ann", "q", "tool")))
    drawn = {draw_plan([found], pool, Random(seed), "gsm8k").steps[0].worker for seed in range(20)}
    assert drawn == {"q"}
    with pytest.raises(ConfigError, match="no plan template suits"):
        draw_plan([found], pool, Random(1), "mmlu")


def test_a_suite_holds_no_task_out_to_measure_by() -> None:
    suite = ["data.kind=suite", "data.suite.name=gsm8k:test", "data.mix=", "run.eval_every=10"]
    with pytest.raises(ConfigError, match="no task is held out"):
        read_recipe(RECIPES / "real-warm-start.toml", suite)
