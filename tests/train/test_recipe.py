from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.train.recipe import Recipe, read_recipe
from podium.train.score import RELEASED, Reward
from support.recipes import EVOLVE, GRPO, LESSONS, OF_MODELS, RECIPES, make_recipe, write_recipe
from support.trainings import REWARD

recipes = pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)


def problem(directory: Path, text: str = GRPO, *overrides: str) -> str:
    path = write_recipe(directory, text)
    with pytest.raises(ConfigError) as caught:
        read_recipe(path, overrides)
    line = str(caught.value)
    assert line.startswith(str(path)) or line.startswith("--set ")
    assert "\n" not in line
    return line


# ---- the recipes that come with Podium


@recipes
def test_every_recipe_can_be_read_and_is_reported_on_the_page(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.training.steps > 0
    docs = RECIPES.parent / "docs" / "reference"
    if path.stem.startswith("etudes"):
        room = "lab" if recipe.kind == "evolve" else "train"
        command = rf"^podium {room} {recipe.kind} +recipes/{path.name}\b"
        assert re.search(command, (docs / "etudes.md").read_text("utf-8"), re.M)
    else:
        row = rf"^\| `{path.name}` \|.*\| `{recipe.kind}` \|$"
        assert re.search(row, (docs / "training.md").read_text("utf-8"), re.M)


def paper(name: str) -> Recipe:
    return read_recipe(RECIPES / f"{name}.toml")


def values(table: Any, *keys: str) -> tuple[Any, ...]:
    return tuple(getattr(table, key) for key in keys)


def test_the_papers_recipe_has_the_papers_values() -> None:
    recipe = paper("conductor-7b")
    grpo = recipe.grpo
    assert grpo is not None
    assert values(recipe.model, "base", "dtype", "gradient_checkpointing", "lora") == (
        "Qwen/Qwen2.5-7B-Instruct", "bfloat16", True, None,
    )  # fmt: skip
    assert values(grpo, "steps", "questions", "rollouts", "num_iterations") == (200, 4, 64, 1)
    assert values(grpo, "learning_rate", "schedule", "warmup_ratio") == (1e-6, "cosine", 0.03)
    assert values(grpo, "adam_beta1", "adam_beta2", "adam_epsilon") == (0.9, 0.999, 1e-8)
    assert values(grpo, "weight_decay", "max_grad_norm") == (0.0, 1.0)
    assert values(grpo, "clip", "clip_high", "beta") == (0.2, None, 0.0)
    assert values(grpo, "temperature", "top_p", "top_k") == (1.0, 1.0, 0)
    assert values(grpo, "max_completion_tokens", "max_prompt_tokens") == (1024, 8192)
    assert values(grpo, "loss_type", "scale_rewards", "mask_truncated") == ("bnpo", "group", False)
    assert values(recipe.workers, "max_tokens", "temperature") == (4096, 0.2)
    assert values(recipe.run, "seed", "save_every", "eval_temperature") == (42, 20, 0.2)
    assert recipe.reward.reward() == Reward(malformed=0.0, wrong=0.5, right=1.0)
    prompt = recipe.prompt
    assert values(prompt, "style", "few_shot", "access", "mask_names", "max_steps") == (
        "full", True, "binary", True, 5,
    )  # fmt: skip
    mix = recipe.data.mix
    assert mix is not None
    assert len(mix.sources) * (mix.per_source or 0) == 960
    assert mix.seed == 42
    assert recipe.recursion is None


def test_the_papers_second_stage_splits_its_rollouts_over_two_rounds() -> None:
    recipe = paper("conductor-7b-recursion")
    grpo, recursion, mix = recipe.grpo, recipe.recursion, recipe.data.mix
    assert grpo is not None
    assert recursion is not None
    assert mix is not None
    assert grpo.steps == 20
    assert (len(mix.sources), mix.per_source) == (2, 175)
    assert recursion.share * grpo.rollouts == 32
    assert values(recursion, "rounds", "discount", "normalise_per_round") == (2, 0.25, False)
    assert grpo.max_prompt_tokens == 16_000
    first = paper("conductor-7b")
    assert recipe.model.base == str(first.output / "model")
    assert first.grpo is not None
    differing = {name for name, value in grpo if value != getattr(first.grpo, name)}
    assert differing == {"steps", "max_prompt_tokens"}


def test_random_pools_are_subsets_with_new_ids_over_the_same_questions() -> None:
    recipe = paper("conductor-7b-random-pools")
    subset = recipe.pool.subset
    assert subset is not None
    assert (subset.smallest, subset.largest, recipe.pool.shuffle) == (2, 7, True)
    assert recipe.data == paper("conductor-7b").data


def test_the_coordinators_recipe_has_its_papers_values() -> None:
    recipe = paper("trinity")
    evolve = recipe.evolve
    assert evolve is not None
    assert recipe.model.base == "Qwen/Qwen3-0.6B"
    assert values(evolve, "sigma", "population") == (0.03, 32)
    assert values(evolve, "turns", "roles", "hidden_state_token") == (5, True, "penultimate")
    assert evolve.steps * evolve.questions * (evolve.population or 0) == 30_720
    assert values(recipe.workers, "max_tokens", "temperature") == (4096, 0.1)
    assert recipe.run.seed == 42
    assert len(evolve.matrices) == 8


def test_the_etudes_recipes_go_on_from_each_other() -> None:
    workers, warm = paper("etudes-workers"), paper("etudes-warm-start")
    alone = paper("etudes-arithmetic")
    assert alone.model.adapter == str(workers.output / "arithmetic")
    practice = paper("etudes-practice")
    assert practice.model.adapters == {
        role: str((alone if role == "arithmetic" else workers).output / role)
        for role in ("arithmetic", "calendar", "lists", "words")
    }
    names = ("etudes", "etudes-further", "etudes-decisions", "etudes-recursion")
    all_stages = [paper(name) for name in names]
    for before, recipe in itertools.pairwise([warm, *all_stages]):
        assert recipe.model.adapter == str(before.output / "conductor")
    for recipe in (paper("etudes-evolved"), *(recipe for recipe in all_stages if recipe.grpo)):
        adapters = {role: path for role, path in recipe.pool.adapters.items() if path}
        assert workers.sft is not None
        assert adapters == {
            role: str((practice if role in practice.model.adapters else workers).output / role)
            for role in workers.sft.adapters
        }


# ---- reading


def test_paths_count_from_the_directory_of_the_recipe(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    assert recipe.output == tmp_path / "out"
    assert dict(recipe.files()) == {
        "pool.file": tmp_path / "pool.toml",
        "data.file.path": tmp_path / "tasks.jsonl",
    }
    assert recipe.model.base == "owner/model-7B"
    assert make_recipe(tmp_path, overrides=["model.base=./here"]).model.base == str(
        tmp_path / "here"
    )
    assert make_recipe(tmp_path, overrides=["model.base=a.gguf"]).model.base == str(
        tmp_path / "a.gguf"
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("grpo.learning_rte=1", "unknown key grpo.learning_rte; did you mean 'learning_rate'?"),
        ("promt.few_shot=true", "unknown key promt; did you mean 'prompt'?"),
        ("model.lora.rnk=8", "unknown key model.lora.rnk; did you mean 'rank'?"),
        ("grpo.steps=0", "grpo.steps: expected more than 0, got 0"),
        ("grpo.steps=ten", "grpo.steps: expected a whole number, got the text 'ten'"),
        ("grpo.rollouts=1", "grpo.rollouts: expected 2 or more, got 1"),
        ("grpo.clip=inf", "grpo.clip: expected 1 or less"),
        ("grpo.learning_rate=nan", "grpo.learning_rate: expected a finite number"),
        ("grpo.loss_type=ppo", "grpo.loss_type: expected one of 'bnpo', 'grpo', 'dr_grpo'"),
        ("prompt.few_shot=1", "prompt.few_shot: expected true or false, got 1"),
        ("run.log=jsonl", "run.log: expected a list, got the text 'jsonl'"),
        ("data.kind=files", "data.kind: expected one of 'etudes', 'mix', 'file' or 'suite'"),
        ("run.output=", "run.output is missing, and it is required"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, key: str, said: str) -> None:
    assert f"with --set {key}: {said}" in problem(tmp_path, GRPO, key)


def test_a_misspelt_key_in_the_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    text = GRPO.replace("questions = 4", "question = 4")
    assert problem(tmp_path, text).endswith("unknown key grpo.question; did you mean 'questions'?")


def test_a_recipe_that_is_not_there_or_no_toml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such recipe"):
        read_recipe(tmp_path / "none.toml")
    assert "not valid TOML" in problem(tmp_path, "[model")


# ---- overriding


def test_overrides_are_parsed_as_toml(tmp_path: Path) -> None:
    recipe = make_recipe(
        tmp_path,
        overrides=[
            "prompt.few_shot=false",
            "grpo.learning_rate=5e-6",
            "model.lora={ rank = 4 }",
            "model.lora.alpha=8.0",
            "pool.file=two.toml",
            'run.log=["jsonl", "wandb"]',
        ],
    )
    assert recipe.grpo is not None
    assert recipe.model.lora is not None
    assert not recipe.prompt.few_shot
    assert recipe.grpo.learning_rate == 5e-6
    assert (recipe.model.lora.rank, recipe.model.lora.alpha) == (4, 8.0)
    assert recipe.pool.file == str(tmp_path / "two.toml")
    assert recipe.run.log == {"jsonl", "wandb"}


def test_setting_nothing_takes_the_key_out(tmp_path: Path) -> None:
    text = GRPO.replace("[model]", "[model]\nlora = { rank = 4 }")
    assert make_recipe(tmp_path, text).model.lora is not None
    assert make_recipe(tmp_path, text, ["model.lora="]).model.lora is None


@pytest.mark.parametrize("override", ["few_shot=false", "prompt.few_shot", "prompt.=1", "=1"])
def test_unsettable_keys_are_reported(tmp_path: Path, override: str) -> None:
    expected = f"--set {override}: expected table.key=value"
    assert problem(tmp_path, GRPO, override).startswith(expected)


def test_keys_are_not_set_inside_what_is_no_table(tmp_path: Path) -> None:
    said = problem(tmp_path, GRPO, "model.base.name=x")
    assert said.startswith("--set model.base.name=x: base is no table")


# ---- what keys mean together

EVOLVED_ETUDES = ["data.kind=etudes", "data.file=", "pool.file=", "pool.oracle=true"]


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        (GRPO, ["data.mix.sources=['rlpr']"], 'data.mix has no effect with data.kind = "file"'),
        (GRPO, ["data.kind=suite"], 'data.file has no effect with data.kind = "suite"'),
        (GRPO, ["data.kind=mix", "data.file="], 'data.kind = "mix" needs a table [data.mix]'),
        (GRPO, ["pool.worker_dropout=0.5"], "pool.worker_dropout has no effect with a pool file"),
        (
            GRPO,
            ["reward.replan_penalty=0.3"],
            "reward.replan_penalty has no effect without [recursion]",
        ),
        (
            GRPO,
            ["reward.accept_penalty=0.3"],
            "reward.accept_penalty has no effect without [recursion]",
        ),
        (GRPO, ["pool.flaky_rate=0.3"], "pool.flaky_rate has no effect without [recursion]"),
        (GRPO, ["pool.file="], "[pool] needs one of these"),
        (GRPO, ["grpo.explore_tries=4"], "write at least one there, and as many or more here"),
        (GRPO, ["grpo.explore=8"], "of 8 rollouts at least one must stay; write 7 or less"),
        (
            GRPO,
            ["grpo.explore=4", "recursion.share=0.5"],
            "of 4 rollouts that continue no other at least one must stay; write 3 or less",
        ),
        (
            LESSONS,
            ["sft.dataset=decisions", "sft.adapters="],
            "decisions have the form of trained conductors",
        ),
        (
            REWARD,
            ["grpo.num_iterations=2", "data.etudes.stage=[{ steps = 3, shapes = { one = 1.0 } }]"],
            "let every stage last a multiple of that",
        ),
        (GRPO, ["grpo.micro_batch=5"], "the 4 x 8 rollouts of a step cannot be divided by it"),
        (GRPO, ["recursion.rounds=1"], "recursion.rounds is 1"),
        (GRPO, ["recursion.rounds=3"], "recursion.rounds is 3, and rollouts have two; write 2"),
        (GRPO, ["recursion.share=0.6"], "makes 5 of 8 rollouts second rounds"),
        (GRPO, ["recursion.share=1.0"], "makes 8 of 8 rollouts second rounds"),
        (GRPO, ["recursion.share=0.01"], "makes 0 of 8 rollouts second rounds"),
        (GRPO, ["model.adapter=./warm"], "model.adapter needs a table [model.lora]"),
        (GRPO, ["model.adapters.words=./words"], "model.adapters names all of sft.adapters"),
        (GRPO, ["model.base=x.gguf", "grpo.beta=0.1"], "grpo.beta needs model.base a second time"),
        (GRPO, ["run.eval_every=5"], "every task is trained on and none is held out"),
        (GRPO, ["reward.wrong=2.0"], "they must ascend"),
        (GRPO, ["pool.subset={ smallest = 3, largest = 2 }"], "pool.subset.smallest is 3, above"),
        (EVOLVE, ["reward.right=2.0"], "reward has no effect with [evolve]"),
        (EVOLVE, ["prompt.few_shot=false"], "prompt has no effect with [evolve]"),
        (EVOLVE, ["model.lora.rank=2"], "model.lora has no effect with [evolve]"),
        (EVOLVE, ["run.save_every=5"], "run.save_every has no effect with [evolve]"),
        (EVOLVE, ["run.eval_every=5"], "every task is trained on and none is held out"),
        (EVOLVE, ["pool.file="], "[pool] needs one of these"),
        (EVOLVE, ["evolve.population=1"], "evolve.population"),
        (EVOLVE, ["evolve.sigma=1e300"], "evolve.sigma: expected 1e+06 or less"),
        (EVOLVE, ["evolve.matrices=['w', 'w']"], "evolve.matrices names a matrix twice"),
        (EVOLVE, ["sft.dataset=file", "sft.steps=1", "sft.learning_rate=1.0"], "one of the tables"),
        (
            EVOLVE,
            [*EVOLVED_ETUDES, "data.etudes.everyday_share=0.1"],
            "data.etudes.everyday_share has no effect with [evolve]",
        ),
        (
            EVOLVE,
            [*EVOLVED_ETUDES, "data.etudes.stage=[{ steps = 4, shapes = { one = 1 } }]"],
            "the stages last 4 steps, and evolve.steps is 10",
        ),
        (LESSONS, ["sft.adapters=['word']"], "nothing is called 'word' here; did you mean 'words'"),
        (LESSONS, ["sft.adapters=[]"], "sft.adapters names the specialists"),
        (LESSONS, ["model.lora="], "sft.adapters needs a table [model.lora]"),
        (LESSONS, ["sft.dataset=file", "sft.adapters="], 'sft.dataset = "file" needs data.kind'),
        (LESSONS, ["reward.right=2.0"], "reward has no effect with [sft]"),
        (LESSONS, ["prompt.style=trained"], "prompt has no effect with [sft]"),
        (
            LESSONS,
            ["data.etudes.correct_access_share=0.1"],
            'data.etudes.correct_access_share has no effect with sft.dataset = "specialists"',
        ),
        (
            LESSONS,
            ["data.etudes.nested_phrase_share=0.1"],
            'data.etudes.nested_phrase_share has no effect with sft.dataset = "specialists"',
        ),
        (
            LESSONS,
            ["sft.dataset=plans", "sft.adapters=", "data.etudes.unsure_share=0.1"],
            'data.etudes.unsure_share has no effect with sft.dataset = "plans"',
        ),
        *(
            (LESSONS, ["sft.dataset=plans", "sft.adapters=", key], said)
            for key, said in (
                ("prompt.access=binary", 'write prompt.access = "index"'),
                ("prompt.mask_names=false", "write prompt.mask_names = true"),
                ("prompt.fixed_subtasks=true", "prompt.fixed_subtasks has no effect with [sft]"),
            )
        ),
    ],
)
def test_conflicting_settings_are_reported(
    tmp_path: Path, text: str, overrides: list[str], said: str
) -> None:
    assert said in problem(tmp_path, text, *overrides)


OPENINGS = ["sft.dataset=plans", "sft.adapters="]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ("[{ shapes = { chian-2 = 1 } }]", "nothing is called 'chian-2' here; did you mean 'chain"),
        ("[{ shapes = { chain-5 = 1 } }]", "nothing is called 'chain-5' here"),
        ("[{ shapes = { one = 0 } }]", "a stage needs a shape with a weight above 0"),
        ("[{ shapes = { one = 1 } }, { shapes = { one = 1 } }]", "only the last stage may leave"),
    ],
)
def test_a_curriculum_that_cannot_be_followed_is_refused(
    tmp_path: Path, stages: str, said: str
) -> None:
    assert said in problem(tmp_path, LESSONS, *OPENINGS, f"data.etudes.stage={stages}")


