"""What a model is taught by example: messages, and the reply that should follow them.

Examples come from the études' lessons, openings and second rounds, or from a file; here they
become tokens and batches. Learning from them is `podium.train.sft`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.errors import ConfigError
from podium.etudes import (
    ROLES,
    USUAL,
    EtudeShape,
    LaterSituation,
    Opening,
    Split,
    later_openings,
    later_situations,
    lessons,
    openings,
)
from podium.etudes.openings import SHAPES
from podium.train.recipe import Recipe

if TYPE_CHECKING:
    from podium.workers.local.pretrained import Pretrained

CONDUCTOR: Final = "conductor"
"""The adapter that is taught where there is only one."""

Messages = list[dict[str, str]]

BATCHES_SORTED_TOGETHER: Final = 16
"""How many batches are sorted by length at a time: enough that a batch holds little padding, few
enough that its examples still are drawn at random."""

PARTS: Final = 16
"""Examples are made in so many parts, each by its own seed, whatever the number of processors:
the same recipe gives the same examples on every machine."""


UNLABELLED: Final = -100
"""The label of a token that is not to be learned, as torch has it."""

_ID: Final = re.compile(r'(?<="worker": )\d+')
_FIRST_KEY: Final = '"subtask":'

FEW: Final = 5_000
"""Fewer examples than this are not worth starting processes for."""


class Written(NamedTuple):
    """An example in words. `unlearned` are the places of the reply, from and to which character,
    that are given and not to be learned; one that is not whole is only how the reply begins."""

    messages: Messages
    reply: str
    unlearned: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True


class _OwnMessage(BaseModel):
    """A turn of a prompt that a user wrote."""

    role: Literal["system", "user", "assistant"]
    content: str


class _OwnExample(BaseModel):
    """A line of a user's file."""

    prompt: str | Annotated[list[_OwnMessage], Field(min_length=1)]
    reply: str


class Example(NamedTuple):
    """An example in tokens; `labels` are those of the reply, or `UNLABELLED` where nothing is to
    be learned, and `adapter` is the one that learns it. A reply that is whole ends its turn."""

    prompt: list[int]
    reply: list[int]
    labels: list[int]
    adapter: int
    is_whole: bool = True

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return len(self.prompt) + len(self.reply)


