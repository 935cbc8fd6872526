"""Adapters for llama.cpp: that they compute there what they compute in transformers, and what
is refused."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from podium._util.files import sha256_file
from podium.core.errors import ConfigError, StoreError
from podium.workers.local.llama_server import ModelSettings
from podium.workers.local.sources import CONFIG_FILE, WEIGHTS_FILE
from support.llama_server import next_tokens, post, serving
from support.local_weights import MODEL, smollm2
from support.tiny_llama import read_gguf, tiny_llama, write_gguf

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")
gguf = pytest.importorskip("gguf")

from podium.train import gguf as export
from podium.train import gguf as gguf_base
from podium.train.gguf import export_adapter

pytestmark = pytest.mark.torch

__all__ = ["smollm2"]

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOKENS = ([3, 50, 77, 12, 40, 90, 5, 5, 61, 2, 33], [71, 72], list(range(20, 60)))


@dataclass(frozen=True)
class Adapted:
    """A model under random adapters, each called by its rank, and where peft saved them."""

    model: Any
    directory: Path
    ranks: tuple[int, ...]

    def saved(self, rank: int) -> Path:
        return self.directory / str(rank)

    def next_tokens(self, tokens: Sequence[int], rank: int | None) -> list[float]:
        """The log probability of every token after these."""
        with torch.no_grad():
            if rank is None:
                with self.model.disable_adapter():
                    logits = self.model(torch.tensor([tokens])).logits
            else:
                self.model.set_adapter(str(rank))
                logits = self.model(torch.tensor([tokens])).logits
        values: list[float] = logits[0, -1].log_softmax(-1).tolist()
        return values


def adapt(
    base: Any, directory: Path, ranks: tuple[int, ...], spread: float, **settings: Any
) -> Adapted:
    configs = {
        str(rank): peft.LoraConfig(
            **{"r": rank, "lora_alpha": 2 * rank, "target_modules": list(ALL), **settings}
        )
        for rank in ranks
    }
    first, *others = configs
    model = peft.get_peft_model(base, configs[first], adapter_name=first)
    for name in others:
        model.add_adapter(name, configs[name])
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            numbers = torch.randn(parameter.shape, generator=generator) * spread
            parameter.data = numbers.half().float()  # half precision is what is exported
    model.save_pretrained(str(directory), save_embedding_layers=False)
    return Adapted(model.eval(), directory, ranks)


def farthest(computed: Mapping[int, float], expected: Sequence[float]) -> float:
    return max(abs(value - expected[token]) for token, value in computed.items())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tiny_llama(), tmp_path_factory.mktemp("base") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapt(tiny_llama(), tmp_path_factory.mktemp("adapters"), (4, 8, 16), 0.12)


@pytest.mark.parametrize("rank", [4, 8, 16])
def test_an_exported_adapter_computes_in_llamacpp_what_it_computes_in_transformers(
    tiny: Adapted, base: Path, tmp_path: Path, rank: int
) -> None:
    output = export_adapter(tiny.saved(rank), tmp_path / "adapter.gguf", base=base)
    settings = ModelSettings(path=str(base), context=128, slots=1, threads=1)
    with serving(settings, [str(output)]) as server:
        for tokens in TOKENS:
            plain, expected = tiny.next_tokens(tokens, None), tiny.next_tokens(tokens, rank)
            everything = len(plain)
            assert farthest(next_tokens(server, tokens, None, everything), plain) < 0.03
            computed = next_tokens(server, tokens, 0, everything)
            assert farthest(computed, expected) < 0.03
            assert farthest(computed, plain) > 1


def test_an_adapter_of_a_qwen2_computes_in_llamacpp_what_it_computes_in_transformers(
    tmp_path: Path,
) -> None:
    base = write_gguf(tiny_llama("qwen2"), tmp_path / "tiny.gguf", "qwen2")
    adapted = adapt(tiny_llama("qwen2"), tmp_path, (8,), 0.12)
    output = export_adapter(adapted.saved(8), tmp_path / "adapter.gguf", base=base)
    settings = ModelSettings(path=str(base), context=128, slots=1, threads=1)
    with serving(settings, [str(output)]) as server:
        for tokens in TOKENS:
            plain, expected = adapted.next_tokens(tokens, None), adapted.next_tokens(tokens, 8)
            assert farthest(next_tokens(server, tokens, None, 98), plain) < 0.03
            computed = next_tokens(server, tokens, 0, 98)
            assert farthest(computed, expected) < 0.03
            assert farthest(computed, plain) > 1


def test_an_adapter_scaled_by_the_root_of_its_rank_keeps_its_strength(
    base: Path, tmp_path: Path
) -> None:
    rooted = adapt(tiny_llama(), tmp_path, (4,), 0.12, use_rslora=True, lora_alpha=3)
    output = export_adapter(rooted.saved(4), tmp_path / "adapter.gguf", base=base)
    settings = ModelSettings(path=str(base), context=128, slots=1, threads=1)
    with serving(settings, [str(output)]) as server:
        computed = next_tokens(server, TOKENS[0], 0, 98)
    assert farthest(computed, rooted.next_tokens(TOKENS[0], 4)) < 0.03


def test_the_file_says_what_it_is_and_is_the_same_every_time(
    tiny: Adapted, base: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.gguf", tmp_path / "new directory" / "other.gguf"
    assert export_adapter(tiny.saved(4), one, base=base) == one
    export_adapter(tiny.saved(4), other, base=f"file:{base}")
    assert sha256_file(one) == sha256_file(other)
    reader = gguf.GGUFReader(one)
    said = {name: field.contents() for name, field in reader.fields.items()}
    assert said["general.architecture"] == "llama"
    assert said["general.type"] == "adapter"
    assert said["adapter.type"] == "lora"
    assert said["adapter.lora.alpha"] == 8.0
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
    assert len(shapes) == 2 * 2 * len(ALL)
    assert shapes["blk.1.ffn_down.weight.lora_a"] == (96, 4)
    assert shapes["blk.1.ffn_down.weight.lora_b"] == (4, 64)
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {"F16"}


# ---- what is refused

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def copied(tiny: Adapted, tmp_path: Path) -> Path:
    """A copy of an adapter, to be spoilt."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        (copy / name).write_bytes((tiny.saved(4) / name).read_bytes())
    return copy


