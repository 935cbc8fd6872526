"""Adapters over one model: that they compute what peft computes, row by row, and how they are
kept."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.workers.local.sources import CONFIG_FILE, WEIGHTS_FILE
from support.tiny_model import model as tiny
from support.tiny_model import one_thread

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

from podium.workers.local.lora import EQUAL_PARTS, EVERY_LINEAR_LAYER, AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

ATTENTION = ("k_proj", "q_proj")
PROMPTS = [[5, 80, 33, 200, 11, 9], [7, 7, 120, 64, 300, 2], [42, 1, 3, 17, 250, 99]]


def save_with_peft(directory: Path, seed: int, **settings: Any) -> Path:
    """An adapter of random numbers, as peft saves it."""
    config = {"r": 4, "lora_alpha": 8, "target_modules": list(EVERY_LINEAR_LAYER), **settings}
    adapted = peft.get_peft_model(tiny(), peft.LoraConfig(**config))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if ".lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    adapted.save_pretrained(str(directory), save_embedding_layers=False)
    return directory


def logits_of(model: Any, prompts: list[list[int]] = PROMPTS) -> Any:
    with torch.no_grad():
        return model(torch.tensor(prompts)).logits


def by_peft(directory: Path, prompts: list[list[int]] = PROMPTS) -> Any:
    return logits_of(peft.PeftModel.from_pretrained(tiny(), str(directory)).eval(), prompts)


def stacked(**directories: Path) -> tuple[Any, AdapterStack]:
    model = tiny()
    stack = AdapterStack(model, targets=EVERY_LINEAR_LAYER)
    for name, directory in directories.items():
        stack.add(name, directory)
    return model, stack


def assert_close(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"r": 3, "lora_alpha": 7},
        {"use_rslora": True, "lora_alpha": 3},
        {"target_modules": list(ATTENTION)},
        {"rank_pattern": {"q_proj": 2, "down_proj": 7}},
    ],
    ids=["usual", "odd scale", "scaled by the root", "attention alone", "ranks of their own"],
)
def test_an_adapter_computes_what_peft_computes(tmp_path: Path, settings: dict[str, Any]) -> None:
    directory = save_with_peft(tmp_path, 1, **settings)
    model, stack = stacked(one=directory)
    with stack.using(torch.tensor([1, 1, 1])):
        computed = logits_of(model)
    assert_close(computed, by_peft(directory))
    assert (computed - logits_of(tiny())).abs().max() > 0.5


def test_each_row_of_a_batch_has_its_own_adapter_or_none(tmp_path: Path) -> None:
    small = save_with_peft(tmp_path / "small", 1, r=2)
    large = save_with_peft(tmp_path / "large", 2, r=8)
    model, stack = stacked(small=small, large=large)
    rows = torch.tensor([stack.index(name) for name in ("large", None, "small")])
    with stack.using(rows):
        mixed = logits_of(model)
    assert_close(mixed[:1], by_peft(large, PROMPTS[:1]))
    assert_close(mixed[1:2], logits_of(tiny(), PROMPTS[1:2]))
    assert_close(mixed[2:], by_peft(small, PROMPTS[2:]))


def test_a_merged_read_only_stack_gives_the_same_results(
    tmp_path: Path,
) -> None:
    directory = save_with_peft(tmp_path, 1)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny().to(torch.bfloat16)
        stack = AdapterStack(model, targets=EVERY_LINEAR_LAYER, dtype=dtype)
        stack.add("one", directory)
        assert {matrix.dtype for matrix in stack.parameters()} == {dtype}
        with stack.using(torch.tensor([1, 0, 1])):
            found.append(logits_of(model))
    assert torch.equal(*found)


def test_outside_of_using_the_model_is_as_it_was(tmp_path: Path) -> None:
    model, stack = stacked(one=save_with_peft(tmp_path, 1))
    with pytest.raises(RuntimeError, match="interrupted"), stack.using(torch.tensor([1, 1, 1])):
        raise RuntimeError("interrupted")
    assert torch.equal(logits_of(model), logits_of(tiny()))


def test_equal_parts_are_the_rows_in_the_order_of_the_adapters(tmp_path: Path) -> None:
    directories = {
        str(seed): save_with_peft(tmp_path / str(seed), seed, r=1 + seed) for seed in range(3)
    }
    model, stack = stacked(**directories)
    twice = [prompt for prompt in PROMPTS for _ in range(2)]
    with stack.using(EQUAL_PARTS):
        in_parts = logits_of(model, twice)
    with stack.using(torch.tensor([1, 1, 2, 2, 3, 3])):
        assert_close(in_parts, logits_of(model, twice))


def test_fresh_adapters_change_nothing_until_they_are_trained_and_then_only_themselves() -> None:
    torch.manual_seed(1)
    model = tiny()
    stack = AdapterStack.fresh(model, ("a", "b"), LoraShape(4))
    tokens = torch.tensor(PROMPTS[:2])
    with stack.using(EQUAL_PARTS):
        before = model(tokens).logits
        assert torch.equal(before, logits_of(tiny(), PROMPTS[:2]))
        before[0].square().mean().backward()
    for layer in stack.layers.values():
        assert layer.up.grad is not None
        assert layer.up.grad[1].abs().max() > 0
        assert layer.up.grad[2].abs().max() == 0
        assert layer.down[1].abs().max() > 0


# ---- on disk


def trained(names: tuple[str, ...], shape: LoraShape) -> tuple[Any, AdapterStack]:
    torch.manual_seed(2)
    model = tiny()
    stack = AdapterStack.fresh(model, names, shape)
    with torch.no_grad():
        for layer in stack.layers.values():
            layer.up[1:].normal_(std=0.2)
    return model, stack


@pytest.mark.parametrize("targets", [EVERY_LINEAR_LAYER, ATTENTION])
def test_saved_adapters_load_in_peft_and_in_a_stack(
    tmp_path: Path, targets: tuple[str, ...]
) -> None:
    shape = LoraShape(4, 6.0, targets)
    model, stack = trained(("a", "b"), shape)
    with stack.using(torch.tensor([2, 2, 2])):
        taught = logits_of(model)
    directory = tmp_path / "new" / "adapter"
    stack.save("b", directory, shape, "the base")
    assert sorted(path.name for path in directory.iterdir()) == [CONFIG_FILE, WEIGHTS_FILE]
    read, again = stacked(b=directory)
    with again.using(torch.tensor([1, 1, 1])):
        assert_close(logits_of(read), by_peft(directory))
    torch.testing.assert_close(logits_of(read), logits_of(tiny()))
    torch.testing.assert_close(by_peft(directory), taught, rtol=0.02, atol=0.02)  # halves


def test_an_adapter_is_saved_in_its_own_shape_although_it_was_stacked_with_larger_ones(
    tmp_path: Path,
) -> None:
    small = save_with_peft(tmp_path / "small", 1, r=2, target_modules=list(ATTENTION))
    large = save_with_peft(tmp_path / "large", 2, r=8)
    _, stack = stacked(small=small, large=large)
    stack.save("small", tmp_path / "again", LoraShape(2, 8.0, ATTENTION), "the base")
    first, second = (safetensors.load_file(d / WEIGHTS_FILE) for d in (small, tmp_path / "again"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert_close(second[name].float(), tensor.half().float())


def test_a_disk_that_fills_leaves_the_old_adapter_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = LoraShape(4)
    directory = tmp_path / "adapter"
    _, stack = trained(("a", "b"), shape)
    stack.save("a", directory, shape, "the base")
    before = {path: path.read_bytes() for path in tmp_path.glob("**/*") if path.is_file()}
    written = Path.write_bytes

    def write(path: Path, data: bytes) -> int:
        written(path, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(StoreError, match="no room in"):
        stack.save("b", directory, shape, "the base")
    after = {path: path.read_bytes() for path in tmp_path.glob("**/*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("renames", [0, 1])
def test_a_process_that_dies_while_saving_leaves_the_old_adapter_or_none(
    tmp_path: Path, renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "adapter"
    _, stack = trained(("a", "b"), LoraShape(4))
    stack.save("a", directory, LoraShape(4), "the base")
    before = by_peft(directory)
    left = renames
    rename = Path.rename

    class Died(BaseException):
        """What no code of ours catches, as a signal that kills."""

    def dies(path: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise Died
        left -= 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", dies)
    with pytest.raises(Died):
        stack.save("b", directory, LoraShape(4, 99.0), "the base")
    monkeypatch.undo()
    if renames:
        with pytest.raises(ConfigError, match="holds no adapter; name the directory"):
            stacked(one=directory)
    else:
        assert torch.equal(by_peft(directory), before)
    stack.save("b", directory, LoraShape(4), "the base")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    assert not torch.equal(by_peft(directory), before)


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    _, stack = trained(("a",), LoraShape(4))
    with pytest.raises(StoreError, match="cannot write to"):
        stack.save("a", tmp_path / "file" / "adapter", LoraShape(4), "the base")


# ---- what is refused

Spoil = Callable[[Path], object]


def rewrite(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(directory: Path) -> None:
        tensors = safetensors.load_file(directory / WEIGHTS_FILE)
        change(tensors)
        safetensors.save_file(tensors, directory / WEIGHTS_FILE)

    return spoil


def configure(**changes: Any) -> Spoil:
    def spoil(directory: Path) -> None:
        path = directory / CONFIG_FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda d: (d / CONFIG_FILE).unlink(),
            "holds no adapter; name the directory",
        ),
        (lambda d: (d / WEIGHTS_FILE).unlink(), "is no adapter: .*safetensors is missing"),
        (lambda d: (d / CONFIG_FILE).write_text("{"), "adapter_config.json cannot be read"),
        (lambda d: (d / CONFIG_FILE).write_text("[]"), "has peft_type None"),
        (lambda d: (d / CONFIG_FILE).write_bytes(b"\xff"), "adapter_config.json cannot be read"),
        (configure(peft_type="IA3"), "has peft_type IA3"),
        (configure(lora_alpha="8"), "has r = 4 and lora_alpha = '8'"),
        (configure(alpha_pattern={"q_proj": 3}), "has an alpha_pattern"),
        (lambda d: (d / WEIGHTS_FILE).write_bytes(b"cut"), "safetensors cannot be read"),
        (rewrite(dict.clear), "is empty"),
        (rewrite(lambda t: t.pop(f"{LAYER}.lora_B.weight")), "holds .*q_proj.lora_A.weight"),
        (
            rewrite(lambda t: t.update({f"{LAYER}.lora_magnitude_vector": torch.ones(3)})),
            "holds .*lora_magnitude_vector; .*DoRA",
        ),
        (
            rewrite(
                lambda t: t.update(
                    {
                        name.replace("layers.0", "layers.9"): tensor.clone()
                        for name, tensor in list(t.items())
                    }
                )
            ),
            "changes model.layers.9.* trained over another base",
        ),
        (
            rewrite(
                lambda t: t.update(
                    {f"{LAYER}.lora_A.weight": t[f"{LAYER}.lora_A.weight"][:, :9].contiguous()}
                )
            ),
            "q_proj it has 9 inputs and 48 outputs, and this model has 48 and 48",
        ),
        (
            rewrite(lambda t: t[f"{LAYER}.lora_B.weight"].fill_(torch.nan)),
            "has non-finite values for .*q_proj",
        ),
    ],
)
def test_foreign_adapters_are_refused_and_change_nothing(
    tmp_path: Path, spoil: Spoil, reason: str
) -> None:
    good = save_with_peft(tmp_path / "good", 1)
    bad = save_with_peft(tmp_path / "bad", 2)
    spoil(bad)
    model, stack = stacked(good=good)
    with pytest.raises(ConfigError, match=reason):
        stack.add("bad", bad)
    assert stack.names == ("good",)
    with pytest.raises(ConfigError, match="adapter not found: 'bad'"):
        stack.index("bad")
    with stack.using(torch.tensor([1, 1, 1])):
        assert_close(logits_of(model), by_peft(good))


def test_a_model_without_such_layers_takes_no_adapters() -> None:
    with pytest.raises(ConfigError, match="no linear layer called query"):
        AdapterStack(tiny(), targets=("query",))
