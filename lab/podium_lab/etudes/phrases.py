"""The words for one operation, in many phrasings; each split has its own.

A phrase is an order (`do`: "add 5 to 12"), a name for the answer (`np`: "the sum of 12 and 5"),
or an indirect question (`wh`: "how much 12 plus 5 makes"). Its slots take literals, or words that
refer to what came before: "it", "that number", "the two results".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any, Final, Literal, NamedTuple

from podium_lab.etudes.composition import Operation
from podium_lab.etudes.skills import COUNT, FAMILIES, ITEMS, SKILLS
from podium_lab.etudes.splits import SPLITS, Split
from podium_lab.etudes.values import Value, read_table

Mood = Literal["do", "np", "wh"]
MOODS: Final[tuple[Mood, ...]] = ("do", "np", "wh")

THE_RESULT: Final = "the result"
SIZES: Final = {2: ("two", "both"), 3: ("three", "all three")}


class Phrase(NamedTuple):
    """A template and what kind of clause it is."""

    mood: Mood
    template: str


class References(NamedTuple):
    """Words for earlier results, and among them those that no name for an answer can hold."""

    plain: tuple[str, ...]
    pronoun: tuple[str, ...]


@cache
def wording() -> Mapping[str, Any]:
    """The tables of connecting words."""
    return read_table("wording.toml")


@cache
def phrases(skill: str, split: Split) -> tuple[Phrase, ...]:
    """Every phrase for that skill."""
    table = _phrase_table()[skill][split]
    return tuple(Phrase(mood, template) for mood in MOODS for template in table[mood])


@cache
def names_of_answers(skill: str, split: Split) -> tuple[Phrase, ...]:
    """The phrases that name the answer, and so can stand inside others."""
    return tuple(phrase for phrase in phrases(skill, split) if phrase.mood == "np")


@cache
def orders(mood: Mood, split: Split) -> tuple[str, ...]:
    """The verbs that make an order of a phrase which is none."""
    return tuple(wording()["orders"][split][mood])


@cache
def references(split: Split, size: int) -> References:
    """The words for one, two or three earlier results."""
    table = wording()["reference" if size == 1 else "references"][split]
    two, both = SIZES.get(size, ("", ""))
    return References(
        *(
            tuple(text.replace("{two}", two).replace("{both}", both) for text in table[group])
            for group in References._fields
        )
    )


@cache
def counts(split: Split) -> tuple[str, ...]:
    """The words for an earlier result that counts something."""
    return tuple(wording()["reference"][split]["count"])


def the_results(size: int) -> str:
    """The plainest words for earlier results, as a plan uses them."""
    return THE_RESULT if size == 1 else f"the {SIZES[size][0]} results"


def clause(rng: Random, split: Split, operation: Operation, phrase: Phrase) -> str:
    """The phrase with its slots filled: literals as they are, the rest by reference."""
    pronouns = phrase.mood != "np" and not phrase.template.endswith("is {a}")
    return phrase.template.format_map(_fillings(rng, split, operation, pronouns=pronouns))


def order(rng: Random, split: Split, operation: Operation) -> str:
    """What to do, as a clause that may stand in the middle of a sentence."""
    phrase = rng.choice(phrases(operation.skill.name, split))
    text = clause(rng, split, operation, phrase)
    return text if phrase.mood == "do" else f"{rng.choice(orders(phrase.mood, split))} {text}"


def listed(items: list[str], *, conjunction: bool) -> str:
    """Items as a list in words; two of them always have the conjunction between them."""
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
            texts[slot] = rng.choice(counts(split))
        else:
            texts[slot] = _refer(
                rng, split, (value,), pronouns=pronouns and reads == 1, by_noun=reads > 1
            )
    return texts


def _items(rng: Random, split: Split, operation: Operation, *, pronouns: bool) -> str:
    """All arguments at once: by one reference where all are earlier results, else as a list."""
    arguments = operation.arguments
    if len(operation.reads) == len(arguments):
        return _refer(rng, split, arguments, pronouns=pronouns)
    texts = [
        value.text if source is None else _refer(rng, split, (value,))
        for value, source in zip(arguments, operation.sources, strict=True)
    ]
    return listed(texts, conjunction=rng.random() < 0.3)


def _refer(
    rng: Random,
    split: Split,
    values: tuple[Value, ...],
    *,
    pronouns: bool = False,
    by_noun: bool = False,
) -> str:
    """Words that stand for earlier results; by their noun where others could be meant."""
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
def _phrase_table() -> Mapping[str, Mapping[Split, Mapping[Mood, tuple[str, ...]]]]:
    table: dict[str, Any] = {}
    for family in FAMILIES:
        table.update(read_table(f"phrases/{family}.toml"))
    assert table.keys() == SKILLS.keys(), table.keys() ^ SKILLS.keys()
    return {
        name: {split: {mood: tuple(moods[mood]) for mood in MOODS} for split, moods in by.items()}
        for name, by in table.items()
        if by.keys() == set(SPLITS)
    }