def taught_examples(recipe: Recipe, split: Split, count: int) -> dict[str, list[Written]]:
    """So many examples of that split for every adapter that the recipe teaches, by its name."""
    sft, seed = recipe.sft, recipe.run.seed
    assert sft is not None, "only learning by example has examples"
    if sft.teach == "lessons":
        unsure = recipe.data.etudes.unsure_share
        return _in_parts(
            {name: _Lessons(name, split, unsure) for name in sorted(sft.adapters)}, seed, count
        )
    if sft.teach == "openings":
        return _in_parts({CONDUCTOR: _Openings(recipe, split)}, seed, count)
    if sft.teach == "decisions":
        return _in_parts({CONDUCTOR: _Decisions(recipe, split)}, seed, count)
    assert recipe.data.file is not None, "checked as it was read"
    examples = file_examples(Path(recipe.data.file.path))[: recipe.data.file.limit]
    kept_apart = min(recipe.run.eval_tasks, len(examples) // 10) if recipe.run.eval_every else 0
    test, train = examples[:kept_apart], examples[kept_apart:]
    return {CONDUCTOR: test or train[:count] if split == "test" else train}


@dataclass(frozen=True, slots=True)
class _Lessons:
    """Makes lessons for the specialist of one family."""

    family: str
    split: Split
    unsure_share: float

    def __call__(self, seed: int, count: int) -> list[Written]:
        stream = lessons(self.family, seed, self.split, unsure_share=self.unsure_share)
        return [
            Written([{"role": "user", "content": lesson.prompt}], lesson.reply)
            for lesson in islice(stream, count)
        ]


@dataclass(frozen=True, slots=True)
class _Openings:
    """Makes openings for a conductor, as its prompt words them; now and then one of a later
    round. Most openings are random; those to be tested on are the ones that are not: the
    question says who is to do what, and who may read whom follows from it."""

    recipe: Recipe
    split: Split

    def __call__(self, seed: int, count: int) -> list[Written]:
        data, asked = self.recipe.data.etudes, self.recipe.prompt
        prompt = Prompt(length=asked.length, form="lists", few_shot=asked.few_shot)
        models = dict.fromkeys(ROLES, "")
        shapes = _shapes(self.recipe, SHAPES)
        if self.split == "test":
            told = openings(
                seed + 500,
                models,
                shapes=shapes,
                assigned_share=1.0,
                everyday_share=0.0,
                true_access=1.0,
                order=prompt.order,
            )
            return [_as_conversation(prompt, opening) for opening in islice(told, count)]
        later = round(count * data.later_round_share)
        first = openings(
            seed,
            models,
            shapes=shapes,
            nested_share=data.nested_share,
            assigned_share=data.assigned_share,
            everyday_share=data.everyday_share,
            true_clauses=data.true_clauses,
            true_access=data.true_access,
            drop=self.recipe.pool.drop,
            order=prompt.order,
        )
        second = later_openings(
            seed,
            models,
            shapes=shapes,
            nested_share=data.nested_share,
            accepted_share=data.accepted_share,
            drop=self.recipe.pool.drop,
            order=prompt.order,
        )
        drawn = chain(islice(first, count - later), islice(second, later))
        return [_as_conversation(prompt, opening) for opening in drawn]


@dataclass(frozen=True, slots=True)
class _Decisions:
    """Makes decisions for a conductor: after a first round its answer is accepted where it is
    right, and where it is wrong another plan is begun. How that goes on is not taught here."""

    recipe: Recipe
    split: Split

    def __call__(self, seed: int, count: int) -> list[Written]:
        asked, pool = self.recipe.prompt, self.recipe.pool
        prompt = Prompt(length=asked.length, form="lists", few_shot=asked.few_shot)
        drawn = later_situations(
            Random(f"{seed}/decisions"),  # noqa: S311 - repeatable, not secret
            self.split,
            dict.fromkeys(ROLES, ""),
            shapes=_shapes(self.recipe, USUAL),
            nested_share=self.recipe.data.etudes.nested_share,
            flaky_share=pool.forgetful,
            flaky_seed=self.recipe.run.seed,
            drop=pool.drop,
            order=prompt.order,
        )
        return [_as_decision(prompt, later) for later in islice(drawn, count)]


def _shapes(recipe: Recipe, usual: Mapping[EtudeShape, float]) -> Mapping[EtudeShape, float]:
    """How often the recipe draws each shape, or the usual ones where it does not say."""
    stages = recipe.data.etudes.stage
    if not stages:
        return usual
    return {EtudeShape(name): weight for name, weight in stages[-1].shapes.items()}


def file_examples(path: Path) -> list[Written]:
    """A user's own: JSON lines with `prompt` (a text, or messages) and `reply`."""
    lines = enumerate(path.read_text("utf-8").split("\n"), start=1)
    examples = [_own_example(path, number, line) for number, line in lines if line.strip()]
    if not examples:
        raise ConfigError(f"{path} holds no examples; write one a line, as JSON")
    return examples


def _own_example(path: Path, number: int, line: str) -> Written:
    try:
        entry = _OwnExample.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f'{path}, line {number}: expected {{"prompt": …, "reply": …}}, where the prompt is a '
            f"text, or messages with role and content: {where} {first['msg']}"
        ) from error
    prompt = entry.prompt
    if isinstance(prompt, str):
        return Written([{"role": "user", "content": prompt}], entry.reply)
    return Written([message.model_dump() for message in prompt], entry.reply)


def _as_conversation(prompt: Prompt, opening: Opening) -> Written:
    """An opening as the conversation that asks for it, and its plan. Where nobody said who is to
    do what, the plan's ids are given, not learned; how many there are of them still is."""
    messages = prompt.messages(opening.context)
    unlearned = () if opening.is_assigned else tuple(_places_of_ids(opening.plan))
    return Written([{"role": m.role, "content": m.text} for m in messages], opening.plan, unlearned)


