"""The model that is trained: what is sampled from it is what it would say, at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.train.recipe import Recipe
from support.tiny_model import tiny_gguf
from support.trainings import LORA, REWARD, base, tiny_recipe

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from podium.train.rollouts import Policy
from podium.workers.local.decoding import Sampling

pytestmark = pytest.mark.torch

__all__ = ["base"]

GREEDY = Sampling(max_tokens=6)
DRAWN = Sampling(max_tokens=6, temperature=1.0)
PROMPTS = ([5, 6, 7, 8], [40, 41], [90, 12, 13])


@pytest.fixture
def recipe(base: Path, tmp_path: Path) -> Recipe:
    return tiny_recipe(REWARD, base, tmp_path)


@pytest.fixture
def whole_model(base: Path, tmp_path: Path) -> Recipe:
    return tiny_recipe(REWARD.replace(LORA, ""), base, tmp_path)


@pytest.fixture
def begun(base: Path, tmp_path: Path) -> Path:
    """An adapter to continue from."""
    policy = Policy(tiny_recipe(REWARD, base, tmp_path / "begun"))
    policy.save(tmp_path / "adapter", policy.model.state_dict())
    return tmp_path / "adapter"


def going_on(base: Path, begun: Path, tmp_path: Path, **lora: str) -> Recipe:
    usual = {"rank": "2", "alpha": "4.0", "targets": '["q_proj", "v_proj"]'}
    written = ", ".join(f"{key} = {value}" for key, value in {**usual, **lora}.items())
    table = f'lora = {{ {written} }}\nadapter = "{begun}"'
    return tiny_recipe(REWARD.replace(LORA, table), base, tmp_path / "on")


def test_an_adapter_continues_with_the_recipes_dropout(
    base: Path, begun: Path, tmp_path: Path
) -> None:
    policy = Policy(going_on(base, begun, tmp_path, dropout="0.5"))
    rates = {
        layer.lora_dropout["default"].p
        for layer in policy.model.modules()
        if hasattr(layer, "lora_dropout")
    }
    assert rates == {0.5}


def test_an_adapter_for_other_layers_is_not_resumed(
    base: Path, begun: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="model.lora.targets are q_proj, up_proj; let them be"):
        Policy(going_on(base, begun, tmp_path, targets='["q_proj", "up_proj"]'))


def test_trl_knows_what_ends_a_plan(recipe: Recipe) -> None:
    policy = Policy(recipe)
    assert policy.model.generation_config.eos_token_id == list(policy.end_tokens)


def stir(policy: Policy) -> None:
    """Change all that is trained, as an update would."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)


def said_by_transformers(policy: Policy, prompt: list[int]) -> tuple[int, ...]:
    """The likeliest completion, by the model with its adapter beside it."""
    policy.model.eval()
    tokens = policy.model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=GREEDY.max_tokens,
        do_sample=False,
        eos_token_id=list(policy.end_tokens),
    )
    return tuple(tokens[0, len(prompt) :].tolist())


@pytest.mark.parametrize("kind", ["recipe", "whole_model"])
def test_plans_are_sampled_from_the_model_as_it_is_now(
    kind: str, request: pytest.FixtureRequest
) -> None:
    policy = Policy(request.getfixturevalue(kind))
    before = [one.tokens for one in policy.sample(PROMPTS, GREEDY)]
    stir(policy)
    after = [one.tokens for one in policy.sample(PROMPTS, GREEDY)]
    assert before != after
    assert after == [said_by_transformers(policy, list(prompt)) for prompt in PROMPTS]


def test_copies_of_a_prompt_stand_together_and_differ(recipe: Recipe) -> None:
    policy = Policy(recipe)
    torch.manual_seed(1)
    completions = policy.sample(PROMPTS[:2], DRAWN, copies=8)
    assert len(completions) == 16
    assert len({one.tokens for one in completions[:8]}) > 4
    greedy = [one.tokens for one in policy.sample(PROMPTS[:2], GREEDY, copies=2)]
    assert greedy[0] == greedy[1] != greedy[2] == greedy[3]


