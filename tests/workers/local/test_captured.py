"""Rows of fixed size: the same completions as of batches that grow.

A GPU captures the step and replays it, which is tested where there is one.
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
    CapturedRows,
    CapturedSizes,
    RowSize,
    bytes_per_token,
)
from podium.workers.local.decoding import Completion, Decoder, Job, Sampling
from podium.workers.local.lora import EVERY_LINEAR_LAYER, AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

PROMPTS = [[5, 80, 33, 200, 11, 9, 64], [7, 7], [42, 1, 3, 17, 250], [99]]
WIDTH = 16
LONG = [[where * 7 % 380 for where in range(70)], [1, 2, 3]]


def grouped(model: Any) -> Any:
    model.config._attn_implementation = GROUPED_ATTENTION
    return model


def decoder(model: Any, **settings: Any) -> Decoder:
    usual: dict[str, Any] = {"end_tokens": (), "padding": 0}
    return Decoder(model, **(usual | settings))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("attention", ["sdpa", GROUPED_ATTENTION])
@pytest.mark.parametrize("prompts", [PROMPTS, LONG], ids=["short", "long"])
def test_rows_of_fixed_size_complete_as_a_batch_that_grows(
    architecture: Architecture, attention: str, prompts: list[list[int]]
) -> None:
    model = tiny(architecture)
    model.config._attn_implementation = attention
    sampling = [Sampling(1 + 5 * where) for where in range(len(prompts))]
    growing = decoder(tiny(architecture), end_tokens=(100,)).complete(prompts, sampling, copies=2)
    fixed = decoder(model, end_tokens=(100,)).complete(prompts, sampling, copies=2, captured=True)
    assert fixed == growing


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow rows, so that a few tokens make another width."""
    monkeypatch.setattr(captured, "WIDTH_MULTIPLE", WIDTH)


def sizes(one: Decoder) -> list[RowSize]:
    return list(one.captured._rows)


def limit_memory(monkeypatch: pytest.MonkeyPatch, model: Any, tokens: int) -> None:
    monkeypatch.setattr(captured, "MAX_BYTES", tokens * bytes_per_token(model))


def test_rows_that_are_used_again_contain_nothing_of_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    make = CapturedRows.__init__

    def counted(rows: Any, model: Any, like: Any, size: RowSize, adapters: Any) -> None:
        made.append(size)
        make(rows, model, like, size, adapters)

    monkeypatch.setattr(CapturedRows, "__init__", counted)
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    sampling = [Sampling(6)] * 4
    for prompts in (PROMPTS, [[9] * 9, [8], [7, 6], [5]], PROMPTS):
        assert fixed.complete(prompts, sampling, captured=True) == growing.complete(
            prompts, sampling
        )
    assert made == [RowSize(4, WIDTH, 0)]


def test_a_size_that_is_somewhat_too_large_serves_fewer_or_narrower_rows() -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    sampling = [Sampling(6)] * 2
    for prompts in ([[7] * 26, [1, 2]], PROMPTS[2:]):
        found = fixed.complete(prompts, sampling, captured=True)
        assert found == growing.complete(prompts, sampling)
    assert sizes(fixed) == [RowSize(4, 2 * WIDTH, 0)]
    assert fixed.complete(PROMPTS[:1], sampling[:1], captured=True) == growing.complete(
        PROMPTS[:1], sampling[:1]
    )
    assert len(sizes(fixed)) == 2  # a fourth of the rows is another size


def test_captured_sizes_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    limit_memory(monkeypatch, fixed.model, 6 * WIDTH)
    for rows, kept in ((4, [4]), (1, [4, 1]), (2, [1, 4]), (1, [4, 1]), (3, [1, 4])):
        sampling = [Sampling(3)] * rows
        found = fixed.complete(PROMPTS[:rows], sampling, captured=True)
        assert found == growing.complete(PROMPTS[:rows], sampling)
        assert [size.rows for size in sizes(fixed)] == kept


def test_a_prompt_that_no_row_can_hold_is_completed_in_a_batch_that_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixed = decoder(grouped(tiny()))
    limit_memory(monkeypatch, fixed.model, WIDTH - 1)
    sampling = [Sampling(3)] * 4
    found = fixed.complete(PROMPTS, sampling, captured=True)
    assert found == decoder(tiny()).complete(PROMPTS, sampling)
    assert not sizes(fixed)


