"""Training examples: messages and replies, as text, as tokens and in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from podium.core.errors import ConfigError

if TYPE_CHECKING:
    from podium.workers.local.pretrained import Pretrained

CONDUCTOR: Final = "conductor"
"""The name of an only adapter."""

Messages = list[dict[str, str]]

BATCHES_SORTED_TOGETHER: Final = 16
"""Batches sorted by length at a time: enough for little padding, few enough to stay random."""

UNLABELLED: Final = -100
"""The label that torch ignores."""


class TextExample(NamedTuple):
    """An example as text; `masked_spans` are character ranges of the reply that get no labels.

    An example that is not whole has only the beginning of a reply.
    """

    messages: Messages
    reply: str
    masked_spans: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True


class _FileMessage(BaseModel):
    """A message of a user's file."""

    role: Literal["system", "user", "assistant"]
    content: str


class _FileExample(BaseModel):
    """A line of a user's file."""

    prompt: str | Annotated[list[_FileMessage], Field(min_length=1)]
    reply: str


class TokenExample(NamedTuple):
    """An example as tokens for one adapter; `labels` are the reply's, or `UNLABELLED`."""

    prompt: list[int]
    reply: list[int]
    labels: list[int]
    adapter: int
    is_whole: bool = True

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.reply)


def file_examples(path: Path) -> list[TextExample]:
    """Read JSON lines with `prompt` (a text, or messages) and `reply`."""
    lines = enumerate(path.read_text("utf-8").split("\n"), start=1)
    examples = [_parse_example(path, number, line) for number, line in lines if line.strip()]
    if not examples:
        raise ConfigError(f"{path} holds no examples; write one a line, as JSON")
    return examples


def _parse_example(path: Path, number: int, line: str) -> TextExample:
    try:
        entry = _FileExample.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f'{path}, line {number}: expected {{"prompt": …, "reply": …}}, where the prompt is a '
            f"text, or messages with role and content: {where} {first['msg']}"
        ) from error
    prompt = entry.prompt
    if isinstance(prompt, str):
        return TextExample([{"role": "user", "content": prompt}], entry.reply)
    return TextExample([message.model_dump() for message in prompt], entry.reply)


def encode(
    pretrained: Pretrained, written: Sequence[TextExample], adapter: int
) -> list[TokenExample]:
    """Encode the examples; every whole reply ends its turn."""
    tokenizer = pretrained.tokenizer
    prompts = tokenizer.apply_chat_template(
        [example.messages for example in written], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    replied = tokenizer(
        [example.reply for example in written],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    examples = []
    for one, prompt, reply, offsets in zip(
        written, prompt_ids, replied["input_ids"], replied["offset_mapping"], strict=True
    ):
        labels = [
            token if _is_labelled(position, one.masked_spans) else UNLABELLED
            for token, position in zip(reply, offsets, strict=True)
        ]
        end = [pretrained.turn_end] if one.is_whole else []
        examples.append(TokenExample(prompt, reply + end, labels + end, adapter, one.is_whole))
    return examples


def _is_labelled(position: tuple[int, int], masked_spans: Sequence[tuple[int, int]]) -> bool:
    return not any(begin < position[1] and position[0] < end for begin, end in masked_spans)


def batches(
    groups: Sequence[Sequence[TokenExample]],
    rows: int,
    steps: int,
    seed: int,
    max_tokens: int | None = None,
) -> Iterator[list[TokenExample]]:
    """Yield batches of `rows` examples of every group, of about one length.

    A batch of more than `max_tokens`, padding included, is split.
    """
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    streams = [_endless(group, rng) for group in groups]
    made = 0
    while made < steps:
        shelves = [
            sorted(islice(stream, rows * BATCHES_SORTED_TOGETHER), key=lambda one: one.length)
            for stream in streams
        ]
        for position in rng.sample(range(BATCHES_SORTED_TOGETHER), BATCHES_SORTED_TOGETHER):
            batch = [shelf[position * rows : (position + 1) * rows] for shelf in shelves]
            for part in islice(_in_bounds(batch, max_tokens), steps - made):
                yield [example for group in part for example in group]
                made += 1


def _in_bounds(
    batch: list[list[TokenExample]], max_tokens: int | None
) -> Iterator[list[list[TokenExample]]]:
    """Yield the batch, or its halves or quarters where it has too many tokens."""
    rows = len(batch[0])
    width = max(example.length for group in batch for example in group)
    if max_tokens is None or rows % 2 or len(batch) * rows * width <= max_tokens:
        yield batch
        return
    for half in (slice(rows // 2), slice(rows // 2, rows)):
        yield from _in_bounds([group[half] for group in batch], max_tokens)


def _endless(group: Sequence[TokenExample], rng: Random) -> Iterator[TokenExample]:
    while True:
        yield from rng.sample(group, len(group))
