"""Convert adapters between peft's directories and llama.cpp's GGUF files.

llama.cpp keeps the query and key rows of a Llama in another order than transformers does: the two
numbers that the rotary embedding turns together lie side by side, not half a head apart. So the
rows of `lora_B` are permuted on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from podium._util.files import explain_write_errors, move_into_place
from podium.core.errors import ConfigError, install_command
from podium.workers.local import weights
from podium.workers.local.lora import DOWN, PREFIX, UP, LoraShape, write_adapter
from podium.workers.local.sources import WEIGHTS_FILE, AdapterConfig, read_config

if TYPE_CHECKING:
    from gguf import GGUFReader

ARCHITECTURES: Final = ("llama", "qwen2")
"""GGUF's names of the families: Llama, with Mistral and SmolLM2, and Qwen2, with Qwen2.5."""

PERMUTED_ARCHITECTURE: Final = "llama"
"""The family whose query and key rows llama.cpp permutes."""

TENSORS: Final[Mapping[str, str]] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Matrices of a layer that may be adapted: transformers' names and GGUF's."""

Matrix = NDArray[np.float16]

BASE_HINT: Final = "name the model that the adapter was trained on"


class LoraPair(NamedTuple):
    """The update of one matrix: `b @ a`, times alpha over the rank."""

    a: Matrix
    b: Matrix


@dataclass(frozen=True, slots=True)
class GgufBase:
    """The base model of an adapter: its family, attention heads and matrix shapes."""

    architecture: str
    heads: int
    key_heads: int
    sizes: Mapping[str, tuple[int, int]]

    def check(self, path: Path, tensor: str, pair: LoraPair) -> None:
        if tensor not in self.sizes:
            raise ConfigError(
                f"{path} adapts {tensor}, which the base model does not have; {BASE_HINT}"
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
                f"model it has {size[0]} by {size[1]}; {BASE_HINT}"
            )

    def permute(self, tensor: str, pair: LoraPair, *, back: bool = False) -> LoraPair:
        """Return the pair in llama.cpp's row order, or `back` in transformers'."""
        is_query, is_key = (tensor.endswith(f".attn_{letter}.weight") for letter in "qk")
        if self.architecture != PERMUTED_ARCHITECTURE or not (is_query or is_key):
            return pair
        heads = self.heads if is_query else self.key_heads
        rows, columns = pair.b.shape
        half = rows // heads // 2
        shape = (heads, half, 2, columns) if back else (heads, 2, half, columns)
        return LoraPair(pair.a, pair.b.reshape(shape).swapaxes(1, 2).reshape(rows, columns))


def read_base(base: str | Path) -> GgufBase:
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
            f"{BASE_HINT}"
        )
    return GgufBase(
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
    """Open a GGUF file; the advice ends the error if it is none."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise missing_package(error) from error
    try:
        return GGUFReader(path)
    except (ValueError, IndexError) as error:  # IndexError: it is empty or cut off
        raise ConfigError(f"{path} is no GGUF file: {error}; {advice}") from error


def value_of(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def missing_package(error: ImportError) -> ConfigError:
    return ConfigError(
        f"converting an adapter needs the package {error.name}; {install_command('train')}"
    )


_MODULES: Final[Mapping[str, str]] = {tensor: module for module, tensor in TENSORS.items()}
_TENSOR: Final = rf"blk\.(?P<layer>\d+)\.(?P<matrix>{'|'.join(_MODULES)})\.weight"
_NAME: Final = re.compile(rf"(?P<tensor>{_TENSOR})\.lora_(?P<side>[ab])")
_ADVICE: Final = "name an adapter in GGUF"


def import_adapter(file: Path, output: Path, *, base: str) -> Path:
    """Write the adapter in that GGUF file as a peft directory; `base` is its model's name or file.

    An existing directory is refused: it may hold a trained adapter.
    """
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise ConfigError(f"{output} is there already; name a new directory, or remove it")
    model = read_base(base)
    reader = open_gguf(file, _ADVICE)
    pairs = {
        tensor: model.permute(tensor, pair, back=True)
        for tensor, pair in _read_gguf_pairs(file, reader, model).items()
    }
    tensors = {}
    for tensor, pair in pairs.items():
        target = f"{PREFIX}model.layers.{_module(tensor)}"
        tensors[f"{target}.{DOWN}"] = torch.from_numpy(pair.a.copy())
        tensors[f"{target}.{UP}"] = torch.from_numpy(pair.b.copy())
    write_adapter(output, tensors, _shape(file, reader, pairs), base)
    return output


def _read_gguf_pairs(file: Path, reader: GGUFReader, base: GgufBase) -> dict[str, LoraPair]:
    sides: dict[str, dict[str, Matrix]] = {}
    for stored in reader.tensors:
        found = _NAME.fullmatch(stored.name)
        if found is None or stored.data.ndim != 2 or stored.data.dtype != np.float16:
            raise ConfigError(
                f"{file} holds {stored.name}, of {stored.tensor_type.name}; {_ADVICE}, with the "
                f"matrices of layers alone, in half precision"
            )
        sides.setdefault(found["tensor"], {})[found["side"]] = stored.data
    return _join_halves(file, sides, base, _ADVICE)


def _join_halves(
    path: Path, sides: Mapping[str, Mapping[str, Matrix]], base: GgufBase, advice: str
) -> dict[str, LoraPair]:
    if not sides:
        raise ConfigError(f"{path} holds no adapter; {advice}")
    pairs = {}
    for tensor, halves in sorted(sides.items()):
        if len(halves) != 2:
            raise ConfigError(f"{path} has only one half of what it adds to {tensor}; {advice}")
        pairs[tensor] = LoraPair(**halves)
        base.check(path, tensor, pairs[tensor])
    return pairs


def _shape(file: Path, reader: GGUFReader, pairs: Mapping[str, LoraPair]) -> LoraShape:
    alpha = value_of(reader, "adapter.lora.alpha")
    ranks = {pair.a.shape[0] for pair in pairs.values()}
    if not isinstance(alpha, float) or len(ranks) != 1:
        raise ConfigError(f"{file} has the ranks {sorted(ranks)} and alpha {alpha}; {_ADVICE}")
    modules = {_module(tensor).rpartition(".")[2] for tensor in pairs}
    return LoraShape(ranks.pop(), alpha, tuple(sorted(modules)))


def _module(tensor: str) -> str:
    """Return transformers' name of the tensor: `3.self_attn.q_proj`."""
    found = re.fullmatch(_TENSOR, tensor)
    assert found is not None, "its form was checked as it was read"
    return f"{found['layer']}.{_MODULES[found['matrix']]}"


HEADER_BYTES: Final = 65_536
UNSUPPORTED_OPTIONS: Final[Mapping[str, Any]] = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "alpha_pattern": {},
    "modules_to_save": None,
    "trainable_token_indices": None,
}
"""peft options that llama.cpp's adapters cannot hold, with the value that disables each."""

