"""Asking adapters for what they were taught, and counting what comes out right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.local.decoding import Decoder, Sampling
from podium.local.lora import AdapterStack
from podium.local.pretrained import Pretrained
from podium.train.examples import Example


@dataclass(frozen=True, slots=True)
class Mistake:
    """A prompt, what should have followed, and what did."""

    prompt: str
    wanted: str
    said: str


@dataclass(frozen=True, slots=True)
class Recital:
    """How well an adapter says what it was taught: the share of replies that are right to the
    letter, as far as they are taught, and those that were not."""

    adapter: str
    accuracy: float
    mistakes: tuple[Mistake, ...]


def recite(
    pretrained: Pretrained,
    stack: AdapterStack | None,
    examples: Mapping[str, Sequence[Example]],
    *,
    rows: int = 1024,
) -> list[Recital]:
    """Ask every adapter for the replies to its examples, and compare."""
    decoder = Decoder(
        pretrained.model,
        end_tokens=pretrained.end_tokens,
        padding=pretrained.tokenizer.pad_token_id,
        adapters=stack,
    )
    asked = [(name, example) for name, group in examples.items() for example in group]
    asked.sort(key=lambda pair: pair[1].length)
    mistakes: dict[str, list[Mistake]] = {name: [] for name in examples}
    was_training = pretrained.model.training
    pretrained.model.eval()
    for start in range(0, len(asked), rows):
        part = asked[start : start + rows]
        completions = decoder.complete(
            [example.prompt for _, example in part],
            [Sampling(len(example.reply) + 8) for _, example in part],
            choices=[example.adapter for _, example in part] if stack is not None else None,
        )
        for (name, example), completion in zip(part, completions, strict=True):
            compared = None if example.is_whole else len(example.reply)
            replies = (example.reply, completion.tokens[:compared])
            wanted, said = (_words(pretrained, tokens) for tokens in replies)
            if said != wanted:
                prompt = pretrained.tokenizer.decode(example.prompt)
                mistakes[name].append(Mistake(prompt, wanted, said))
    pretrained.model.train(was_training)
    return [
        Recital(name, 1 - len(mistakes[name]) / len(group), tuple(mistakes[name]))
        for name, group in examples.items()
    ]


def _words(pretrained: Pretrained, tokens: Any) -> str:
    return pretrained.decode(tokens).strip()
