"""What an adapter has to fit in llama.cpp: a base model in GGUF, its matrices and their order.

Of a Llama, llama.cpp keeps the rows of the query and key matrices in another order than
transformers does: the two numbers that its rotary embedding turns together lie beside each other,
not half a head apart. What an adapter adds to these rows (`lora_B`) is put into the same order, or
it would be added to the wrong ones.

Needs the package gguf as soon as a file is read. Used both ways: by `export` and by `unpack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.errors import ConfigError, installing
from podium.local import weights

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

    Matrix = NDArray[np.float16]

ARCHITECTURES: Final = ("llama", "qwen2")
"""What GGUF calls the families: Llama, with Mistral, SmolLM2 and all that are built alike, and
Qwen2, with Qwen2.5."""

TURNED: Final = "llama"
"""The family whose queries and keys llama.cpp keeps in another order."""

TENSORS: Final[Mapping[str, str]] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The matrices of a layer that may be adapted: as transformers calls them, and as GGUF does."""

ITS_BASE: Final = "name the model that the adapter was trained on"


class Pair(NamedTuple):
    """What an adapter adds to one matrix: `b @ a`, times alpha over the rank."""

    a: Matrix
    b: Matrix


@dataclass(frozen=True, slots=True)
class Base:
    """What an adapter must fit: a model's family, the heads of its attention, and each matrix's
    number of inputs and outputs."""

    architecture: str
    heads: int
    key_heads: int
    sizes: Mapping[str, tuple[int, int]]

    def check(self, path: Path, tensor: str, pair: Pair) -> None:
        """Refuse what an adapter in that file adds to a tensor, if it does not fit there."""
        if tensor not in self.sizes:
            raise ConfigError(
                f"{path} adapts {tensor}, which the base model does not have; {ITS_BASE}"
            )
        if pair.a.shape[0] != pair.b.shape[1]:
            raise ConfigError(
                f"{path} adapts {tensor} by halves of the ranks {pair.a.shape[0]} and "
                f"{pair.b.shape[1]}, which have to be the same; save the adapter again"
            )
        came, size = (pair.a.shape[1], pair.b.shape[0]), self.sizes[tensor]
        if came != size:
            raise ConfigError(
                f"{path} adapts {tensor} as a matrix of {came[0]} by {came[1]}, and in the base "
                f"model it has {size[0]} by {size[1]}; {ITS_BASE}"
            )

    def turned(self, tensor: str, pair: Pair) -> Pair:
        """The pair with its rows in the order of llama.cpp."""
        heads = self._heads(tensor)
        return Pair(pair.a, _interleaved(pair.b, heads)) if heads else pair

    def turned_back(self, tensor: str, pair: Pair) -> Pair:
        """The pair with its rows in the order of transformers."""
        heads = self._heads(tensor)
        return Pair(pair.a, _in_halves(pair.b, heads)) if heads else pair

    def _heads(self, tensor: str) -> int | None:
        """How many heads a matrix has whose rows are in another order; None for the others."""
        if self.architecture != TURNED:
            return None
        if tensor.endswith(".attn_q.weight"):
            return self.heads
        return self.key_heads if tensor.endswith(".attn_k.weight") else None


def read_base(base: str | Path) -> Base:
    """The model of that name, or in that GGUF file."""
    model = weights.find(str(base))
    if not model.present:
        raise ConfigError(f"the base model is not at {model.path}; {model.remedy}")
    reader = open_gguf(model.path, "name the base model's own")
    architecture = value_of(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{model.path} has the architecture {architecture!r}; adapters are converted for "
            f"{' and '.join(ARCHITECTURES)}, use llama.cpp's convert_lora_to_gguf.py for this one"
        )
    heads = value_of(reader, f"{architecture}.attention.head_count")
    if not isinstance(heads, int):
        raise ConfigError(
            f"{model.path} does not say how many heads its attention has, so it is no whole model; "
            f"{ITS_BASE}"
        )
    return Base(
        architecture=architecture,
        heads=heads,
        key_heads=int(value_of(reader, f"{architecture}.attention.head_count_kv") or heads),
        sizes={
            tensor.name: (int(tensor.shape[0]), int(tensor.shape[1]))
            for tensor in reader.tensors
            if len(tensor.shape) == 2
        },
    )


def open_gguf(path: Path, advice: str) -> GGUFReader:
    """A GGUF file to read from; the advice is for whoever named something else."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise missing(error) from error
    try:
        return GGUFReader(path)
    except (ValueError, IndexError) as error:  # IndexError: it is empty or cut off
        raise ConfigError(f"{path} is no GGUF file: {error}; {advice}") from error


def value_of(reader: GGUFReader, key: str) -> Any:
    """What the file says under that key; None where it says nothing."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def missing(error: ImportError) -> ConfigError:
    """What to do about a package that is not installed."""
    return ConfigError(
        f"converting an adapter needs the package {error.name}; {installing('train')}"
    )


def _interleaved(matrix: Matrix, heads: int) -> Matrix:
    """The rows of each head with its two halves interleaved, as llama.cpp turns them."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _in_halves(matrix: Matrix, heads: int) -> Matrix:
    """The rows of each head as they were before these were interleaved."""
    rows, columns = matrix.shape
    interleaved = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return interleaved.swapaxes(1, 2).reshape(rows, columns)
