"""Batches of fixed size: the same completions as of batches that grow.

A graphics card records the step and repeats it, which is tested where there is one.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.tiny_model import Architecture, one_thread
from support.tiny_model import model as tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.local import captured  # noqa: E402 - it is nothing without these packages
from podium.local.captured import GRAIN, GROUPED_ATTENTION, MOST_GRAPHS  # noqa: E402
from podium.local.decoding import Completion, Decoder, Sampling  # noqa: E402

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

PROMPTS = [[5, 80, 33, 200, 11, 9, 64], [7, 7], [42, 1, 3, 17, 250], [99]]
LONG = [[place * 7 % 380 for place in range(GRAIN + 5)], [1, 2, 3]]


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
    sampling = [Sampling(1 + 5 * place) for place in range(len(prompts))]
    growing = decoder(tiny(architecture), end_tokens=(100,)).complete(prompts, sampling, copies=2)
    fixed = decoder(model, end_tokens=(100,)).complete(prompts, sampling, copies=2, captured=True)
    assert fixed == growing


def test_a_batch_that_comes_again_knows_nothing_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    make = captured.FixedMemory.__init__

    def counted(memory: Any, *arguments: Any) -> None:
        made.append(arguments[2:])
        make(memory, *arguments)

    monkeypatch.setattr(captured.FixedMemory, "__init__", counted)
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    sampling = [Sampling(6)] * 4
    for prompts in (PROMPTS, [[9] * 12, [8], [7, 6], [5]], PROMPTS):
        assert fixed.complete(prompts, sampling, captured=True) == growing.complete(
            prompts, sampling
        )
    assert made == [(4, 2 * GRAIN)]


def test_only_the_last_few_sizes_are_remembered() -> None:
    fixed, growing = decoder(grouped(tiny())), decoder(tiny())
    for rows in (4, 3, 2, 1, 4):
        sampling = [Sampling(3)] * rows
        found = fixed.complete(PROMPTS[:rows], sampling, captured=True)
        assert found == growing.complete(PROMPTS[:rows], sampling)
        assert len(fixed._captured._memories) <= MOST_GRAPHS


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card that records")
def test_a_recorded_step_completes_as_one_that_is_not() -> None:
    growing, fixed = decoder(tiny().cuda()), decoder(grouped(tiny()).cuda())
    sampling = [Sampling(20)] * 4
    for prompts in (PROMPTS, PROMPTS[::-1], PROMPTS):
        recorded = fixed.complete(prompts, sampling, copies=3, captured=True)
        assert recorded == growing.complete(prompts, sampling, copies=3)
    (memory,) = fixed._captured._memories.values()
    assert memory._graph is not None