def refused(directory: Path, base: str | Path, reason: str) -> None:
    output = directory / "out" / "adapter.gguf"
    with pytest.raises(ConfigError, match=reason):
        export_adapter(directory, output, base=base)
    assert not output.parent.exists()


def rewrite(path: Path, change: Change) -> None:
    matrices = safetensors.load_file(path)
    change(matrices)
    safetensors.save_file(matrices, path)


def test_a_whole_model_is_no_adapter(base: Path, tmp_path: Path) -> None:
    refused(tmp_path, base, "holds no adapter; name the directory in which")
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path, base, "holds a whole model; name the directory of an adapter")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read: .*; save the adapter again"),
        ("[]", "has peft_type None"),
        ('{"peft_type": "LORA", "r": 4}', "has r = 4 and lora_alpha = None"),
        ('{"peft_type": "IA3", "r": 4, "lora_alpha": 8}', "has peft_type IA3"),
    ],
)
def test_a_config_that_is_not_loras_is_refused(
    copied: Path, base: Path, text: str, reason: str
) -> None:
    (copied / CONFIG_FILE).write_text(text)
    refused(copied, base, reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [("use_dora", True), ("bias", "all"), ("modules_to_save", ["lm_head"])],
)
def test_options_unsupported_by_llamacpp_are_refused_by_name(
    copied: Path, base: Path, name: str, value: object
) -> None:
    config = json.loads((copied / CONFIG_FILE).read_text()) | {name: value}
    (copied / CONFIG_FILE).write_text(json.dumps(config))
    refused(copied, base, f"has {name} = .* train without it")


FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
SECOND = FIRST.replace("lora_A", "lora_B")


