"""Études and everyday questions as tasks, and their graders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from podium._util.lab import EVERYDAY
from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.workflow import Workflow
from podium_lab.etudes.composition import (
    DEFAULT_SHAPES,
    SPLITS,
    TEST_ONLY_SHAPES,
    EtudeShape,
    Split,
)
from podium_lab.etudes.etude import Etude, Etudes, held_out
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.values import (
    MONTHS,
    UNSURE,
    WEEKDAYS,
    WORDS,
    Kind,
    esperanto_words,
    read_table,
    towns,
)
from podium_lab.etudes.workers import GENERALIST

MAX_REPLY_TAIL: Final = 300
"""No answer with its wrapping is longer."""

_EMPHASIS: Final = re.compile(r"\*\*+|(?<!\s)\*|\*(?!\s)|[`_$]+")
_QUOTES: Final = "\"'“”‘’«»"
_ENDS: Final = " .!"
_TWO_SENTENCES: Final = re.compile(r"[.!?;]\s+\S|\n")
_VERB: Final = re.compile(r"(?:\b(?:is|are|equals|makes)\b|[=:])")
_PLAIN_LEAD: Final = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:it|that|this|(?:the |my )?(?:final |correct |right )?"
    r"(?:answer|result|value))"
)
_WORKING: Final = re.compile(r"[\d\s().]+(?:[-+*/×÷x][\d\s().]+)+")
_REFUSAL: Final = re.compile(r"\b(?:not|or|either|neither|nor)\b|n't\b")
_NOUN: Final = re.compile(rf"(?:the )?(?:{'|'.join(kind.value.lower() for kind in Kind)}) ")
_UNIT: Final = re.compile(
    r"(\d+) (?:days?|letters?|bridges|feet|eggs|things|items|entries|dozen|weeks|yards)"
)
_TOKEN: Final = re.compile(r"[^\W_]+")


def grade(reply: str, etude: Etude) -> bool:
    return is_answer(reply, etude.answer, etude.kind, etude.question)


def is_answer(reply: str, answer: str, kind: Kind, question: str = "") -> bool:
    if len(reply) > MAX_REPLY_TAIL:
        return False
    wanted = _plain(answer, kind)
    text = _unwrap(reply)
    if _plain(text, kind) == wanted:
        return True
    if _TWO_SENTENCES.search(text):
        return False
    *_, verb = [None, *_VERB.finditer(text)]
    if verb is None:
        return False
    lead, said = text[: verb.start()].strip(), text[verb.end() :]
    return _plain(said, kind) == wanted and _is_harmless(lead, kind, question)


def _unwrap(text: str) -> str:
    text = unicodedata.normalize("NFC", text).casefold()
    text = _EMPHASIS.sub("", text).replace("it's ", "it is ").replace("that's ", "that is ")
    return text.strip().strip(_QUOTES).rstrip(_ENDS).strip(_QUOTES)


def _plain(text: str, kind: Kind) -> str:
    """Return the bare value in the spelling for comparison."""
    text = " ".join(_unwrap(text).split())
    if kind is Kind.LIST:
        text = re.sub(r",? and ", ", ", text.strip("[]()"))
    text = re.sub(r" ?, ?", ", ", text)
    if kind is Kind.NUMBER and (counted := _UNIT.fullmatch(text)):
        return counted[1]
    noun = _NOUN.match(text)
    return text[noun.end() :].strip(_QUOTES) if noun else text


def _is_harmless(lead: str, kind: Kind, question: str) -> bool:
    """True if the text before the answer names only candidates of the question, or is the
    calculation of the answer."""
    if _PLAIN_LEAD.fullmatch(lead) or _WORKING.fullmatch(lead):
        return True
    if _REFUSAL.search(lead):
        return False
    named = {token for token in _TOKEN.findall(lead) if _is_candidate(token, kind)}
    return named <= set(_TOKEN.findall(_unwrap(question)))


def _is_candidate(token: str, kind: Kind) -> bool:
    return token.isdigit() or (kind is not Kind.NUMBER and token in _names())


@cache
def _names() -> frozenset[str]:
    values = (*WORDS, *WEEKDAYS, *MONTHS, *esperanto_words().values())
    texts = {value.text for value in values} | {town.name.text for town in towns()}
    return frozenset(text.casefold() for text in texts)


@cache
def everyday_questions(split: Split) -> tuple[str, ...]:
    return tuple(read_table("everyday.toml")[split])


def is_direct_plan(workflow: Workflow, question: str) -> bool:
    """True if the plan passes the unchanged question to the generalist, or to a specialist that
    knows the answer; workers are named by their roles."""
    if len(workflow) != 1 or workflow.steps[0].subtask != question:
        return False
    worker = workflow.steps[0].worker
    if worker in FAMILIES:
        return oracle_reply(worker, question) != UNSURE
    return worker == GENERALIST


def everyday_task(question: str) -> Task:
    """Return an everyday question as a task. A plan is right if it leaves the question alone: one
    step, for a worker that can take it."""
    return Task(
        id=f"{EVERYDAY}/{blake2b(question.encode(), digest_size=8).hexdigest()}",
        question=question,
        grader=_never_graded,
        kind=EVERYDAY,
        plan_grader=partial(is_direct_plan, question=question),
    )


async def _never_graded(answer: str) -> bool:
    return False


def everyday_suite(split: str = "test") -> list[Task]:
    """Return the everyday questions for testing (`test`) or for training (`train`)."""
    for known in SPLITS:
        if split == known:
            return [everyday_task(question) for question in everyday_questions(known)]
    raise ConfigError(f"everyday questions have no split {split!r}; they have {', '.join(SPLITS)}")


LONGER_SHAPES: Final[Mapping[EtudeShape, float]] = MappingProxyType(
    dict.fromkeys(sorted(TEST_ONLY_SHAPES), 1.0)
)
"""The shapes that are longer than any in training."""

ETUDE_SPLITS: Final = ("test", "longer", "train")


@dataclass(frozen=True, slots=True)
class AnswerGrader:
    """Decides whether a reply gives an answer of an étude; the question may be repeated in it."""

    expected: str
    kind: Kind
    question: str = ""

    async def __call__(self, answer: str) -> bool:
        return is_answer(answer, self.expected, self.kind, self.question)


def etude_task(etude: Etude) -> Task:
    """Return the étude as a task: its kind is the shape, its difficulty the number of steps, and
    the results of its other steps are milestones."""
    *earlier, last = etude.steps
    return Task(
        id=etude.id,
        question=etude.question,
        grader=AnswerGrader(last.answer, last.kind, etude.question),
        kind=etude.shape.value,
        difficulty=str(len(etude.steps)),
        answer=last.answer,
        milestones=tuple(AnswerGrader(step.answer, step.kind) for step in earlier),
    )


def etude_suite(n: int, seed: int = 0, split: str = "test") -> list[Task]:
    if split == "train":
        etudes = Etudes(seed, "train").sample(n)
    elif split in ETUDE_SPLITS:
        etudes = held_out(n, seed, LONGER_SHAPES if split == "longer" else DEFAULT_SHAPES)
    else:
        raise ConfigError(f"études have no split {split!r}; they have {', '.join(ETUDE_SPLITS)}")
    return [etude_task(etude) for etude in etudes]
