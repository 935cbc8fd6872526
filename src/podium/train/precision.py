"""How wide the numbers of a model are while it is trained.

An update at the paper's learning rate is smaller than what 16 bits tell apart of most weights, so
whatever is trained is held in 32 bits. What stays as it is, the base under an adapter, is held as
the recipe says, and all of it is computed with in that width. On a processor everything has 32
bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from podium.local.pretrained import data_type
from podium.train.recipe import Recipe


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
