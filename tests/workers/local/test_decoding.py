"""Completions: the same that transformers generates, for many prompts at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.tiny_model import Architecture, one_thread, tokenizer
from support.tiny_model import model as tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.workers.local import decoding
from podium.workers.local.decoding import Completion, Decoder, GrowingCache, Sampling
from podium.workers.local.lora import EVERY_LINEAR_LAYER, AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

PROMPTS = [[5, 80, 33, 200, 11, 9, 64], [7, 7], [42, 1, 3, 17, 250], [99]]


def decoder(model: Any = None, **settings: Any) -> Decoder:
    usual: dict[str, Any] = {"end_tokens": (), "padding": tokenizer().pad_token_id}
    return Decoder(model if model is not None else tiny(), **(usual | settings))


def greedy(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """What transformers itself generates for the prompt alone."""
    with torch.no_grad():
        generated = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    words: list[int] = generated[0, len(prompt) :].tolist()
    return words


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [list(completion.tokens) for completion in completions]


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_the_likeliest_tokens_are_those_that_transformers_generates(
    architecture: Architecture,
) -> None:
    model = tiny(architecture)
    completions = decoder(model).complete(PROMPTS, [Sampling(12)] * 4)
    assert tokens_of(completions) == [greedy(model, prompt, 12) for prompt in PROMPTS]
    assert not any(completion.ended for completion in completions)


def adapted(directory: Path) -> tuple[Any, AdapterStack]:
    """A model under two adapters, and the first of them as a directory."""
    torch.manual_seed(1)
    model = tiny()
    stack = AdapterStack.fresh(model, ("a", "b"), LoraShape(4))
    with torch.no_grad():
        for layer in stack.layers.values():
            layer.up[1:].normal_(std=0.2)
    stack.save("a", directory, LoraShape(4), "the base")
    return model, stack


def test_each_row_has_its_adapter_to_the_last_token(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    adapted(tmp_path)
    model = tiny()
    stack = AdapterStack(model, targets=EVERY_LINEAR_LAYER)
    stack.add("a", tmp_path)
    completions = decoder(model, adapters=stack).complete(
        PROMPTS, [Sampling(limit) for limit in (3, 12, 3, 12)], adapter_indices=[1, 0, 0, 1]
    )
    by_peft = peft.PeftModel.from_pretrained(tiny(), str(tmp_path)).eval()
    assert tokens_of(completions) == [
        greedy(by_peft, PROMPTS[0], 3),
        greedy(tiny(), PROMPTS[1], 12),
        greedy(tiny(), PROMPTS[2], 3),
        greedy(by_peft, PROMPTS[3], 12),
    ]
    assert greedy(by_peft, PROMPTS[3], 12) != greedy(tiny(), PROMPTS[3], 12)


def test_a_completion_ends_with_the_token_that_ends_it() -> None:
    whole = greedy(tiny(), PROMPTS[0], 12)
    end = whole[4]
    assert end not in whole[:4]
    (completion,) = decoder(end_tokens=(end, 379)).complete(PROMPTS[:1], [Sampling(12)])
    assert completion == Completion(tuple(whole[:5]), ended=True)


def test_every_row_has_its_own_bound_and_may_end_with_its_last_token() -> None:
    whole = [greedy(tiny(), prompt, 9) for prompt in PROMPTS]
    sampling = [Sampling(limit) for limit in (1, 9, 4, 2)]
    completions = decoder(end_tokens=(whole[2][3],)).complete(PROMPTS, sampling)
    assert [len(completion.tokens) for completion in completions] == [1, 9, 4, 2]
    assert [completion.ended for completion in completions] == [False, False, True, False]
    assert list(completions[1].tokens) == whole[1]


def test_rows_that_have_ended_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = GrowingCache.step

    def counted(memory: GrowingCache, tokens: Any) -> Any:
        sizes.append(len(tokens))
        return step(memory, tokens)

    monkeypatch.setattr(GrowingCache, "step", counted)
    bounds = [2, 2, 2, 2, 2, 5, 8]
    prompts = [PROMPTS[where % 4] for where in range(7)]
    completions = decoder().complete(prompts, [Sampling(bound) for bound in bounds])
    assert sizes == [7, 2, 2, 2, 2, 2, 2]  # fewer than half must be left for it to be worth it
    assert tokens_of(completions)[6] == greedy(tiny(), prompts[6], 8)
    assert tokens_of(completions)[5] == greedy(tiny(), prompts[5], 5)


def test_copies_of_a_prompt_are_read_once_and_stand_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    forward = decoding.forward

    def counted(decoder: Decoder, tokens: Any, *rest: Any) -> Any:
        seen.append(tuple(tokens.shape))
        return forward(decoder, tokens, *rest)

    monkeypatch.setattr(decoding, "forward", counted)
    completions = decoder().complete(PROMPTS[:2], [Sampling(3), Sampling(3)], copies=3)
    assert seen == [(2, 7), (6, 1), (6, 1)]
    alone = [greedy(tiny(), prompt, 3) for prompt in PROMPTS[:2]]
    assert tokens_of(completions) == [alone[0]] * 3 + [alone[1]] * 3


# ---- sampling

DRAWS = 4000


def chances_after(prompt: list[int]) -> Any:
    with torch.no_grad():
        return tiny()(torch.tensor([prompt])).logits[0, -1]


def shares(sampling: Sampling, draws: int = DRAWS) -> dict[int, float]:
    """How often each token was drawn, of one token a completion."""
    completions = decoder(seed=5).complete(PROMPTS[:1], [sampling], copies=draws)
    counts = Counter(completion.tokens[0] for completion in completions)
    return {token: count / draws for token, count in counts.items()}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_by_their_chances_at_that_temperature(temperature: float) -> None:
    expected = (chances_after(PROMPTS[0]) / temperature).softmax(-1)
    drawn = shares(Sampling(1, temperature))
    for token, chance in enumerate(expected.tolist()):
        assert drawn.get(token, 0.0) == pytest.approx(chance, abs=0.03)


def test_top_p_draws_from_the_likeliest_that_reach_it() -> None:
    chances = chances_after(PROMPTS[0]).softmax(-1)
    ordered, order = chances.sort(descending=True)
    kept = int((ordered.cumsum(0) < 0.5).sum()) + 1
    drawn = shares(Sampling(1, 1.0, top_p=0.5))
    assert set(drawn) == set(order[:kept].tolist())
    total = float(ordered[:kept].sum())
    for token in drawn:
        assert drawn[token] == pytest.approx(float(chances[token]) / total, abs=0.03)


def test_top_k_draws_from_so_many() -> None:
    likeliest = chances_after(PROMPTS[0]).topk(3).indices.tolist()
    assert set(shares(Sampling(1, 1.0, top_k=3))) == set(likeliest)
    assert len(shares(Sampling(1, 1.0, top_k=10_000))) > 20


def test_a_tiny_top_p_leaves_the_likeliest() -> None:
    likeliest = int(chances_after(PROMPTS[0]).argmax())
    assert shares(Sampling(1, 1.0, top_p=1e-9), 50) == {likeliest: 1.0}


def test_rows_that_are_sampled_in_different_ways_do_not_change_each_other() -> None:
    ways = [
        Sampling(1, 0.0),
        Sampling(1, 1.0),
        Sampling(1, 1.0, top_k=1),
        Sampling(1, 1.0, top_p=1e-9),
        Sampling(1, 5.0, top_k=2),
    ]
    together = decoder(seed=3)
    drawn: list[set[int]] = [set() for _ in ways]
    for completions in (together.complete([PROMPTS[0]] * 5, ways) for _ in range(60)):
        for seen, completion in zip(drawn, completions, strict=True):
            seen.update(completion.tokens)
    first, second = chances_after(PROMPTS[0]).topk(2).indices.tolist()
    assert drawn[0] == drawn[2] == drawn[3] == {first}
    assert len(drawn[1]) > 5
    assert drawn[4] == {first, second}


def test_a_decoders_seed_repeats_everything_and_another_does_not() -> None:
    sampling = [Sampling(8, 1.0)] * 4

    def drawn(seed: int) -> list[list[Completion]]:
        one = decoder(seed=seed)
        return [one.complete(PROMPTS, sampling) for _ in range(2)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    first, second = drawn(1)
    assert first != second


def test_a_prompts_seed_is_independent_of_its_batch() -> None:
    own = Sampling(8, 1.0, top_p=0.9, top_k=50, seed=11)
    one = decoder(seed=1)
    (alone,) = one.complete(PROMPTS[:1], [own])
    crowd = one.complete(PROMPTS, [own, Sampling(2, 1.0), Sampling(2), Sampling(3, 1.0, seed=4)])
    assert crowd[0] == alone
    assert one.complete(PROMPTS[:1], [Sampling(8, 1.0, seed=12)]) != [alone]
    assert one.complete(PROMPTS[:1], [Sampling(8, 1.0, seed=-(2**70))])
    copies = one.complete(PROMPTS[:1], [own], copies=4)
    assert copies[0] == alone
    assert len({completion.tokens for completion in copies}) == 4


def test_tokens_of_a_seed_are_drawn_by_their_chances() -> None:
    chances = chances_after(PROMPTS[0]).softmax(-1).tolist()
    drawn = shares(Sampling(1, 1.0, seed=0))
    for token, chance in enumerate(chances):
        assert drawn.get(token, 0.0) == pytest.approx(chance, abs=0.03)


# ---- what makes no sense


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; give 1 or more"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_p": float("nan")}, "top_p is nan"),
        ({"top_k": -1}, "top_k is -1"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Sampling(**values)


def test_an_empty_prompt_is_refused_and_an_empty_batch_is_completed() -> None:
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        decoder().complete([[1], []], [Sampling()] * 2)
    assert decoder().complete([], []) == []


def test_adapters_are_chosen_only_where_there_are_some() -> None:
    with pytest.raises(ValueError, match="can choose them"):
        decoder().complete(PROMPTS[:1], [Sampling(1)], adapter_indices=[0])
    stack = AdapterStack.fresh(tiny(), ("one",), LoraShape(4))
    with pytest.raises(ValueError, match="2 is not an adapter index; there are 1"):
        decoder(adapters=stack).complete(PROMPTS[:1], [Sampling(1)], adapter_indices=[2])
