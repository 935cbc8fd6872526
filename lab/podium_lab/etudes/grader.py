"""Whether a reply is the answer.

Tolerant in form: case, spaces, emphasis, quotes, a full stop, "The answer is …", a sentence that
ends in the answer ("The largest of 3, 9 and 4 is 9."), a sum with its result. Strict in value: a
reply is right when it commits itself to the one right answer. Several sentences, several
candidates, or a sentence that names some other candidate on the way are wrong.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from podium_lab.etudes.etude import Etude
from podium_lab.etudes.values import MONTHS, WEEKDAYS, WORDS, Kind, esperanto_words, towns

LONGEST_REPLY: Final = 300
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
    """Whether the reply gives the étude's answer, and nothing else for an answer."""
    return is_answer(reply, etude.answer, etude.kind, etude.question)


def is_answer(reply: str, answer: str, kind: Kind, question: str = "") -> bool:
    """Whether the reply gives that answer of that kind; the question may be repeated in it."""
    if len(reply) > LONGEST_REPLY:
        return False
    wanted = _plain(answer, kind)
    text = _unwrapped(reply)
    if _plain(text, kind) == wanted:
        return True
    if _TWO_SENTENCES.search(text):
        return False
    *_, verb = [None, *_VERB.finditer(text)]
    if verb is None:
        return False
    lead, said = text[: verb.start()].strip(), text[verb.end() :]
    return _plain(said, kind) == wanted and _is_harmless(lead, kind, question)


def _unwrapped(text: str) -> str:
    text = unicodedata.normalize("NFC", text).casefold()
    text = _EMPHASIS.sub("", text).replace("it's ", "it is ").replace("that's ", "that is ")
    return text.strip().strip(_QUOTES).rstrip(_ENDS).strip(_QUOTES)


def _plain(text: str, kind: Kind) -> str:
    """The bare value, in the one spelling in which values are compared."""
    text = " ".join(_unwrapped(text).split())
    if kind is Kind.LIST:
        text = re.sub(r",? and ", ", ", text.strip("[]()"))
    text = re.sub(r" ?, ?", ", ", text)
    if kind is Kind.NUMBER and (counted := _UNIT.fullmatch(text)):
        return counted[1]
    noun = _NOUN.match(text)
    return text[noun.end() :].strip(_QUOTES) if noun else text


def _is_harmless(lead: str, kind: Kind, question: str) -> bool:
    """Whether the words before the answer name no other candidate than the question does, or are
    no more than the sum of which it is the result."""
    if _PLAIN_LEAD.fullmatch(lead) or _WORKING.fullmatch(lead):
        return True
    if _REFUSAL.search(lead):
        return False
    named = {token for token in _TOKEN.findall(lead) if _is_candidate(token, kind)}
    return named <= set(_TOKEN.findall(_unwrapped(question)))


def _is_candidate(token: str, kind: Kind) -> bool:
    if token.isdigit():
        return True
    if kind is Kind.NUMBER:
        return False
    return token in _names()


@cache
def _names() -> frozenset[str]:
    """The words that may be answers, letters and numerals aside: those are words as well."""
    values = (*WORDS, *WEEKDAYS, *MONTHS, *esperanto_words().values())
    texts = {value.text for value in values} | {town.name.text for town in towns()}
    return frozenset(text.casefold() for text in texts)
