"""Layers that are compiled, for fewer and larger operations and less to keep for the way back.

All layers of a model are one program over different weights, so it is compiled once and not once
for each. Lengths may vary from batch to batch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def compile_layers(model: Any) -> None:
    """Compile the layers of a Llama or Qwen2 model, where there is a graphics card: on a
    processor it would take longer than it saves."""
    if torch.cuda.is_available():
        for layer in model.model.layers:
            layer.compile(dynamic=True)


def as_written() -> AbstractContextManager[Any]:
    """For as long as this lasts, compiled layers are not: token by token, every length would be
    another program."""
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
