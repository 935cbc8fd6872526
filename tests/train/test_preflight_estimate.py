from __future__ import annotations

from pathlib import Path

import pytest

from podium.train.preflight import calls_per_run, estimate
from podium.train.recipe import read_recipe
from podium.train.worker_set import recipe_pool
from support.recipes import EVOLVE, LESSONS, POOL, RECIPES, make_recipe

ASSUMED = [
    "estimate.calls_per_run=2.0",
    "estimate.worker_input_tokens=1000",
    "estimate.worker_output_tokens=100",
]


def test_the_papers_run_is_51200_plans_and_some_150000_calls() -> None:
    recipe = read_recipe(RECIPES / "conductor-7b.toml")
    taken = estimate(recipe, recipe_pool(recipe))
    assert (taken.steps, taken.questions, taken.rollouts) == (200, 800, 51_200)
    assert taken.worker_calls == 153_600
    assert taken.conductor_tokens == 51_200 * 1024


def test_cost_is_calls_times_the_mean_price_of_one(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=ASSUMED)
    taken = estimate(recipe, recipe_pool(recipe))
    assert taken.worker_calls == 10 * 4 * 8 * 2
    assert taken.worker_input_tokens == 640_000
    assert taken.worker_output_tokens == 64_000
    # a call costs 0.001 + 0.001 with `one`, and twice that with `two`
    assert taken.usd == pytest.approx(640 * 0.003)
    assert taken.usd_max == pytest.approx(640 * 0.004)


def test_exploration_is_reported_and_bounds_the_cost(tmp_path: Path) -> None:
    for tries, tried in ((["grpo.explore=3"], 3), (["grpo.explore=3", "grpo.explore_tries=9"], 9)):
        recipe = make_recipe(tmp_path, overrides=[*ASSUMED, *tries])
        taken = estimate(recipe, recipe_pool(recipe))
        assert taken.exploration_plans == 10 * 4 * tried
        assert taken.worker_calls == 640  # how often no plan is right is unknown
        assert taken.usd_max == pytest.approx((640 + 2 * taken.exploration_plans) * 0.004)


def test_steps_that_go_over_the_same_questions_cost_nothing_more(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=[*ASSUMED, "grpo.num_iterations=4"])
    assert estimate(recipe, recipe_pool(recipe)).questions == 3 * 4  # in steps 1, 5 and 9


def test_to_measure_the_workers_alone_takes_a_call_of_each_for_every_question(
    tmp_path: Path,
) -> None:
    without = make_recipe(tmp_path, overrides=ASSUMED)
    alone = make_recipe(tmp_path, overrides=[*ASSUMED, "run.baselines=true", "run.eval_tasks=30"])
    pool = recipe_pool(alone)
    more = estimate(alone, pool).worker_calls - estimate(without, pool).worker_calls
    assert more == 30 * len(pool)


def test_an_unknown_price_makes_the_cost_unknown(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=ASSUMED)
    text = POOL.replace('provider = "scripted"\nprice', 'provider = "openai"\nprice', 1)
    text = text.replace("price = { input = 1.0, output = 10.0 }\n", "", 1)
    (tmp_path / "pool.toml").write_text(text.replace('options = { reply = "ok" }', "", 1), "utf-8")
    taken = estimate(recipe, recipe_pool(recipe))
    assert taken.usd is None
    assert taken.unpriced == ("one",)
    assert taken.usd_priced == pytest.approx(320 * 0.004)


def test_measurements_on_the_way_are_counted(tmp_path: Path) -> None:
    mix = ["data.kind=mix", "data.file=", 'data.mix.sources=["rlpr"]']
    measured = ["run.eval_every=4", "run.eval_tasks=100"]
    recipe = make_recipe(tmp_path, overrides=[*ASSUMED, *mix, *measured])
    taken = estimate(recipe, recipe_pool(recipe))
    assert taken.evaluation_plans == 2 * 100
    assert taken.worker_calls == (320 + 200) * 2


def test_rollouts_that_are_used_again_are_not_sampled_again(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=["grpo.num_iterations=2"])
    assert estimate(recipe, recipe_pool(recipe)).rollouts == 160


def test_every_candidate_of_a_step_has_a_run_for_each_of_its_questions(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, EVOLVE, [*ASSUMED, "evolve.population=6"])
    taken = estimate(recipe, recipe_pool(recipe))
    assert (taken.steps, taken.questions, taken.candidates) == (10, 40, 6)
    assert (taken.rollouts, taken.worker_calls) == (240, 480)
    assert taken.conductor_tokens == 0
    assert taken.usd == pytest.approx(480 * 0.003)
    usual = make_recipe(tmp_path, EVOLVE, ASSUMED)
    assert estimate(usual, recipe_pool(usual)).candidates == 32


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [
        (["evolve.turns=1"], 1),
        (["evolve.turns=4"], 2),
        (["evolve.turns=4", "evolve.roles=false"], 4),
    ],
)
def test_an_estimate_assumes_that_every_turn_is_used(
    overrides: list[str], calls: int, tmp_path: Path
) -> None:
    recipe = make_recipe(tmp_path, EVOLVE, [*ASSUMED, *overrides])
    assert calls_per_run(recipe) == calls
    taken = estimate(recipe, recipe_pool(recipe))
    assert taken.worker_calls == taken.rollouts * calls


def test_sft_calls_no_worker(tmp_path: Path) -> None:
    taken = estimate(make_recipe(tmp_path, LESSONS))
    assert (taken.steps, taken.examples) == (10, 10 * 4 * 2)
    assert (taken.worker_calls, taken.usd) == (0, 0.0)


def test_memory_and_hours_of_the_measured_model() -> None:
    """An update of 32 x 512 tokens took 61 GB and ran at 20,200 tokens/s on an H200, and 256 rows
    were sampled at 29,300 tokens/s: Qwen2.5-Coder 1.5B, which has 1.78 billion parameters."""
    sizes = ("model.base=x-1.777B", "grpo.max_pass_tokens=16384", "grpo.max_completion_tokens=512")
    assumed = (
        "estimate.policy_input_tokens=1",
        "estimate.policy_output_tokens=512",
        "model.lora.rank=16",
    )
    rollouts = ("grpo.questions=1", "grpo.rollouts=32", "grpo.explore=0", "grpo.explore_tries=")
    first_time = ("grpo.steps=1", "run.eval_every=0")
    path = RECIPES / "real-conductor.toml"
    recipe = read_recipe(path, [*sizes, *assumed, *rollouts, *first_time])
    taken = estimate(recipe, recipe_pool(recipe))
    tokens = 32 * 512
    assert taken.gpu_gb == pytest.approx(61, rel=0.05)
    assert (taken.update_hours or 0) * 3600 == pytest.approx(tokens / 20_200, rel=0.05)
    assert (taken.sampling_hours or 0) * 3600 == pytest.approx(tokens / 29_300, rel=0.05)


def test_several_gpus_share_the_states_and_the_work(tmp_path: Path) -> None:
    alone, two = (
        estimate(recipe, recipe_pool(recipe))
        for recipe in (make_recipe(tmp_path, overrides=[f"estimate.gpus={n}"]) for n in (1, 2))
    )
    assert two.update_hours == pytest.approx((alone.update_hours or 0) / 2)
    assert (alone.gpu_gb or 0) - (two.gpu_gb or 0) > 16 * 7 / 2
