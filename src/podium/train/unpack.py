"""From a file that llama.cpp loads back to a directory that training goes on from: `export` undone.

So the adapters that Podium ships can be trained further, and led in a process with a graphics
card (`podium.providers.transformers`), by whoever has not trained them. What comes out is what
was exported, to the bit. Needs torch: import it only where that is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from podium.errors import ConfigError
from podium.local.lora import DOWN, PREFIX, UP, LoraShape, write_adapter
from podium.train.gguf_base import TENSORS, Base, Pair, open_gguf, read_base, value_of

if TYPE_CHECKING:
    from gguf import GGUFReader

    from podium.train.gguf_base import Matrix

_MODULES: Final[Mapping[str, str]] = {tensor: module for module, tensor in TENSORS.items()}
_TENSOR: Final = rf"blk\.(?P<layer>\d+)\.(?P<matrix>{'|'.join(_MODULES)})\.weight"
_NAME: Final = re.compile(rf"(?P<tensor>{_TENSOR})\.lora_(?P<side>[ab])")
_ADVICE: Final = "name an adapter in GGUF"


def unpack_adapter(file: Path, output: Path, *, base: str) -> Path:
    """Write the adapter in that GGUF file into the directory `output`, as peft would, and say
    where it is. `base` is the model that it is for, by name or by the path of a GGUF file. What
    is there already stays: it may be an adapter that somebody has trained."""
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise ConfigError(f"{output} is there already; name a new directory, or remove it")
    model = read_base(base)
    reader = open_gguf(file, _ADVICE)
    pairs = {
        tensor: model.turned_back(tensor, pair)
        for tensor, pair in _read_pairs(file, reader, model).items()
    }
    tensors = {}
    for tensor, pair in pairs.items():
        place = f"{PREFIX}model.layers.{_module(tensor)}"
        tensors[f"{place}.{DOWN}"] = torch.from_numpy(pair.a.copy())
        tensors[f"{place}.{UP}"] = torch.from_numpy(pair.b.copy())
    write_adapter(output, tensors, _shape(file, reader, pairs), base)
    return output


def _read_pairs(file: Path, reader: GGUFReader, base: Base) -> dict[str, Pair]:
    sides: dict[str, dict[str, Matrix]] = {}
    for stored in reader.tensors:
        found = _NAME.fullmatch(stored.name)
        if found is None or stored.data.ndim != 2 or stored.data.dtype != np.float16:
            raise ConfigError(
                f"{file} holds {stored.name}, of {stored.tensor_type.name}; {_ADVICE}, with the "
                f"matrices of layers alone, in half precision"
            )
        sides.setdefault(found["tensor"], {})[found["side"]] = stored.data
    whole = {tensor: Pair(**both) for tensor, both in sides.items() if len(both) == 2}
    if not whole or len(whole) < len(sides):
        raise ConfigError(f"{file} holds no whole adapter; {_ADVICE}")
    for tensor, pair in whole.items():
        base.check(file, tensor, pair)
    return whole


def _shape(file: Path, reader: GGUFReader, pairs: Mapping[str, Pair]) -> LoraShape:
    alpha = value_of(reader, "adapter.lora.alpha")
    ranks = {pair.a.shape[0] for pair in pairs.values()}
    if not isinstance(alpha, float) or len(ranks) != 1:
        raise ConfigError(f"{file} has the ranks {sorted(ranks)} and alpha {alpha}; {_ADVICE}")
    modules = {_module(tensor).rpartition(".")[2] for tensor in pairs}
    return LoraShape(ranks.pop(), alpha, tuple(sorted(modules)))


def _module(tensor: str) -> str:
    """The layer's number and what transformers calls the matrix: `3.self_attn.q_proj`."""
    found = re.fullmatch(_TENSOR, tensor)
    assert found is not None, "its form was checked as it was read"
    return f"{found['layer']}.{_MODULES[found['matrix']]}"
