"""Layers that are compiled, for fewer and larger operations and less to keep for the way back.

All layers of a model are one program over different weights, so it is compiled once and not once
for each. Lengths may vary from batch to batch.
"""

from __future__ import annotations

from typing import Any

import torch


def compile_layers(model: Any) -> None:
    """Compile the layers of a Llama or Qwen2 model, where there is a graphics card: on a
    processor it would take longer than it saves."""
    if torch.cuda.is_available():
        for layer in model.model.layers:
            layer.compile(dynamic=True)
