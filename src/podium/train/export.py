"""From a trained adapter to the file that llama.cpp loads: LoRA matrices as GGUF.

Reads what peft saves (`podium.local.adapter_files`) and writes what `podium.providers.llamacpp`
takes as a worker's adapter, for base models of the Llama and Qwen2 families. Whole models are not
converted here. The other way is `unpack`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podium.errors import ConfigError
from podium.files import place, writing
from podium.local.adapter_files import WEIGHTS_FILE, AdapterConfig, read_config
from podium.train.gguf_base import TENSORS, Base, Pair, missing, read_base

if TYPE_CHECKING:
    from podium.train.gguf_base import Matrix

HEADER_BYTES: Final = 65_536
"""Room for what stands before the matrices in the file."""

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


def export_adapter(adapter_dir: Path, output: Path, *, base: str | Path) -> Path:
    """Write the adapter in `adapter_dir` as the GGUF file `output`, and say where it is.

    `base` is the model that it is for: weights by name (`smollm2-135m-instruct`), or the path
    of a GGUF file. The output appears when it is whole; the same adapter gives the same bytes.
    """
    alpha = _alpha(read_config(adapter_dir))
    model = read_base(base)
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
        raise missing(error) from error
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
    if len(sides) != 2:
        raise ConfigError(f"{path} has only one half of what it adds to {tensor}; save it again")
    pair = Pair(sides["A"], sides["B"])
    base.check(path, tensor, pair)
    return base.turned(tensor, pair)


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