_KEY: Final = re.compile(
    r"base_model\.model\.model\.layers\.(?P<layer>\d+)\.(?P<module>[a-z_.]+)\.lora_(?P<side>[AB])"
    r"\.weight"
)


def export_adapter(adapter_dir: Path, output: Path, *, base: str | Path) -> Path:
    """Write the adapter as a GGUF file; `base` is its model's name or file.

    The file appears when it is complete; the same adapter gives the same bytes.
    """
    alpha = _alpha(read_config(adapter_dir))
    model = read_base(base)
    pairs = _read_peft_pairs(adapter_dir / WEIGHTS_FILE, model)
    draft = output.with_name(f"{output.name}.part")
    size = sum(pair.a.nbytes + pair.b.nbytes for pair in pairs.values())
    with explain_write_errors(output.parent, size + HEADER_BYTES):
        try:
            _write(draft, model.architecture, alpha, pairs)
            move_into_place(draft, output)
        finally:
            draft.unlink(missing_ok=True)
    return output


def _alpha(config: AdapterConfig) -> float:
    """Return alpha such that llama.cpp, which divides it by the rank, gets peft's scale."""
    for name, none in UNSUPPORTED_OPTIONS.items():
        if (value := config.raw.get(name, none)) and value != none:
            raise ConfigError(
                f"{config.path} has {name} = {value!r}, which an adapter of llama.cpp cannot hold; "
                f"train without it"
            )
    return config.scale(config.rank) * config.rank


def _read_peft_pairs(path: Path, base: GgufBase) -> dict[str, LoraPair]:
    sides: dict[str, dict[str, Matrix]] = {}
    for key, matrix in _read_matrices(path):
        found = _KEY.fullmatch(key)
        if found is None or found["module"] not in TENSORS:
            raise ConfigError(
                f"{path} adapts {key}; only these of a layer can be exported: "
                f"{', '.join(TENSORS)}. Train with these as target_modules"
            )
        tensor = f"blk.{int(found['layer'])}.{TENSORS[found['module']]}.weight"
        sides.setdefault(tensor, {})[found["side"].lower()] = matrix
    pairs = _join_halves(path, sides, base, "save the adapter again")
    return {tensor: base.permute(tensor, pair) for tensor, pair in pairs.items()}


def _read_matrices(path: Path) -> Iterator[tuple[str, Matrix]]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise missing_package(error) from error
    try:
        loaded = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; save the adapter again") from error
    for key, tensor in loaded.items():
        matrix = tensor.float().numpy()
        if not (np.abs(matrix) <= np.finfo(np.float16).max).all():
            raise ConfigError(
                f"{key} in {path} holds values that are no numbers or too large for half "
                f"precision; the training went wrong, export an earlier checkpoint"
            )
        yield key, matrix.astype(np.float16)


def _write(path: Path, architecture: str, alpha: float, pairs: Mapping[str, LoraPair]) -> None:
    from gguf import GGUFType, GGUFWriter, Keys

    writer = GGUFWriter(path, architecture)
    try:
        writer.add_type(GGUFType.ADAPTER)
        writer.add_string(Keys.Adapter.TYPE, "lora")
        writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
        for tensor, pair in pairs.items():
            writer.add_tensor(f"{tensor}.lora_a", pair.a)
            writer.add_tensor(f"{tensor}.lora_b", pair.b)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
