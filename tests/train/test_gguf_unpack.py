"""Adapters out of GGUF files: that they are what was exported, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from podium._util.files import sha256_file
from podium.cli import main
from podium.core.errors import ConfigError
from podium.workers.local.sources import CONFIG_FILE, WEIGHTS_FILE, embedded_adapters
from support.local_weights import smollm2
from support.tiny_llama import HIDDEN, LAYERS, WIDTH, tiny_llama, write_gguf

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")
gguf = pytest.importorskip("gguf")

from podium.train import gguf as export
from podium.train import gguf as gguf_base
from podium.train import gguf as unpack_file
from podium.train.gguf import export_adapter, import_adapter
from podium.workers.local.lora import PREFIX, LoraShape, write_adapter

pytestmark = pytest.mark.torch

__all__ = ["smollm2"]

SIZES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH, WIDTH // 2),
    "mlp.down_proj": (HIDDEN, WIDTH),
}


def adapter(directory: Path, rank: int = 4, alpha: float = 12.0) -> Path:
    """A random adapter as training leaves it."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for layer in range(LAYERS):
        for module, (inputs, outputs) in SIZES.items():
            for side, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                name = f"{PREFIX}model.layers.{layer}.{module}.lora_{side}.weight"
                tensors[name] = torch.randn(shape, generator=generator).half()
    targets = tuple(sorted(module.rpartition(".")[2] for module in SIZES))
    write_adapter(directory, tensors, LoraShape(rank, alpha, targets), "tiny")
    return directory


@pytest.fixture(params=["llama", "qwen2"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_gguf(tiny_llama(request.param), tmp_path / "tiny.gguf", request.param)


def test_exported_adapters_are_imported_bit_by_bit(base: Path, tmp_path: Path) -> None:
    trained = adapter(tmp_path / "trained")
    exported = export_adapter(trained, tmp_path / "adapter.gguf", base=base)
    unpacked = import_adapter(exported, tmp_path / "unpacked", base=str(base))
    before, after = (safetensors.load_file(one / WEIGHTS_FILE) for one in (trained, unpacked))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    document = json.loads((unpacked / CONFIG_FILE).read_text())
    assert document == json.loads((trained / CONFIG_FILE).read_text()) | {
        "base_model_name_or_path": str(base)
    }


@pytest.mark.weights
def test_every_shipped_adapter_is_unpacked_and_exported_again_as_the_same_file(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_time = cache(gguf_base.read_base)  # it takes seconds to read
    for module in (export, unpack_file):
        monkeypatch.setattr(module, "read_base", first_time)
    for shipped in embedded_adapters():
        output = tmp_path / shipped.path.stem
        assert main(["lab", "import-gguf", shipped.name, "--output", str(output)]) == 0
        exported = export_adapter(output, tmp_path / "again.gguf", base=shipped.base)
        assert sha256_file(exported) == shipped.sha256


def test_a_file_of_ones_own_needs_its_base_named(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = export_adapter(adapter(tmp_path / "trained"), tmp_path / "a.gguf", base=base)
    command = ["lab", "import-gguf", str(exported), "--output", str(tmp_path / "out")]
    assert main(command) == 2
    assert "a.gguf does not name its base model; name it with --base" in (capsys.readouterr().err)
    assert main([*command, "--base", str(base)]) == 0
    assert (tmp_path / "out" / WEIGHTS_FILE).is_file()


def written(path: Path, tensors: Mapping[str, Any], alpha: float | None = 8.0) -> Path:
    """A GGUF file with these in it."""
    writer = gguf.GGUFWriter(path, "llama")
    if alpha is not None:
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def half(*shape: int) -> Any:
    return torch.ones(shape).half()


A, B = "blk.0.ffn_down.weight.lora_a", "blk.0.ffn_down.weight.lora_b"
WHOLE = {A: half(4, HIDDEN), B: half(WIDTH, 4)}
QUERIES = {
    "blk.0.attn_q.weight.lora_a": half(2, WIDTH),
    "blk.0.attn_q.weight.lora_b": half(WIDTH, 2),
}


@pytest.mark.parametrize(
    ("tensors", "alpha", "reason"),
    [
        ({"token_embd.weight": half(8, 8)}, 8.0, "holds token_embd.weight, of F16"),
        ({**WHOLE, A: torch.ones(4, HIDDEN)}, 8.0, f"holds {A}, of F32"),
        ({**WHOLE, A: half(HIDDEN)}, 8.0, f"holds {A}, of F16.*matrices of layers alone"),
        ({A.replace("ffn_down", "ffn_gate_inp"): half(4, 8)}, 8.0, "ffn_gate_inp.*of layers alone"),
        ({A: half(4, HIDDEN)}, 8.0, "only one half of what it adds"),
        ({**WHOLE, B: half(WIDTH // 2, 4)}, 8.0, "a matrix of 96 by 32, and in the base model"),
        ({**WHOLE, B: half(WIDTH, 2)}, 8.0, "by halves of the ranks 4 and 2, .*; save the adapter"),
        ({name.replace("0", "9"): one for name, one in WHOLE.items()}, 8.0, "have; name the model"),
        ({**WHOLE, **QUERIES}, 8.0, r"has the ranks \[2, 4\]"),
        (WHOLE, None, "alpha None"),
    ],
)
def test_adapters_of_another_base_are_refused(
    tensors: Mapping[str, Any], alpha: float | None, reason: str, tmp_path: Path
) -> None:
    base = write_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    file = written(tmp_path / "adapter.gguf", tensors, alpha)
    with pytest.raises(ConfigError, match=reason):
        import_adapter(file, tmp_path / "out", base=str(base))
    assert not (tmp_path / "out").exists()


def test_existing_files_are_never_replaced(base: Path, tmp_path: Path) -> None:
    trained = adapter(tmp_path / "trained")
    exported = export_adapter(trained, tmp_path / "adapter.gguf", base=base)
    before = exported.read_bytes()
    for there in (trained, exported):
        with pytest.raises(ConfigError, match=f"{there.name} is there already; name a new dir"):
            import_adapter(exported, there, base=str(base))
    assert (trained / CONFIG_FILE).is_file()
    assert exported.read_bytes() == before
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (import_adapter(exported, empty, base=str(base)) / WEIGHTS_FILE).is_file()


def test_an_adapter_is_no_base(base: Path, tmp_path: Path) -> None:
    exported = export_adapter(adapter(tmp_path / "trained"), tmp_path / "a.gguf", base=base)
    with pytest.raises(ConfigError, match="a.gguf does not say how many heads .* name the model"):
        import_adapter(exported, tmp_path / "out", base=str(exported))


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    base = write_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    file = tmp_path / "words.gguf"
    file.write_text("these are words, and no adapter")
    with pytest.raises(ConfigError, match="is no GGUF file: .*; name an adapter in GGUF"):
        import_adapter(file, tmp_path / "out", base=str(base))
