"""The processes of one training: this one alone, or as many as accelerate has started.

Each knows its number and how many there are from the environment, as torch has it.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from podium.train.recipe import Recipe
from podium.workers.local.pretrained import data_type


def held_as(recipe: Recipe) -> torch.dtype:
    """The width in which the model's own parameters are held; adapters have 32 bits anyway."""
    if recipe.model.lora is None or not torch.cuda.is_available():
        return torch.float32
    return data_type(recipe.model.dtype)


def mixed(recipe: Recipe) -> torch.dtype | None:
    """The width in which a model is computed that is held in another, if there is one."""
    dtype = data_type(recipe.model.dtype)
    is_mixed = torch.cuda.is_available() and dtype is not torch.float32
    return dtype if is_mixed else None


def computing(recipe: Recipe) -> AbstractContextManager[Any]:
    """For as long as this lasts, a model whose every parameter is trained is computed in the
    recipe's width."""
    dtype = mixed(recipe)
    if dtype is None or recipe.model.lora is not None:
        return nullcontext()
    return torch.autocast("cuda", dtype)


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def index() -> int:
    """Which of them this one is, from 0."""
    return int(os.environ.get("RANK", "0"))


def wait_for_all() -> None:
    """Go on when every process has come this far. Needs accelerate where there are several."""
    if count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


def is_first() -> bool:
    """Whether this is the one that speaks and writes for all."""
    return index() == 0