def further(name: str) -> str:
    return name.replace("layers.0", "layers.7")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict.clear, "holds no adapter"),
        (lambda m: m.pop(FIRST), r"only one half of what it adds to blk\.0\.attn_q"),
        (lambda m: m.update({FIRST: m[FIRST] * float("nan")}), "no numbers or too large"),
        (lambda m: m.update({FIRST: m[FIRST] + 1e5}), "no numbers or too large"),
        (
            lambda m: m.update({"lm_head.lora_A.weight": m[FIRST].clone()}),
            "adapts lm_head.*target_modules",
        ),
        (
            lambda m: m.update({further(name): m[name].clone() for name in (FIRST, SECOND)}),
            r"adapts blk\.7\.attn_q\.weight, which the base model does not have",
        ),
        (
            lambda m: m.update({FIRST: m[FIRST][:, :10].contiguous()}),
            "a matrix of 10 by 64, and in the base model it has 64 by 64",
        ),
    ],
)
def test_matrices_that_do_not_fit_the_base_are_refused(
    copied: Path, base: Path, change: Change, reason: str
) -> None:
    rewrite(copied / WEIGHTS_FILE, change)
    refused(copied, base, reason)


def test_a_file_of_matrices_that_is_cut_off_or_missing_is_refused(copied: Path, base: Path) -> None:
    path = copied / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:1000])
    refused(copied, base, f"{WEIGHTS_FILE} cannot be read")
    path.unlink()
    refused(copied, base, f"{WEIGHTS_FILE} cannot be read")


def test_a_base_that_is_not_here_not_gguf_or_of_another_family_is_refused(
    copied: Path, tmp_path: Path
) -> None:
    refused(copied, tmp_path / "none.gguf", "the base model is not at .*none.gguf")
    refused(copied, "smollm3", "local model not found: 'smollm3'")
    words = tmp_path / "words.gguf"
    words.write_text("these are words, and no model")
    refused(copied, words, "is no GGUF file")
    other = write_gguf(tiny_llama(), tmp_path / "other.gguf", architecture="gemma")
    refused(copied, other, "has the architecture 'gemma'; .*llama and qwen2, use")


def test_a_disk_that_fills_leaves_the_old_adapter_and_no_half_of_a_new_one(
    tiny: Adapted, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "adapter.gguf"
    output.write_text("the old one")

    def write(path: Path, *rest: object) -> None:
        path.write_text("half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "_write", write)
    with pytest.raises(StoreError, match="no room in"):
        export_adapter(tiny.saved(4), output, base=base)
    assert output.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [output]


# ---- the real model

PROMPTS = (
    "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nAdd 17 and 25.<|im_end|>\n<|im_start|>assistant\n",
    '<|im_start|>user\n<subtask step="0">\nthe plural of mouse\n</subtask>\n<reply step="0">\n'
    "mice\n</reply>\n\ncount its letters<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the",
)


@pytest.mark.weights
def test_with_the_real_model_an_adapter_does_the_same_in_llamacpp_and_in_transformers(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = gguf.GGUFReader(smollm2)
    monkeypatch.setattr(gguf_base, "open_gguf", lambda *_: reader)  # it takes seconds to read
    adapted = adapt(read_gguf(reader), tmp_path, (8,), 0.05)
    output = export_adapter(adapted.saved(8), tmp_path / "adapter.gguf", base=MODEL)
    off, effect = [], []
    with serving(ModelSettings(path=str(smollm2), threads=1, slots=1), [str(output)]) as server:
        for prompt in PROMPTS:
            tokens = post(server, "/tokenize", {"content": prompt, "parse_special": True})["tokens"]
            plain, expected = adapted.next_tokens(tokens, None), adapted.next_tokens(tokens, 8)
            for token, value in next_tokens(server, tokens, 0, 20).items():
                off.append(abs(value - expected[token]))
                effect.append(abs(value - plain[token]))
    # The base is quantised, and llama.cpp rounds what goes into its matrices: that alone is off
    # by a tenth or so; rows in the wrong order are off by far more.
    assert sum(effect) / len(effect) > 0.7
    assert sum(off) / len(off) < 0.2
