"""Batches of fixed size: the same completions as of batches that grow.

A graphics card records the step and repeats it, which is tested where there is one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.tiny_model import Architecture, one_thread
from support.tiny_model import model as tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.workers.local import captured
from podium.workers.local.captured import (
    GROUPED_ATTENTION,
    SIZE_MULTIPLE,
    BatchSize,
    CapturedSteps,
    bytes_per_token,
)
from podium.workers.local.decoding import Completion, Decoder, Sampling
from podium.workers.local.lora import EVERY_LINEAR_LAYER, AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

PROMPTS = [[5, 80, 33, 200, 11, 9, 64], [7, 7], [42, 1, 3, 17, 250], [99]]
LONG = [[where * 7 % 380 for where in range(SIZE_MULTIPLE + 5)], [1, 2, 3]]


def grouped(model: Any) -> Any:
    model.config._attn_implementation = GROUPED_ATTENTION
    return model


def decoder(model: Any, **settings: Any) -> Decoder:
    usual: dict[str, Any] = {"end_tokens": (), "padding": 0}
    return Decoder(model, **(usual | settings))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("attention", ["sdpa", GROUPED_ATTENTION])
@pytest.mark.parametrize("prompts", [PROMPTS, LONG], ids=["short", "long"])
def test_a_fixed_batch_completes_as_a_growing_one(
    architecture: Architecture, attention: str, prompts: list[list[int]]
) -> None:
    model = tiny(architecture)
    model.config._attn_implementation = attention
    sampling = [Sampling(1 + 5 * where) for where in range(len(prompts))]
    growing = decoder(tiny(architecture), end_tokens=(100,)).complete(prompts, sampling, copies=2)
    fixed = decoder(model, end_tokens=(100,)).complete(prompts, sampling, copies=2, captured=True)
    assert fixed == growing


def test_a_batch_that_comes_again_knows_nothing_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    make = captured.FixedBatchCache.__init__

    def counted(memory: Any, *arguments: Any) -> None:
        made.append(arguments[2:])
        make(memory, *arguments)

    monkeypatch.setattr(captured.FixedBatchCache, "__init__", counted)
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    sampling = [Sampling(6)] * 4
    for prompts in (PROMPTS, [[9] * 12, [8], [7, 6], [5]], PROMPTS):
        assert fixed.complete(prompts, sampling, captured=True) == growing.complete(
            prompts, sampling
        )
    assert made == [(BatchSize(4, 2 * SIZE_MULTIPLE, 0), None)]


def test_a_step_that_is_somewhat_too_large_is_taken_for_a_smaller_batch() -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    sampling = [Sampling(6)] * 2
    for prompts in (LONG, PROMPTS[:2]):
        found = fixed.complete(prompts, sampling, captured=True)
        assert found == growing.complete(prompts, sampling)
    assert list(fixed._captured._memories) == [BatchSize(4, 3 * SIZE_MULTIPLE, 0)]
    assert fixed.complete(PROMPTS[:1], sampling[:1], captured=True) == growing.complete(
        PROMPTS[:1], sampling[:1]
    )
    assert len(fixed._captured._memories) == 2  # a fourth of the rows is another size


def test_no_more_sizes_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    room = 6 * 2 * SIZE_MULTIPLE * bytes_per_token(fixed.model)
    monkeypatch.setattr(captured, "MAX_BYTES", room)
    for rows, remembered in ((4, [4]), (1, [4, 1]), (2, [1, 4]), (1, [4, 1]), (3, [1, 4])):
        sampling = [Sampling(3)] * rows
        found = fixed.complete(PROMPTS[:rows], sampling, captured=True)
        assert found == growing.complete(PROMPTS[:rows], sampling)
        assert [size.rows for size in fixed._captured._memories] == remembered


def test_a_batch_that_there_is_no_room_for_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = decoder(grouped(tiny()))
    monkeypatch.setattr(captured, "MAX_BYTES", SIZE_MULTIPLE * bytes_per_token(fixed.model))
    sampling = [Sampling(3)] * 4
    found = fixed.complete(PROMPTS, sampling, captured=True)
    assert found == decoder(tiny()).complete(PROMPTS, sampling)
    assert not fixed._captured._memories


def test_a_batch_that_is_too_large_is_completed_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = decoder(grouped(tiny()))
    monkeypatch.setattr(captured, "MAX_BYTES", 4 * 2 * SIZE_MULTIPLE * bytes_per_token(fixed.model))
    sampling = [Sampling(2 + where) for where in range(4)]
    found = fixed.complete(PROMPTS, sampling, copies=2, captured=True)
    assert found == decoder(tiny()).complete(PROMPTS, sampling, copies=2)
    assert [size.rows for size in fixed._captured._memories] == [4]


def left_free(count: int, model: object) -> int:
    return count


def test_no_more_is_taken_than_half_of_what_the_card_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_row = 2 * SIZE_MULTIPLE * bytes_per_token(tiny())
    for free, has_room in ((7 * a_row, False), (8 * a_row, True)):
        monkeypatch.setattr(captured, "free_bytes", partial(left_free, free))
        steps = CapturedSteps(tiny())
        assert steps.has_room_for(PROMPTS[:3], 1, 3) == has_room  # three rows take room for four


def test_when_few_rows_are_left_they_go_on_in_a_smaller_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(captured, "MIN_ROWS", 1)
    fixed = decoder(grouped(tiny()), end_tokens=(100,))
    filled = LONG[0][:SIZE_MULTIPLE]  # nothing is free before the one that stays
    prompts = [PROMPTS[0], filled, *PROMPTS[2:]]
    sampling = [Sampling(2), Sampling(30), Sampling(3), Sampling(3)]
    expected = decoder(tiny(), end_tokens=(100,)).complete(prompts, sampling, copies=4)
    for _ in range(2):  # in memories that were never used, and in such as were
        assert fixed.complete(prompts, sampling, copies=4, captured=True) == expected
        assert sorted(size.rows for size in fixed._captured._memories) == [4, 16]


def test_where_there_is_no_room_for_a_smaller_batch_all_rows_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(captured, "MIN_ROWS", 1)
    fixed = decoder(grouped(tiny()))
    monkeypatch.setattr(
        captured, "MAX_BYTES", 16 * 2 * SIZE_MULTIPLE * bytes_per_token(fixed.model)
    )
    sampling = [Sampling(2), Sampling(20), Sampling(3), Sampling(3)]
    found = fixed.complete(PROMPTS, sampling, copies=4, captured=True)
    assert found == decoder(tiny()).complete(PROMPTS, sampling, copies=4)
    assert [size.rows for size in fixed._captured._memories] == [16]


def test_rows_of_a_fixed_batch_have_adapters_of_their_own_also_after_one_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "MIN_ROWS", 1)
    torch.manual_seed(1)
    made = AdapterStack.fresh(tiny(), ("one", "other"), LoraShape(4))
    with torch.no_grad():
        for layer in made.layers.values():
            layer.up[1:].normal_(std=0.2)
    for name in made.names:
        made.save(name, tmp_path / name, LoraShape(4), "the base")

    def completed(*, is_captured: bool) -> list[list[Completion]]:
        model = grouped(tiny())
        stack = AdapterStack(model, targets=EVERY_LINEAR_LAYER)
        stack.add("one", tmp_path / "one")
        one = decoder(model, adapters=stack)
        sampling = [Sampling(8), Sampling(2), Sampling(2)]  # the last few rows go on by themselves
        asked: dict[str, Any] = {"copies": 4, "captured": is_captured}
        first = one.complete(PROMPTS[:3], sampling, choices=[1, 0, 1], **asked)
        stack.add("other", tmp_path / "other")
        second = one.complete(PROMPTS[:3], sampling, choices=[2, 1, 0], **asked)
        return [first, second]

    fixed = completed(is_captured=True)
    assert fixed == completed(is_captured=False)
    assert fixed[0][0] != fixed[1][0]


def test_sampled_from_one_seed_both_draw_the_same() -> None:
    sampling = [Sampling(10, 1.0)] * 4

    def drawn(captured: bool) -> list[Completion]:
        one = decoder(grouped(tiny()), seed=4)
        return one.complete(PROMPTS, sampling, copies=2, captured=captured)

    # No row ends early, so both draw as often; of fixed size they are a rounding error apart.
    assert drawn(captured=True) == drawn(captured=False)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("padded", [False, True])
def test_heads_that_are_asked_as_one_see_what_each_would(
    architecture: Architecture, padded: bool
) -> None:
    tokens = torch.tensor([[5, 80, 33, 200], [7, 7, 120, 64]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]) if padded else None
    with torch.no_grad():
        alone = tiny(architecture)(tokens, attention_mask=mask).logits
        together = grouped(tiny(architecture))(tokens, attention_mask=mask).logits
    seen = (slice(None), slice(2, None)) if padded else (slice(None),)
    torch.testing.assert_close(together[seen], alone[seen], rtol=1e-4, atol=1e-4)


def test_attention_that_adds_its_mask_is_refused() -> None:
    model = tiny()
    model.config._attn_implementation = "eager"
    with pytest.raises(AssertionError, match="eager takes no mask of yes and no"):
        decoder(model).complete(PROMPTS, [Sampling(3)] * 4, captured=True)


def with_an_adapter(model: Any) -> Decoder:
    torch.manual_seed(1)
    stack = AdapterStack.fresh(model, ("one",), LoraShape(4))
    with torch.no_grad():
        for layer in stack.layers.values():
            layer.up[1:].normal_(std=0.2)
    return decoder(model, adapters=stack)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card that records")
def test_a_recorded_step_completes_as_one_that_is_not() -> None:
    growing, fixed = (with_an_adapter(model.cuda()) for model in (tiny(), grouped(tiny())))
    sampling = [Sampling(20)] * 4
    for choices in ([0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]):
        asked: dict[str, Any] = {"choices": choices, "copies": 3}
        recorded = fixed.complete(PROMPTS, sampling, captured=True, **asked)
        assert recorded == growing.complete(PROMPTS, sampling, **asked)
    (memory,) = fixed._captured._memories.values()
    assert memory._graph is not None