def test_a_recipe_is_for_one_way_of_training(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    assert read_recipe(path, kind="grpo").kind == "grpo"
    with pytest.raises(ConfigError, match="a recipe for podium train grpo: it has no \\[sft\\]"):
        read_recipe(path, kind="sft")
    neither = write_recipe(tmp_path, GRPO.partition("[grpo]")[0] + "[run]\noutput = 'out'\n")
    with pytest.raises(ConfigError, match="has one of the tables"):
        read_recipe(neither)


def test_a_preset_of_rewards_can_be_changed_in_part(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=["reward.preset=released"])
    assert recipe.reward.reward() == RELEASED
    recipe = make_recipe(
        tmp_path, overrides=["reward.wrong=0.1", "reward.penalty_per_extra_step=0.01"]
    )
    assert recipe.reward.reward() == Reward(wrong=0.1, penalty_per_extra_step=0.01)


# ---- the fingerprint


def test_the_fingerprint_is_that_of_what_is_learned(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    same = ["run.save_every=5", "run.minutes=9.5", "run.output=other", "estimate.calls_per_run=2.0"]
    assert make_recipe(elsewhere, overrides=same).fingerprint == recipe.fingerprint
    for change in ("grpo.steps=11", "run.seed=1", "prompt.few_shot=false", "reward.wrong=0.2"):
        assert make_recipe(tmp_path, overrides=[change]).fingerprint != recipe.fingerprint


def test_fingerprints_differ_between_adapters_of_one_name_in_any_directory(tmp_path: Path) -> None:
    found = []
    for where in ("here/trained/warm", "there/trained/warm", "here/trained/etudes"):
        settings = ["model.lora.rank=2", f"model.adapter={tmp_path}/{where}/conductor"]
        found.append(make_recipe(tmp_path, overrides=settings).fingerprint)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    "written",
    ["reward.penalty_per_usd=0.0", "grpo.top_k=0", "prompt.max_steps=5", "reward.wrong=0.5"],
)
def test_a_key_at_its_default_counts_as_not_written(tmp_path: Path, written: str) -> None:
    recipe = make_recipe(tmp_path)
    assert make_recipe(tmp_path, overrides=[written]).fingerprint == recipe.fingerprint


def test_a_table_that_is_left_out_is_another_thing_than_one_at_its_defaults(tmp_path: Path) -> None:
    without = make_recipe(tmp_path)
    assert (
        make_recipe(tmp_path, overrides=["recursion.rounds=2"]).fingerprint != without.fingerprint
    )


def test_a_preset_and_its_numbers_are_the_same_reward(tmp_path: Path) -> None:
    preset, numbers = (
        make_recipe(tmp_path, overrides=[written]).fingerprint
        for written in ("reward.preset=released", "reward.right=1.5")
    )
    assert preset == numbers != make_recipe(tmp_path).fingerprint


def test_the_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, LESSONS)
    code = (
        "import sys; from pathlib import Path; from podium.train.recipe import read_recipe;"
        "print(read_recipe(Path(sys.argv[1])).fingerprint)"
    )
    output = {
        subprocess.run(
            [sys.executable, "-c", code, path],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert output == {read_recipe(path).fingerprint}
