"""What is counted when adapters are asked for what they were taught. That a model which has
learned its examples recites them is in the tests of `podium.train.sft`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.trainings import base

pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.train import sft
from podium.train.examples import TokenExample
from podium.train.sft import Mistake, evaluate_examples
from podium.workers.local import pretrained
from podium.workers.local.decoding import Completion, Sampling

pytestmark = pytest.mark.torch

__all__ = ["base"]


@dataclass
class Memory:
    """Stands for the decoder: says what it knows of a prompt and an adapter."""

    loaded: pretrained.Pretrained
    replies: dict[tuple[str, int], str]
    asked: list[list[tuple[str, int]]] = field(default_factory=list)
    was_training: list[bool] = field(default_factory=list)

    def complete(
        self,
        prompts: Sequence[list[int]],
        sampling: Sequence[Sampling],
        adapter_indices: Sequence[int],
    ) -> list[Completion]:
        words = [self.loaded.tokenizer.decode(prompt) for prompt in prompts]
        self.asked.append(list(zip(words, adapter_indices, strict=True)))
        self.was_training.append(self.loaded.model.training)
        said = [self.tokens(self.replies[one]) for one in self.asked[-1]]
        assert all(len(s) < one.max_tokens for s, one in zip(said, sampling, strict=True))
        return [Completion((*tokens, self.loaded.turn_end), True) for tokens in said]

    def tokens(self, text: str) -> list[int]:
        tokens: list[int] = self.loaded.tokenizer(text)["input_ids"]
        return tokens


@pytest.fixture
def memory(base: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    replies = {("12 + 3?", 1): "15", ("2 + 2?", 1): "four", ("2 + 2?", 2): "vier"}
    memory = Memory(pretrained.load(str(base)), replies)

    def decoder(model: object, **_: Any) -> Memory:
        return memory

    monkeypatch.setattr(sft, "Decoder", decoder)
    return memory


def example(memory: Memory, prompt: str, reply: str, adapter: int) -> TokenExample:
    tokens = [*memory.tokens(reply), memory.loaded.turn_end]
    return TokenExample(memory.tokens(prompt), tokens, tokens, adapter)


def evaluate(memory: Memory, **options: Any) -> list[sft.SftEval]:
    stack: Any = object()
    examples = {
        "sums": [example(memory, "12 + 3?", "15", 1), example(memory, "2 + 2?", "4", 1)],
        "german": [example(memory, "2 + 2?", "vier", 2)],
    }
    return evaluate_examples(memory.loaded, stack, examples, **options)


def test_accuracy_is_the_share_that_is_right_to_the_letter_and_mistakes_are_kept(
    memory: Memory,
) -> None:
    sums, german = evaluate(memory)
    assert (sums.adapter, sums.accuracy) == ("sums", 0.5)
    assert sums.mistakes == (Mistake("2 + 2?", "4", "four"),)
    assert (german.adapter, german.accuracy, german.mistakes) == ("german", 1.0, ())


def test_a_reply_that_is_only_begun_is_compared_as_far_as_it_goes(memory: Memory) -> None:
    stack: Any = object()
    whole = example(memory, "12 + 3?", "1", 1)
    begun = whole._replace(reply=whole.reply[:-1], is_whole=False)
    memory.replies[("12 + 3?", 1)] = "1 and more"
    for one, accuracy in ((whole, 0.0), (begun, 1.0)):
        (sums,) = evaluate_examples(memory.loaded, stack, {"sums": [one]})
        assert sums.accuracy == accuracy


def test_everybody_is_asked_together_by_length_and_no_more_at_once_than_allowed(
    memory: Memory,
) -> None:
    evaluate(memory)
    assert memory.asked == [[("2 + 2?", 1), ("12 + 3?", 1), ("2 + 2?", 2)]]
    evaluate(memory, rows=2)
    assert [len(batch) for batch in memory.asked[1:]] == [2, 1]


def test_nothing_is_trained_meanwhile_and_training_continues_afterwards(memory: Memory) -> None:
    memory.loaded.model.train()
    evaluate(memory)
    assert memory.was_training == [False]
    assert memory.loaded.model.training
