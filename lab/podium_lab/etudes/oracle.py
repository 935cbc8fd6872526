"""Perfect specialists: what each family's worker would reply if it never erred.

The oracle reads what a worker reads, the text of its message, and nothing else; so it also shows
that the text says all that is needed. It stands in for trained specialists where a conductor is
to be tried without them. What it cannot read as an operation of its family, it does not know.

References such as "it" and "the two results" are resolved on a stack. Each visible step pops the
results that it refers to and pushes its own: "it" is the topmost result that fits, "the two
results" are the two on top. A step that did not know its answer pushes an unknown one, and a step
that refers to it cannot be answered. Of the round before, only known results are pushed, of steps
that are not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.etude import (
    NUMBER_WORDS,
    connectives,
    nestings,
    phrases,
    references,
    wording,
)
from podium_lab.etudes.skills import COUNT, ITEMS, SKILLS, Skill
from podium_lab.etudes.values import UNSURE, Kind, Value, named_values

_SECTION: Final = re.compile(
    r'<subtask(?P<mark>[^\s>]*) step="(?P<step>[^"]*)">\n(?P<subtask>.*?)\n</subtask(?P=mark)>\n'
    r'<reply(?P=mark) step="(?P=step)">\n(?P<reply>.*?)\n</reply(?P=mark)>\n\n',
    re.DOTALL,
)
_MARKS: Final = ".?;,"
_BETWEEN_ITEMS: Final = re.compile(r", and |, | and ")
ROUND_BEFORE: Final = " of the round before"
"""How the engine marks a step of the round before; those come first."""

_ALL_RESULTS: Final = 0


class VisibleStep(NamedTuple):
    """A step as later workers see it; `before` says that it is of the round before."""

    subtask: str
    reply: str
    before: bool = False

    @property
    def is_unknown(self) -> bool:
        return self.reply.strip() == UNSURE


class Reference(NamedTuple):
    """So many earlier results, of that kind where the words name it."""

    size: int
    kind: Kind | None = None


class QuotedStep(NamedTuple):
    """The result of the visible step whose very words stand here."""

    step: int


Argument = Value | Reference | QuotedStep


class Reading(NamedTuple):
    """One way to understand a subtask."""

    skill: Skill
    arguments: tuple[Argument, ...]


def oracle_reply(family: str, message: str) -> str:
    subtask, shown = read_message(message)
    visible = _relevant_steps(subtask, shown)
    marked = _with_inner_marked(subtask, visible)
    answers = set()
    for reading in readings(marked):
        if reading.skill.family == family:
            arguments = _resolve(reading, visible)
            answer = reading.skill.solve(arguments) if arguments else None
            if answer is not None:
                answers.add(answer.text)
    return answers.pop() if len(answers) == 1 else UNSURE


def read_message(message: str) -> tuple[str, tuple[VisibleStep, ...]]:
    """Split a message into the subtask and the visible steps."""
    visible = []
    while section := _SECTION.match(message):
        before = section["step"].endswith(ROUND_BEFORE)
        visible.append(VisibleStep(section["subtask"], section["reply"], before))
        message = message[section.end() :]
    return message, tuple(visible)


def _relevant_steps(subtask: str, shown: Sequence[VisibleStep]) -> tuple[VisibleStep, ...]:
    """Drop the steps of the round before that were not known, are repeated in this round, or
    follow the step that is being repeated."""
    now = [step for step in shown if not step.before]
    again = {step.subtask.casefold() for step in now}
    before = []
    for step in shown[: len(shown) - len(now)]:
        if step.subtask.casefold() == subtask.casefold():
            break
        if not step.is_unknown and step.subtask.casefold() not in again:
            before.append(step)
    return (*before, *now)


# ---- reading a subtask


@lru_cache(maxsize=10_000)
def readings(subtask: str) -> tuple[Reading, ...]:
    """Return every interpretation of the subtask; none if it is no étude."""
    found = []
    for text in _without_leads(_end().sub("", subtask)):
        for skill, pattern in _patterns():
            match = pattern.fullmatch(text)
            arguments = _arguments(skill, match.groupdict()) if match else None
            if arguments is not None:
                found.append(Reading(skill, arguments))
    return tuple(found)


@cache
def _patterns() -> tuple[tuple[Skill, re.Pattern[str]], ...]:
    templates = {
        (skill.name, phrase.template)
        for skill in SKILLS.values()
        for split in SPLITS
        for phrase in phrases(skill.name, split)
    }
    return tuple(
        (
            SKILLS[name],
            re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(text)), re.IGNORECASE),
        )
        for name, text in sorted(templates)
    )


def _arguments(skill: Skill, texts: Mapping[str, str]) -> tuple[Argument, ...] | None:
    if skill.slots == (ITEMS,):
        whole = _reference(texts[ITEMS])
        if whole is not None and whole.size != 1:
            return (whole,)
        parts = _BETWEEN_ITEMS.split(texts[ITEMS])
        slots = [(ITEMS, position, part) for position, part in enumerate(parts)]
    else:
        slots = [(slot, position, texts[slot]) for position, slot in enumerate(skill.slots)]
    arguments = [_argument(slot, text, skill.kinds(position)) for slot, position, text in slots]
    found = tuple(argument for argument in arguments if argument is not None)
    return found if len(found) == len(arguments) else None


def _argument(slot: str, text: str, kinds: frozenset[Kind]) -> Argument | None:
    if inner := _inner().fullmatch(text):
        return QuotedStep(int(inner[1]))
    if slot == COUNT and text.casefold() in _count_words():
        return Reference(1, Kind.NUMBER)
    reference = _reference(text)
    if reference is not None:
        return reference if reference.size == 1 and slot != COUNT else None
    if Kind.LIST in kinds:
        return _literal_list(text)
    return next((value for value in named_values(text) if value.kind in kinds), None)


def _literal_list(text: str) -> Value | None:
    items = [named_values(item) for item in _BETWEEN_ITEMS.split(text)]
    if not all(items):
        return None
    return Value(Kind.LIST, ", ".join(values[0].text for values in items))


def _reference(text: str) -> Reference | None:
    return _reference_words().get(text.casefold())


@cache
def _reference_words() -> Mapping[str, Reference]:
    found: dict[str, Reference] = {}
    for split in SPLITS:
        for size in (1, *NUMBER_WORDS):
            for words in (text for group in references(split, size) for text in group):
                for kind in Kind:
                    text = words.replace("{nouns}", f"{kind}s").replace("{noun}", kind)
                    reference = Reference(size, kind if text != words else None)
                    known = found.setdefault(text.casefold(), reference)
                    if known.size != size:
                        found[text.casefold()] = Reference(_ALL_RESULTS)
    return found


@cache
def _count_words() -> frozenset[str]:
    return frozenset(text for split in SPLITS for text in wording()["reference"][split]["count"])


def _without_leads(text: str) -> Iterator[str]:
    """Yield the text, then the text without each leading connective."""
    yield text
    while lead := _lead().match(text):
        text = text[lead.end() :]
        yield text


@cache
def _lead() -> re.Pattern[str]:
    leads = {frame.partition("{clause}")[0] for frame in _frames()}
    for split in SPLITS:
        orders = wording()["orders"][split]
        leads |= {
            f"{verb} " for kind in ("noun_phrase", "indirect_question") for verb in orders[kind]
        }
        for words in connectives(split):
            leads |= {text.lstrip(f"{_MARKS} \n") for text in words[:-1]}
    patterns = [re.escape(lead).replace(r"\{n\}", r"\d+") for lead in leads if lead.strip()]
    return re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.IGNORECASE)


@cache
def _end() -> re.Pattern[str]:
    """Match the end of a clause: words such as ", please", and punctuation."""
    tails = {frame.partition("{clause}")[2].rstrip(_MARKS) for frame in _frames()}
    words = "|".join(re.escape(tail) for tail in sorted(tails) if tail)
    return re.compile(rf"(?:{words})?[{_MARKS}\s]*$", re.IGNORECASE)


@cache
def _inner() -> re.Pattern[str]:
    """Match a marked step, with or without the text around an inner phrase."""
    around = [nesting for split in SPLITS for nesting in nestings(split)]
    before = "|".join(sorted({re.escape(nesting.open) for nesting in around}))
    after = "|".join(sorted({re.escape(nesting.close) for nesting in around}))
    return re.compile(rf"(?:{before})⟦(\d+)⟧(?:{after})")


def _frames() -> Iterator[str]:
    for split in SPLITS:
        for frames in wording()["frames"][split].values():
            yield from frames
        yield from (nesting.frame for nesting in nestings(split))


# ---- what the references mean


def _resolve(reading: Reading, visible: Sequence[VisibleStep]) -> tuple[Value, ...] | None:
    values: list[Value] = []
    stack = _stack(visible)
    for argument in reading.arguments:
        if isinstance(argument, Value):
            values.append(argument)
            continue
        if isinstance(argument, QuotedStep):
            steps = [argument.step]
        elif argument.size == 1:
            steps = _topmost(reading.skill, len(values), argument.kind, visible, stack)
        else:
            steps = _on_top(argument.size, visible, stack)
            if len(steps) not in reading.skill.joins:
                return None
        if not steps:
            return None
        for step in steps:
            value = _find_value(reading.skill, len(values), None, visible[step].reply)
            if value is None:
                return None
            values.append(value)
    return tuple(values)


def _topmost(
    skill: Skill,
    position: int,
    kind: Kind | None,
    visible: Sequence[VisibleStep],
    stack: Sequence[int],
) -> list[int]:
    order = [*reversed(stack), *reversed(range(len(visible)))]
    for step in order:
        if _find_value(skill, position, kind, visible[step].reply) is not None:
            return [step]
        if visible[step].is_unknown and _could_fit(skill, position, kind, visible[step].subtask):
            return []
    return []


def _could_fit(skill: Skill, position: int, kind: Kind | None, subtask: str) -> bool:
    wanted = skill.kinds(position) if kind is None else {kind}
    understood = readings(subtask)
    return not understood or any(reading.skill.results & wanted for reading in understood)


def _on_top(size: int, visible: Sequence[VisibleStep], stack: Sequence[int]) -> list[int]:
    everything = list(range(len(visible)))
    if size == _ALL_RESULTS:
        return list(stack) if len(stack) in NUMBER_WORDS else everything
    if len(visible) == size or len(stack) < size:
        return everything[-size:]
    return list(stack[-size:])


def _find_value(skill: Skill, position: int, kind: Kind | None, reply: str) -> Value | None:
    for value in named_values(reply):
        if kind in (None, value.kind) and skill.accepts(position, value):
            return value
    return None


def _stack(visible: Sequence[VisibleStep]) -> list[int]:
    """Return the steps whose results no later visible step has used."""
    stack: list[int] = []
    for index, step in enumerate(visible):
        text = _with_inner_marked(step.subtask, visible[:index])
        understood = readings(text)
        for argument in understood[0].arguments if understood else ():
            if isinstance(argument, QuotedStep) and argument.step in stack:
                stack.remove(argument.step)
            elif isinstance(argument, Reference) and stack:
                del stack[-(argument.size or len(stack)) :]
        stack.append(index)
    return stack


def _with_inner_marked(subtask: str, visible: Sequence[VisibleStep]) -> str:
    """Replace the words of visible steps in the subtask by marks."""
    longest_first = sorted(range(len(visible)), key=lambda step: -len(visible[step].subtask))
    for step in longest_first:
        words = visible[step].subtask
        if len(words) < len(subtask):
            subtask = subtask.replace(words, f"⟦{step}⟧", 1)
    return subtask