def test_samples_follow_torchs_random_state(recipe: Recipe) -> None:
    policy = Policy(recipe)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(policy.sample(PROMPTS, DRAWN))
    assert drawn[0] == drawn[1] != drawn[2]


def test_sampling_leaves_the_model_in_training(whole_model: Recipe) -> None:
    policy = Policy(whole_model)
    policy.model.train()
    policy.sample(PROMPTS, GREEDY)
    assert policy.model.training


def test_a_conversation_is_encoded_up_to_where_the_plan_begins(recipe: Recipe) -> None:
    policy = Policy(recipe)
    tokens = policy.encode([{"role": "user", "content": "Who?"}], "I think")
    assert policy.tokenizer.decode(tokens) == (
        "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nI think"
    )
    assert policy.decode([*policy.tokenizer("a plan")["input_ids"], policy.end_tokens[0]]) == (
        "a plan"
    )


# ---- what is written


def test_training_continues_from_the_written_adapter(
    recipe: Recipe, base: Path, tmp_path: Path
) -> None:
    policy = Policy(recipe)
    stir(policy)
    policy.save(tmp_path / "adapter", policy.model.state_dict())
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == str(base)
    assert {file.name for file in (tmp_path / "adapter").iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    from_there = tiny_recipe(REWARD, base, tmp_path, f"model.adapter={tmp_path / 'adapter'}")
    again = Policy(from_there)
    assert [one.tokens for one in again.sample(PROMPTS, GREEDY)] == [
        one.tokens for one in policy.sample(PROMPTS, GREEDY)
    ]
    assert any(parameter.requires_grad for parameter in again.model.parameters())


@pytest.mark.filterwarnings("error")
def test_an_adapter_names_its_base_as_the_recipe_does(tmp_path: Path) -> None:
    """Not by the directory of its file, which means nothing to the exporter."""
    weights = tiny_gguf(tmp_path / "tiny.gguf")
    policy = Policy(tiny_recipe(REWARD, weights, tmp_path))
    for again in (False, True):  # also one that goes on from an adapter
        policy.save(tmp_path / "adapter", policy.model.state_dict())
        config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))
        assert config["base_model_name_or_path"] == str(weights), again
        overrides = [f"model.adapter={tmp_path / 'adapter'}"]
        policy = Policy(tiny_recipe(REWARD, weights, tmp_path, *overrides))


@pytest.mark.parametrize("kind", ["recipe", "whole_model"])
def test_nothing_is_drawn_while_models_are_read_and_written(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read = request.getfixturevalue(kind)
    capsys.readouterr()  # a bar, where this test is the first to need the tiny model
    policy = Policy(read)
    policy.save(tmp_path / "written", policy.model.state_dict())
    Policy(tiny_recipe(REWARD, tiny_gguf(tmp_path / "tiny.gguf"), tmp_path))
    assert capsys.readouterr() == ("", "")


def test_a_whole_model_is_written_with_its_tokenizer(
    whole_model: Recipe, base: Path, tmp_path: Path
) -> None:
    policy = Policy(whole_model)
    stir(policy)
    policy.save(tmp_path / "model", policy.model.state_dict())
    again = Policy(tiny_recipe(REWARD.replace(LORA, ""), tmp_path / "model", tmp_path))
    assert [one.tokens for one in again.sample(PROMPTS, GREEDY)] == [
        one.tokens for one in policy.sample(PROMPTS, GREEDY)
    ]


def test_an_adapter_that_cannot_be_written_leaves_the_one_before(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(recipe)
    target = tmp_path / "adapter"
    policy.save(target, policy.model.state_dict())
    weights = (target / "adapter_model.safetensors").read_bytes()

    def half(directory: Path, **_: Any) -> None:
        (directory / "adapter_config.json").write_text("{}", "utf-8")
        raise OSError("the disk went away")

    monkeypatch.setattr(policy.model, "save_pretrained", half)
    with pytest.raises(OSError, match="went away"):
        policy.save(target, {})
    assert (target / "adapter_model.safetensors").read_bytes() == weights
    assert json.loads((target / "adapter_config.json").read_text("utf-8"))["r"] == 2