@pytest.mark.parametrize("limited_by", ["memory", "rows"])
def test_a_row_that_is_done_takes_the_next_prompt(
    limited_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = decoder(grouped(tiny()), end_tokens=(100,))
    if limited_by == "memory":
        limit_memory(monkeypatch, fixed.model, 4 * 3 * WIDTH)
    else:
        monkeypatch.setattr(captured, "MAX_ROWS", 4)
    prompts = [[where, *PROMPTS[where % 4]] for where in range(19)]
    sampling = [Sampling(1 + where * 5 % 23) for where in range(19)]
    found = fixed.complete(prompts, sampling, captured=True)
    assert found == decoder(tiny(), end_tokens=(100,)).complete(prompts, sampling)
    assert [size.rows for size in sizes(fixed)] == [4]


def test_prompts_that_arrive_later_join_in_more_and_wider_rows() -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    prompts = [*PROMPTS, [3] * 50, *([where] for where in range(1, 8))]
    sampling = [Sampling(60), Sampling(9), *[Sampling(20)] * 10]
    jobs = [Job(key, *pair) for key, pair in enumerate(zip(prompts, sampling, strict=True))]
    groups = iter([jobs[1:4], [], jobs[4:5], jobs[5:]])
    found: dict[Any, Completion] = {}
    order = []
    for done in fixed.complete_jobs(jobs[:1], lambda: next(groups, [])):
        found |= done
        order += [key for key, _ in done]
    assert [found[job.key] for job in jobs] == growing.complete(prompts, sampling)
    assert order.index(1) < order.index(0)  # each is done when its own tokens are
    assert sizes(fixed)[-1].rows == 16


def test_wider_prompts_wait_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixed = decoder(grouped(tiny()))
    limit_memory(monkeypatch, fixed.model, 4 * WIDTH)
    jobs = [Job(number, [5, number], Sampling(8 + 8 * number)) for number in range(1, 3)]
    jobs += [Job(3, [7] * WIDTH, Sampling(4)), Job(4, [9], Sampling(4))]
    groups = iter([jobs[2:]])
    found = dict(
        pair for done in fixed.complete_jobs(jobs[:2], lambda: next(groups, [])) for pair in done
    )
    growing = decoder(tiny()).complete([job.prompt for job in jobs], [job.sampling for job in jobs])
    assert [found[job.key] for job in jobs] == growing


def left_free(count: int, model: object) -> int:
    return count


def test_no_more_is_taken_than_half_of_what_the_gpu_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = WIDTH * bytes_per_token(tiny())
    for free, rows in ((7, 1), (8, 4), (1, None)):
        monkeypatch.setattr(captured, "free_bytes", partial(left_free, free * row))
        size = CapturedSizes(tiny()).size_for(3, WIDTH, None)
        assert (size and size.rows) == rows  # three rows take memory for four


def test_rows_have_adapters_of_their_own_also_after_one_is_added(
    tmp_path: Path,
) -> None:
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
        sampling = [Sampling(8), Sampling(2), Sampling(2)]
        asked: dict[str, Any] = {"copies": 4, "captured": is_captured}
        first = one.complete(PROMPTS[:3], sampling, adapter_indices=[1, 0, 1], **asked)
        stack.add("other", tmp_path / "other")
        second = one.complete(PROMPTS[:3], sampling, adapter_indices=[2, 1, 0], **asked)
        return [first, second]

    fixed = completed(is_captured=True)
    assert fixed == completed(is_captured=False)
    assert fixed[0][0] != fixed[1][0]


def test_a_prompt_with_a_seed_draws_the_same_in_any_row() -> None:
    sampling = [Sampling(10, 1.0, seed=seed) for seed in range(4)]
    fixed = decoder(grouped(tiny())).complete(PROMPTS, sampling, copies=2, captured=True)
    assert fixed == decoder(tiny()).complete(PROMPTS, sampling, copies=2)
    (drawn,) = decoder(grouped(tiny())).complete(PROMPTS[2:3], sampling[2:3], captured=True)
    assert drawn == fixed[4]


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("padded", [False, True])
def test_grouped_attention_equals_attention_by_head(
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_completes_as_one_that_is_not() -> None:
    growing, fixed = (with_an_adapter(model.cuda()) for model in (tiny(), grouped(tiny())))
    sampling = [Sampling(20)] * 4
    for adapter_indices in ([0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]):
        asked: dict[str, Any] = {"adapter_indices": adapter_indices, "copies": 3}
        replayed = fixed.complete(PROMPTS, sampling, captured=True, **asked)
        assert replayed == growing.complete(PROMPTS, sampling, **asked)
    (rows,) = fixed.captured._rows.values()
    assert rows._graph is not None
