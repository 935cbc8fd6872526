"""Plans that share the prompt they were written to are as likely as each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("trl", reason="needs the extra train")

from podium.core.errors import ConfigError
from podium.train import shared_prompts
from podium.train.shared_prompts import (
    WIDTH_MULTIPLE,
    SharedRow,
    as_tensors,
    attention_mask,
    completion_logprobs,
    completion_rows,
    pack_rows,
    select_rows,
    shared_rows,
)
from podium.workers.local import pretrained
from support.recipes import GRPO, make_recipe
from support.trainings import base

__all__ = ["base"]

pytestmark = pytest.mark.torch

PROMPTS = [[5, 6, 7, 8], [9, 10]]
PLANS = [(0, [11, 12, 2]), (1, [13, 2]), (0, [14, 2]), (0, [11, 15, 16, 2]), (1, [17])]
"""Each with the number of its prompt."""

CPU = torch.device("cpu")


def as_batch() -> tuple[list[list[int]], list[list[int]], int]:
    """What TRL hands over: prompts padded on the left, plans on the right."""
    tokens, mask = [], []
    for number, plan in PLANS:
        prompt = PROMPTS[number]
        left, right = 4 - len(prompt), 4 - len(plan)
        tokens.append([0] * left + prompt + plan + [0] * right)
        mask.append([0] * left + [1] * (len(prompt) + len(plan)) + [0] * right)
    return tokens, mask, 4


def by_itself(model: Any, prompt: list[int], plan: list[int]) -> Any:
    logits = model(torch.tensor([prompt + plan])).logits[0, len(prompt) - 1 : -1]
    chances = logits.log_softmax(-1)
    entropies = -(chances.exp() * chances).sum(-1)
    return chances.gather(-1, torch.tensor(plan)[:, None])[:, 0], entropies


@pytest.mark.parametrize("max_tokens", [1, 24, 1000])
def test_every_plan_is_as_likely_as_by_itself(base: Path, max_tokens: int) -> None:
    model = pretrained.load(str(base)).model
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for part in pack_rows(shared_rows(*as_batch()), max_tokens):
        one = as_tensors(part, CPU)
        with torch.no_grad():
            logps, entropies = completion_logprobs(model, one, 1.0)
        places = zip(one.owners.tolist(), one.offsets.tolist(), strict=True)
        found |= dict(
            zip(places, zip(logps.tolist(), entropies.tolist(), strict=True), strict=True)
        )
    for owner, (number, plan) in enumerate(PLANS):
        logps, entropies = by_itself(model, PROMPTS[number], plan)
        for offset in range(len(plan)):
            wanted = (logps[offset].item(), entropies[offset].item())
            assert found.pop((owner, offset)) == pytest.approx(wanted, rel=1e-4)
    assert not found


def test_logits_in_parts_make_the_same_probabilities_and_gradients(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pretrained.load(str(base)).model
    one = as_tensors(shared_rows(*as_batch()), CPU)
    found = []
    for targets in (1, 3, 1000):
        monkeypatch.setattr(shared_prompts, "LOGIT_TOKENS", targets)
        model.zero_grad()
        logps, _ = completion_logprobs(model, one, 0.7)
        torch.autograd.backward(logps.sum())
        found.append((logps.detach(), model.get_input_embeddings().weight.grad.clone()))
    for logps, gradient in found[:2]:
        assert torch.allclose(logps, found[2][0], atol=1e-5)
        assert torch.allclose(gradient, found[2][1], rtol=1e-4, atol=1e-4)


def test_only_logprobs_have_a_gradient(base: Path) -> None:
    model = pretrained.load(str(base)).model
    one = as_tensors(shared_rows(*as_batch()), CPU)
    logps, entropies = completion_logprobs(model, one, 1.0)
    assert logps.requires_grad
    assert not entropies.requires_grad


def test_a_part_of_a_batch_keeps_what_belongs_to_the_whole() -> None:
    batch = {
        "completion_ids": torch.tensor([[1], [2], [3]]),
        "num_items_in_batch": torch.tensor(7),
        "two": torch.tensor([1, 2]),
        "names": ["a", "b", "c"],
    }
    part = select_rows(batch, [2, 0])
    assert part["completion_ids"].tolist() == [[3], [1]]
    assert {name: part[name] for name in ("num_items_in_batch", "two", "names")} == {
        name: batch[name] for name in ("num_items_in_batch", "two", "names")
    }


def test_a_prompt_stands_once_before_all_of_its_plans() -> None:
    first, second = shared_rows(*as_batch())
    assert first.prompt == (5, 6, 7, 8)
    assert first.plans == ((0, [11, 12, 2]), (2, [14, 2]), (3, [11, 15, 16, 2]))
    assert second == SharedRow((9, 10), ((1, [13, 2]), (4, [17])))


def test_a_plan_that_teaches_nothing_is_left_out() -> None:
    tokens, mask, width = as_batch()
    mask[1][-width:] = [0] * width
    _, second = shared_rows(tokens, mask, width)
    assert second.plans == ((4, [17]),)


def test_only_plans_that_earned_more_or_less_than_others_teach_something() -> None:
    advantages = torch.tensor([0.0, 1.2, 0.0, -0.4])
    assert completion_rows(advantages, torch.ones(4, 2)).tolist() == [False, True, False, True]
    cut_off = torch.tensor([[1, 1], [0, 0], [1, 0], [1, 1]])
    assert completion_rows(advantages, cut_off).tolist() == [False, False, False, True]


def test_one_plan_is_read_if_none_has_an_advantage() -> None:
    assert completion_rows(torch.zeros(3), torch.ones(3, 2)).tolist() == [True, False, False]
    cut_off = torch.tensor([[0, 0], [1, 0], [1, 1]])
    assert completion_rows(torch.zeros(3), cut_off).tolist() == [False, True, False]
    assert not completion_rows(torch.zeros(3), torch.zeros(3, 2)).any()


def test_a_row_that_would_be_too_long_begins_again_with_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_prompts, "MAX_ROW_TOKENS", 10)
    rows = shared_rows(*as_batch())
    assert [[where for where, _ in row.plans] for row in rows] == [[0, 2], [3], [1, 4]]
    assert rows[0].prompt == rows[1].prompt


def test_a_pass_holds_no_more_than_it_may() -> None:
    rows = [SharedRow((1,), ((where, [2] * (where + 1)),)) for where in range(40)]
    for part in pack_rows(rows, 200):
        one = as_tensors(part, CPU)
        assert one.tokens.numel() <= 200
        assert one.tokens.shape[1] % WIDTH_MULTIPLE == 0
    assert sum(len(part) for part in pack_rows(rows, 200)) == 40


def test_plans_see_the_prompt_and_themselves_alone() -> None:
    one = as_tensors([SharedRow((7, 8), ((0, [1, 2]), (1, [3])))], CPU)
    seen = [row.nonzero()[:, 0].tolist() for row in attention_mask(one.segments)[0, 0]]
    assert seen[:5] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4]]
    assert one.positions[0, :5].tolist() == [0, 1, 2, 3, 2]


def test_batch_rows_and_batch_tokens_exclude_each_other(tmp_path: Path) -> None:
    settings = ["grpo.max_pass_tokens=1000", "grpo.micro_batch=1"]
    with pytest.raises(ConfigError, match="micro_batch has no effect with grpo.max_pass_tokens"):
        make_recipe(tmp_path, GRPO, overrides=settings)
