"""The étude: a generated question with one right answer, and the plan that would find it.

    etudes = Etudes(seed=3, split="train")
    for etude in etudes.sample(20):
        print(etude.question, etude.answer, etude.own_plan)

The same seed gives the same études on every machine, and a larger sample begins with the
smaller one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Any, Final, Literal, NamedTuple

from podium.core.errors import UsageError
from podium.core.workflow import Step, Workflow
from podium_lab.etudes.composition import (
    DEFAULT_SHAPES,
    SPLITS,
    TEST_ONLY_SHAPES,
    EtudeShape,
    Operation,
    Split,
    compose_operations,
    signature,
)
from podium_lab.etudes.skills import COUNT, FAMILIES, ITEMS, SKILLS
from podium_lab.etudes.values import Kind, Value, read_table

ClauseKind = Literal["imperative", "noun_phrase", "indirect_question"]
CLAUSE_KINDS: Final[tuple[ClauseKind, ...]] = ("imperative", "noun_phrase", "indirect_question")

NUMBER_WORDS: Final = {2: ("two", "both"), 3: ("three", "all three")}


class Phrase(NamedTuple):
    """A template and the kind of its clause."""

    kind: ClauseKind
    template: str


class References(NamedTuple):
    """Words for earlier results, and among them those that no name for an answer can hold."""

    plain: tuple[str, ...]
    pronoun: tuple[str, ...]


@cache
def wording() -> Mapping[str, Any]:
    return read_table("wording.toml")


@cache
def phrases(skill: str, split: Split) -> tuple[Phrase, ...]:
    table = _phrase_table()[skill][split]
    return tuple(Phrase(kind, template) for kind in CLAUSE_KINDS for template in table[kind])


@cache
def references(split: Split, size: int) -> References:
    table = wording()["reference" if size == 1 else "references"][split]
    two, both = NUMBER_WORDS.get(size, ("", ""))
    return References(
        *(
            tuple(text.replace("{two}", two).replace("{both}", both) for text in table[group])
            for group in References._fields
        )
    )


def the_results(size: int) -> str:
    return "the result" if size == 1 else f"the {NUMBER_WORDS[size][0]} results"


def clause(rng: Random, split: Split, operation: Operation, phrase: Phrase) -> str:
    """Fill the slots of the phrase: literals as they are, the rest by reference."""
    pronouns = phrase.kind != "noun_phrase" and not phrase.template.endswith("is {a}")
    return phrase.template.format_map(_fillings(rng, split, operation, pronouns=pronouns))


def order(rng: Random, split: Split, operation: Operation) -> str:
    """Return an imperative clause that may stand in the middle of a sentence."""
    phrase = rng.choice(phrases(operation.skill.name, split))
    text = clause(rng, split, operation, phrase)
    if phrase.kind == "imperative":
        return text
    return f"{rng.choice(wording()['orders'][split][phrase.kind])} {text}"


def join_items(items: list[str], *, conjunction: bool) -> str:
    """Join items; two of them always have the conjunction between them."""
    if conjunction or len(items) == 2:
        return f"{', '.join(items[:-1])} and {items[-1]}"
    return ", ".join(items)


def _fillings(rng: Random, split: Split, operation: Operation, *, pronouns: bool) -> dict[str, str]:
    if operation.skill.slots == (ITEMS,):
        return {ITEMS: _items(rng, split, operation, pronouns=pronouns)}
    reads = len(operation.reads)
    texts = {}
    for slot, value, source in zip(
        operation.skill.slots, operation.arguments, operation.sources, strict=True
    ):
        if source is None:
            texts[slot] = value.text
        elif slot == COUNT:
            texts[slot] = rng.choice(wording()["reference"][split]["count"])
        else:
            texts[slot] = _refer(
                rng, split, (value,), pronouns=pronouns and reads == 1, by_noun=reads > 1
            )
    return texts


def _items(rng: Random, split: Split, operation: Operation, *, pronouns: bool) -> str:
    """Render all arguments: one reference if all are earlier results, else a list."""
    arguments = operation.arguments
    if len(operation.reads) == len(arguments):
        return _refer(rng, split, arguments, pronouns=pronouns)
    texts = [
        value.text if source is None else _refer(rng, split, (value,))
        for value, source in zip(arguments, operation.sources, strict=True)
    ]
    return join_items(texts, conjunction=rng.random() < 0.3)


def _refer(
    rng: Random,
    split: Split,
    values: tuple[Value, ...],
    *,
    pronouns: bool = False,
    by_noun: bool = False,
) -> str:
    """Return words for earlier results, by their noun where others could be meant."""
    kinds = {value.kind for value in values}
    words = references(split, len(values))
    choice = words.plain + words.pronoun if pronouns else words.plain
    if len(kinds) > 1:
        choice = tuple(text for text in choice if "{noun" not in text)
    elif by_noun:
        choice = tuple(text for text in choice if "{noun}" in text)
    noun = values[0].kind.value
    return rng.choice(choice).replace("{nouns}", f"{noun}s").replace("{noun}", noun)


@cache
def _phrase_table() -> Mapping[str, Mapping[Split, Mapping[ClauseKind, tuple[str, ...]]]]:
    table: dict[str, Any] = {}
    for family in FAMILIES:
        table.update(read_table(f"phrases/{family}.toml"))
    assert table.keys() == SKILLS.keys(), table.keys() ^ SKILLS.keys()
    return {
        name: {
            split: {kind: tuple(by_kind[kind]) for kind in CLAUSE_KINDS}
            for split, by_kind in by.items()
        }
        for name, by in table.items()
        if by.keys() == set(SPLITS)
    }


MAX_NESTING_DEPTH: Final = 3
"""Phrases inside each other are not understood any more beyond this depth."""

Style = Literal["one", "sequence", "nested"]


class Wording(NamedTuple):
    """A question, and the subtasks into which it falls."""

    style: Style
    question: str
    subtasks: tuple[str, ...]


class Connectives(NamedTuple):
    """The text before each clause in a row, and after the last one."""

    start: str
    link: str
    branch: str
    join: str
    last: str
    end: str


class Nesting(NamedTuple):
    """The frame of nested phrases, and what stands around an inner one."""

    frame: str
    open: str
    close: str


def write_question(
    rng: Random, split: Split, operations: Sequence[Operation], nested_phrase_share: float
) -> Wording:
    if len(operations) == 1:
        question = ask(rng, split, operations[0])
        return Wording("one", question, (question,))
    if rng.random() < nested_phrase_share:
        nested = nest(rng, split, operations)
        if nested is not None:
            return nested
    return write_sequence(rng, split, operations)


def ask(rng: Random, split: Split, operation: Operation) -> str:
    phrase = rng.choice(phrases(operation.skill.name, split))
    frame = rng.choice(wording()["frames"][split][phrase.kind])
    return capitalise(frame.format(clause=clause(rng, split, operation, phrase)))


def write_sequence(rng: Random, split: Split, operations: Sequence[Operation]) -> Wording:
    """Return imperative clauses in a row."""
    words = rng.choice(connectives(split))
    question = ""
    subtasks = []
    for index, operation in enumerate(operations):
        question += _before(words, operations, index)
        subtask = order(rng, split, operation)
        if not question or question.endswith((". ", "\n")):
            subtask = capitalise(subtask)
        question += subtask
        subtasks.append(subtask)
    return Wording("sequence", question + words.end, tuple(subtasks))


def nest(rng: Random, split: Split, operations: Sequence[Operation]) -> Wording | None:
    """Nest the phrases, or return None if the result is ambiguous."""
    nesting = rng.choice(nestings(split))
    whole: list[str] = []
    subtasks: list[str] = []
    depths: list[int] = []
    for operation in operations:
        inner = [whole[read] for read in operation.reads]
        depths.append(1 + max((depths[read] for read in operation.reads), default=0))
        choice = _nestable(operation, split, in_brackets=bool(nesting.open))
        unclear = not nesting.open and any(" and " in text for text in inner[:-1])
        if not choice or unclear or depths[-1] > MAX_NESTING_DEPTH:
            return None
        template = rng.choice(choice).template
        around = {
            read: f"{nesting.open}{text}{nesting.close}"
            for read, text in zip(operation.reads, inner, strict=True)
        }
        whole.append(template.format_map(_inside(operation, around)))
        if operation.skill.slots == (ITEMS,) and len(inner) == len(operation.arguments):
            by_result = {ITEMS: the_results(len(inner))}
        else:
            by_result = _inside(operation, dict.fromkeys(operation.reads, the_results(1)))
        subtasks.append(template.format_map(by_result))
    return Wording("nested", capitalise(nesting.frame.format(clause=whole[-1])), tuple(subtasks))


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


@cache
def connectives(split: Split) -> tuple[Connectives, ...]:
    return tuple(Connectives(**entry) for entry in wording()["sequence"][split])


@cache
def nestings(split: Split) -> tuple[Nesting, ...]:
    return tuple(Nesting(**entry) for entry in wording()["nested"][split])


def _before(words: Connectives, operations: Sequence[Operation], index: int) -> str:
    reads = len(operations[index].reads)
    if index == 0:
        text = words.start
    elif index == len(operations) - 1 and index > 1:
        text = words.last
    else:
        text = words.branch if not reads else words.link if reads == 1 else words.join
    return text.replace("{n}", str(index + 1))


def _nestable(operation: Operation, split: Split, *, in_brackets: bool) -> list[Phrase]:
    """Return the phrases that others may be nested in: without brackets, only at the end."""
    choice = [
        phrase for phrase in phrases(operation.skill.name, split) if phrase.kind == "noun_phrase"
    ]
    reads = len(operation.reads)
    if not reads:
        return choice
    slots = operation.skill.slots
    if COUNT in slots and operation.sources[slots.index(COUNT)] is not None:
        return []
    if in_brackets:
        return choice
    if slots == (ITEMS,) and reads < len(operation.arguments):
        return []
    return [phrase for phrase in choice if phrase.template.endswith(("{a}", "{items}"))]


def _inside(operation: Operation, around: dict[int, str]) -> dict[str, str]:
    texts = [
        value.text if source is None else around[source]
        for value, source in zip(operation.arguments, operation.sources, strict=True)
    ]
    if operation.skill.slots == (ITEMS,):
        joined = len(around) == len(texts)
        return {ITEMS: join_items(texts, conjunction=joined)}
    return dict(zip(operation.skill.slots, texts, strict=True))


NESTED_SHARE: Final = 0.25
"""How many of the questions of several steps are one phrase inside another."""


@dataclass(frozen=True, slots=True)
class EtudeStep:
    """One operation of an étude: who can do it, how a plan would ask for it, what comes out.

    `split_key` is the key by which its arguments belong to one split; None for what is learned
    by heart.
    """

    family: str
    skill: str
    subtask: str
    reads: tuple[int, ...]
    answer: str
    kind: Kind
    split_key: str | None = None


@dataclass(frozen=True, slots=True)
class Etude:
    """A practice task. `signature` is what it asks in no particular words; the id is a hash of
    the question, the same everywhere."""

    id: str
    split: Split
    shape: EtudeShape
    style: Style
    question: str
    steps: tuple[EtudeStep, ...]
    signature: str

    @property
    def answer(self) -> str:
        return self.steps[-1].answer

    @property
    def kind(self) -> Kind:
        return self.steps[-1].kind

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(step.family for step in self.steps)

    @property
    def own_plan(self) -> Workflow:
        """Return the plan of a perfect conductor: the specialist of each step, named by its family,
        and access to no more than the step needs."""
        return Workflow(tuple(Step(step.family, step.subtask, step.reads) for step in self.steps))


def make_etude(
    rng: Random, split: Split, shape: EtudeShape, *, nested_phrase_share: float = NESTED_SHARE
) -> Etude:
    if split == "train" and shape in TEST_ONLY_SHAPES:
        raise UsageError(f"études of shape {shape.value} are for testing alone; choose another")
    operations = compose_operations(rng, split, shape)
    words = write_question(rng, split, operations, nested_phrase_share)
    return Etude(
        blake2b(f"{split}\0{words.question}".encode(), digest_size=8).hexdigest(),
        split,
        shape,
        words.style,
        words.question,
        tuple(
            EtudeStep(
                operation.skill.family.value,
                operation.skill.name,
                subtask,
                operation.reads,
                operation.answer.text,
                operation.answer.kind,
                operation.split_key,
            )
            for operation, subtask in zip(operations, words.subtasks, strict=True)
        ),
        signature(operations),
    )


def draw_etude(
    rng: Random,
    split: Split,
    shapes: Mapping[EtudeShape, float],
    *,
    nested_phrase_share: float = NESTED_SHARE,
) -> Etude:
    return make_etude(rng, split, draw_shape(rng, shapes), nested_phrase_share=nested_phrase_share)


def draw_shape(rng: Random, shapes: Mapping[EtudeShape, float]) -> EtudeShape:
    (shape,) = rng.choices(list(shapes), list(shapes.values()))
    return shape


@dataclass(frozen=True, slots=True)
class Etudes:
    """An endless supply of études."""

    seed: int
    split: Split = "train"

    def stream(self, shapes: Mapping[EtudeShape, float] = DEFAULT_SHAPES) -> Iterator[Etude]:
        rng = Random(f"{self.seed}/{self.split}")  # noqa: S311 - to be repeatable, not secret
        while True:
            yield draw_etude(rng, self.split, shapes)

    def sample(self, n: int, shapes: Mapping[EtudeShape, float] = DEFAULT_SHAPES) -> list[Etude]:
        return list(islice(self.stream(shapes), n))


def held_out(
    n: int = 1000, seed: int = 0, shapes: Mapping[EtudeShape, float] = DEFAULT_SHAPES
) -> list[Etude]:
    """Return distinct études of the test split."""
    found: dict[str, Etude] = {}
    for etude in Etudes(seed, "test").stream(shapes):
        found.setdefault(etude.id, etude)
        if len(found) >= n:
            break
    return list(found.values())