def _as_decision(prompt: Prompt, later: LaterSituation) -> Written:
    """What follows a first round: the acceptance of its answer, or how another plan begins, as
    far as every plan begins alike."""
    messages = [{"role": m.role, "content": m.text} for m in prompt.messages(later.context)]
    if later.is_right:
        return Written(messages, plan.write_acceptance(prompt.order))
    (first,) = later.context.rounds
    begun, key, _ = first.plan_text.partition(_FIRST_KEY)
    assert key, f"a plan in this form has {_FIRST_KEY} in it"
    return Written(messages, begun + key, is_whole=False)


def _places_of_ids(text: str) -> Iterator[tuple[int, int]]:
    return (number.span() for number in _ID.finditer(text))


def encode(pretrained: Pretrained, written: Sequence[Written], adapter: int) -> list[Example]:
    """The examples in tokens; every reply that is whole ends its turn."""
    tokenizer = pretrained.tokenizer
    prompts = tokenizer.apply_chat_template(
        [example.messages for example in written], tokenize=False, add_generation_prompt=True
    )
    asked = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    replied = tokenizer(
        [example.reply for example in written],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    examples = []
    for one, prompt, reply, places in zip(
        written, asked, replied["input_ids"], replied["offset_mapping"], strict=True
    ):
        labels = [
            token if _is_learned(place, one.unlearned) else UNLABELLED
            for token, place in zip(reply, places, strict=True)
        ]
        end = [pretrained.turn_end] if one.is_whole else []
        examples.append(Example(prompt, reply + end, labels + end, adapter, one.is_whole))
    return examples


def _is_learned(place: tuple[int, int], unlearned: Sequence[tuple[int, int]]) -> bool:
    return not any(begin < place[1] and place[0] < end for begin, end in unlearned)


def batches(
    groups: Sequence[Sequence[Example]],
    rows: int,
    steps: int,
    seed: int,
    most_tokens: int | None = None,
) -> Iterator[list[Example]]:
    """So many batches, each with so many rows of every group, of about one length; what would
    have more tokens, padding included, comes as several smaller ones."""
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    streams = [_endless(group, rng) for group in groups]
    made = 0
    while made < steps:
        shelves = [
            sorted(islice(stream, rows * BATCHES_SORTED_TOGETHER), key=lambda one: one.length)
            for stream in streams
        ]
        for place in rng.sample(range(BATCHES_SORTED_TOGETHER), BATCHES_SORTED_TOGETHER):
            batch = [shelf[place * rows : (place + 1) * rows] for shelf in shelves]
            for part in islice(_in_bounds(batch, most_tokens), steps - made):
                yield [example for group in part for example in group]
                made += 1


def _in_bounds(
    batch: list[list[Example]], most_tokens: int | None
) -> Iterator[list[list[Example]]]:
    """The batch, or its halves or quarters where it has more tokens than that."""
    rows = len(batch[0])
    width = max(example.length for group in batch for example in group)
    if most_tokens is None or rows % 2 or len(batch) * rows * width <= most_tokens:
        yield batch
        return
    for half in (slice(rows // 2), slice(rows // 2, rows)):
        yield from _in_bounds([group[half] for group in batch], most_tokens)


def _endless(group: Sequence[Example], rng: Random) -> Iterator[Example]:
    while True:
        yield from rng.sample(group, len(group))


def _in_parts(
    makers: Mapping[str, Callable[[int, int], list[Written]]], seed: int, count: int
) -> dict[str, list[Written]]:
    """So many examples of every maker, made by all processors."""
    share = -(-count // PARTS)
    seeds = [seed * 1_000 + part for part in range(PARTS)]
    jobs = [(name, maker, part) for name, maker in makers.items() for part in seeds]
    if count * len(makers) < FEW:
        made = [maker(part, share) for _, maker, part in jobs]
    else:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
            waiting = [processes.submit(maker, part, share) for _, maker, part in jobs]
            made = [future.result() for future in waiting]
    examples: dict[str, list[Written]] = {name: [] for name in makers}
    for (name, _, _), part in zip(jobs, made, strict=True):
        examples[name] += part
    return {name: group[:count] for name, group in examples.items()}
