"""How wide numbers are: no update may be lost in rounding."""

from __future__ import annotations

from typing import Any

import pytest

from podium.train.recipe import Recipe, read_recipe
from support.recipes import RECIPES

torch = pytest.importorskip("torch")

from podium.train.trainer_setup import autocast, autocast_dtype, parameter_dtype

pytestmark = pytest.mark.torch


def recipe_of(name: str, *overrides: str) -> Recipe:
    return read_recipe(RECIPES / f"{name}.toml", overrides)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def updated(weight: Any, learning_rate: float) -> Any:
    """The weight after one update, whatever its gradient."""
    parameter = torch.nn.Parameter(weight)
    parameter.grad = torch.ones_like(weight)
    torch.optim.AdamW([parameter], lr=learning_rate).step()
    return parameter.detach()


@pytest.mark.usefixtures("card")
def test_an_update_at_the_papers_learning_rate_changes_a_whole_model() -> None:
    recipe = recipe_of("conductor-7b")
    assert recipe.grpo is not None
    weight = torch.full((4,), 0.02)
    held = weight.to(parameter_dtype(recipe))
    assert not torch.equal(updated(held.clone(), recipe.grpo.learning_rate), held)
    rounded = weight.to(torch.bfloat16)
    assert torch.equal(updated(rounded.clone(), recipe.grpo.learning_rate), rounded)


@pytest.mark.usefixtures("card")
def test_a_base_under_an_adapter_is_held_and_a_whole_model_computed_as_the_recipe_says() -> None:
    adapter, whole = recipe_of("etudes"), recipe_of("conductor-7b")
    assert parameter_dtype(adapter) is torch.bfloat16
    assert parameter_dtype(whole) is torch.float32
    assert autocast_dtype(adapter) is autocast_dtype(whole) is torch.bfloat16
    assert autocast_dtype(recipe_of("conductor-7b", "model.dtype=float32")) is None
    with autocast(adapter):
        assert not torch.is_autocast_enabled("cuda")


def test_on_a_processor_everything_has_32_bits() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a graphics card")
    for name in ("etudes", "conductor-7b"):
        assert parameter_dtype(recipe_of(name)) is torch.float32
        assert autocast_dtype(recipe_of(name)) is None
        with autocast(recipe_of(name)):
            assert not torch.is_autocast_enabled("cuda")
