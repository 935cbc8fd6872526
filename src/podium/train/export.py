"""From a trained adapter to the file that llama.cpp loads: LoRA matrices as GGUF.

Reads what peft saves (`podium.local.adapter_files`) and writes what `podium.providers.llamacpp`
takes as a worker's adapter, for base models of the Llama and Qwen2 families. Whole models are not
converted here.

Of a Llama, llama.cpp keeps the rows of the query and key matrices in another order than
transformers does: the two numbers that its rotary embedding turns together lie beside each other,
not half a head apart. What an adapter adds to these rows (`lora_B`) is put into the same order, or
it would be added to the wrong ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.errors import ConfigError, installing
from podium.files import place, writing
from podium.local import weights
from podium.local.adapter_files import WEIGHTS_FILE, AdapterConfig, read_config

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

HEADER_BYTES: Final = 65_536
"""Room for what stands before the matrices in the file."""

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

INEXPRESSIBLE: Final[Mapping[str, Any]] = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "alpha_pattern": {},
    "modules_to_save": None,
    "trainable_token_indices": None,
}
"""What peft can train and llama.cpp's adapters cannot hold, and the value that says there is
none of it."""

_KEY: Final = re.compile(
    r"base_model\.model\.model\.layers\.(?P<layer>\d+)\.(?P<module>[a-z_.]+)\.lora_(?P<side>[AB])"
    r"\.weight"
)


@dataclass(frozen=True, slots=True)
class Base:
    """What an adapter must fit: a model's family, the heads of its attention, and each matrix's
    number of inputs and outputs."""

    architecture: str
    heads: int
    key_heads: int
    sizes: Mapping[str, tuple[int, int]]


class Pair(NamedTuple):
    """What an adapter adds to one matrix: `b @ a`, times alpha over the rank."""

    a: Matrix
    b: Matrix


def export_adapter(adapter_dir: Path, output: Path, *, base: str | Path) -> Path:
    """Write the adapter in `adapter_dir` as the GGUF file `output`, and say where it is.

    `base` is the model that it is for: weights by name (`smollm2-135m-instruct`), or the path
    of a GGUF file. The output appears when it is whole; the same adapter gives the same bytes.
    """
    alpha = _alpha(read_config(adapter_dir))
    model = _read_base(base)
    pairs = _read_pairs(adapter_dir / WEIGHTS_FILE, model)
    draft = output.with_name(f"{output.name}.part")
    size = sum(pair.a.nbytes + pair.b.nbytes for pair in pairs.values())
    with writing(output.parent, size + HEADER_BYTES):
        try:
            _write(draft, model.architecture, alpha, pairs)
            place(draft, output)
        finally:
            draft.unlink(missing_ok=True)
    return output


# ---- the base model


def _read_base(base: str | Path) -> Base:
    model = weights.find(str(base))
    if not model.present:
        raise ConfigError(f"the base model is not at {model.path}; {model.remedy}")
    reader = _reader(model.path)
    architecture = _value(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{model.path} has the architecture {architecture!r}; adapters can be exported for "
            f"{' and '.join(ARCHITECTURES)}, use llama.cpp's convert_lora_to_gguf.py for this one"
        )
    heads = int(_value(reader, f"{architecture}.attention.head_count"))
    return Base(
        architecture=architecture,
        heads=heads,
        key_heads=int(_value(reader, f"{architecture}.attention.head_count_kv") or heads),
        sizes={
            tensor.name: (int(tensor.shape[0]), int(tensor.shape[1]))
            for tensor in reader.tensors
            if len(tensor.shape) == 2
        },
    )


def _reader(path: Path) -> GGUFReader:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise _missing(error) from error
    try:
        return GGUFReader(path)
    except (ValueError, IndexError) as error:  # IndexError: it is empty or cut off
        raise ConfigError(f"{path} is no GGUF file: {error}; name the base model's own") from error


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


# ---- the adapter


def _alpha(config: AdapterConfig) -> float:
    """Alpha as llama.cpp wants it, which always divides it by the rank."""
    for name, none in INEXPRESSIBLE.items():
        if (value := config.said.get(name, none)) and value != none:
            raise ConfigError(
                f"{config.path} has {name} = {value!r}, which an adapter of llama.cpp cannot hold; "
                f"train without it"
            )
    return config.scale(config.rank) * config.rank


def _read_pairs(path: Path, base: Base) -> dict[str, Pair]:
    """What is added to each tensor of the base, by the tensor's name, in order."""
    sides: dict[str, dict[str, Matrix]] = {}
    for key, matrix in _read_matrices(path):
        found = _KEY.fullmatch(key)
        if found is None or found["module"] not in TENSORS:
            raise ConfigError(
                f"{path} adapts {key}; only these of a layer can be exported: "
                f"{', '.join(TENSORS)}. Train with these as target_modules"
            )
        tensor = f"blk.{int(found['layer'])}.{TENSORS[found['module']]}.weight"
        sides.setdefault(tensor, {})[found["side"]] = matrix
    if not sides:
        raise ConfigError(f"{path} is empty; save the adapter again")
    return {tensor: _pair(path, tensor, sides[tensor], base) for tensor in sorted(sides)}


def _read_matrices(path: Path) -> Iterator[tuple[str, Matrix]]:
    try:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise _missing(error) from error
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


def _pair(path: Path, tensor: str, sides: Mapping[str, Matrix], base: Base) -> Pair:
    if tensor not in base.sizes:
        raise ConfigError(f"{path} adapts {tensor}, which the base model does not have")
    if len(sides) != 2:
        raise ConfigError(f"{path} has only one half of what it adds to {tensor}; save it again")
    pair = Pair(sides["A"], sides["B"])
    came = (pair.a.shape[1], pair.b.shape[0])
    if came != base.sizes[tensor] or pair.a.shape[0] != pair.b.shape[1]:
        raise ConfigError(
            f"{path} adapts {tensor} as a matrix of {came[0]} by {came[1]}, and in the base model "
            f"it has {base.sizes[tensor][0]} by {base.sizes[tensor][1]}; name the model that the "
            f"adapter was trained on"
        )
    if base.architecture != TURNED:
        return pair
    if tensor.endswith(".attn_q.weight"):
        return Pair(pair.a, _in_rotary_order(pair.b, base.heads))
    if tensor.endswith(".attn_k.weight"):
        return Pair(pair.a, _in_rotary_order(pair.b, base.key_heads))
    return pair


def _in_rotary_order(matrix: Matrix, heads: int) -> Matrix:
    """The rows of each head with its two halves interleaved, as llama.cpp turns them."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


# ---- the file


def _write(path: Path, architecture: str, alpha: float, pairs: Mapping[str, Pair]) -> None:
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


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"exporting an adapter needs the package {error.name}; {installing('train')}"
    )
