"""Other ways to write a mathematical answer, and answers that are nearly it: what the grader of
mathematics is itself tested by.

Everything here is text to text. A rewriting means the same as the answer; a near miss does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

_GROUP: Final = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION: Final = re.compile(rf"\\[dt]?frac\s*(?:{_GROUP}|(\d))\s*(?:{_GROUP}|(\d))")
_SLASH: Final = re.compile(r"(?<![\w/])(\d+)/(\d+)(?![\w/])")
_WHOLE_FRACTION: Final = re.compile(rf"-?{_FRACTION.pattern}")
_NUMBER: Final = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)")
_INTEGER: Final = re.compile(r"-?\d+")
_GROUPED: Final = re.compile(r"(?<=\d),\\! ?(?=\d{3})")
_UNIT: Final = re.compile(r"\s*\\(?:text|mbox)\{\s*(inches|cm|cents|degrees)\s*\}(\^2)?$")
_WORDS: Final = re.compile(r"\\text\{([^{}]*)\}")
_BASE: Final = re.compile(r"(\d+)_\{?(\d+)\}?")
_PLUS_MINUS: Final = re.compile(r"([^\\]+?)\s*\\pm\s*(.+)")
_SPACE: Final = re.compile(r"(?P<command>\\[a-zA-Z]+)?\s+(?=(?P<next>.))")
_OPERATOR: Final = re.compile(r"(?<=[\w})])\s*([-+=,])\s*(?=[\w\\(])(?!\\!)")
_ONE_THING: Final = re.compile(r"[(\[$]|,\\!|\{,\}|\\text|^\d{1,3}(?:,\d{3})+$")
"""What has commas and is no list: a point, an amount of money, a number with its thousands set
apart, words."""
_BRACKETS: Final = re.compile(r"[(\[](.+),(.+)[)\]]")


class Written(NamedTuple):
    """A text, and what was done to come by it."""

    how: str
    text: str


def rewritings(answer: str) -> list[Written]:
    """The answer in other ways that mean the same, each once, itself left out."""
    found: dict[str, Written] = {}
    for way in chain(
        _fractions(answer), _spacing(answer), _units(answer), _orders(answer), _wrapping(answer)
    ):
        if way.text != answer:
            found.setdefault(way.text, way)
    return list(found.values())


def _fractions(answer: str) -> Iterator[Written]:
    if _FRACTION.search(answer):
        yield Written("fractions", _FRACTION.sub(_as(r"\dfrac{%s}{%s}"), answer))
        yield Written("fractions", _FRACTION.sub(_as(r"\tfrac{%s}{%s}"), answer))
        yield Written("fractions", _FRACTION.sub(_as(r"\frac {%s} {%s}"), answer))
        if _WHOLE_FRACTION.fullmatch(answer):
            yield Written("fractions", _FRACTION.sub(_divided, answer))
    if _SLASH.search(answer):
        yield Written("fractions", _SLASH.sub(r"\\frac{\1}{\2}", answer))
    if decimal := _as_decimal(answer):
        yield Written("fractions", decimal)


def _as(form: str) -> Callable[[re.Match[str]], str]:
    return lambda found: form % _parts(found)


def _divided(found: re.Match[str]) -> str:
    return "/".join(part if part.isalnum() else f"({part})" for part in _parts(found))


def _upside_down(found: re.Match[str]) -> str:
    top, bottom = _parts(found)
    return f"\\frac{{{bottom}}}{{{top}}}"


def _parts(found: re.Match[str]) -> tuple[str, str]:
    return found[1] or found[2], found[3] or found[4]


def _as_decimal(answer: str) -> str | None:
    """A fraction of integers as a decimal, where that ends."""
    if not _WHOLE_FRACTION.fullmatch(answer):
        return None
    found = _FRACTION.search(answer)
    assert found is not None
    top, bottom = _parts(found)
    if not top.isdigit() or not bottom.isdigit():
        return None
    value = Fraction(int(top), int(bottom))
    places = next((n for n in range(8) if value.denominator and 10**n % value.denominator == 0), 0)
    if not places:
        return None
    return f"{'-' if answer.startswith('-') else ''}{float(value):.{places}f}"


def _spacing(answer: str) -> Iterator[Written]:
    yield Written("spacing", _SPACE.sub(_closed, answer))
    if "\\text" not in answer:
        yield Written("spacing", _OPERATOR.sub(r" \1 ", answer))
        yield Written("spacing", _OPERATOR.sub(r"\\, \1 \\,", answer))
    yield Written("spacing", f" {answer}\n")
    if _GROUPED.search(answer):
        yield Written("spacing", _GROUPED.sub("", answer))
        yield Written("spacing", _GROUPED.sub(",", answer))


def _closed(found: re.Match[str]) -> str:
    """No space, but where it ends a command."""
    command = found["command"] or ""
    return f"{command} " if command and found["next"].isalpha() else command


def _units(answer: str) -> Iterator[Written]:
    if answer.endswith("^\\circ") and answer.count("\\circ") == 1:
        number = answer.removesuffix("^\\circ")
        for written in ("", "^{\\circ}", "°", " degrees", "\\text{ degrees}"):
            yield Written("units", f"{number}{written}")
    elif answer.startswith("\\$"):
        amount = _GROUPED.sub(",", answer.removeprefix("\\$"))
        for written in ("${}", "{}", "{} dollars", "{}\\text{{ dollars}}"):
            yield Written("units", written.format(amount))
    elif unit := _UNIT.search(answer):
        number = answer[: unit.start()]
        yield Written("units", number)
        yield Written("units", f"{number}\\text{{ {unit[1]}}}{unit[2] or ''}")
        yield Written("units", f"{number}\\ \\mathrm{{{unit[1]}}}{unit[2] or ''}")
    elif _NUMBER.fullmatch(answer):
        for written in ("\\text{ units}", "\\text{ cm}", "\\text{ cm}^2", " cm", "\\ \\mathrm{m}"):
            yield Written("units", f"{answer}{written}")


def _orders(answer: str) -> Iterator[Written]:
    inside = answer.removeprefix("\\{").removesuffix("\\}")
    braced = inside != answer
    if "\\pm" in inside:
        if both := _PLUS_MINUS.fullmatch(inside):
            yield Written("ordering", f"{both[1]}-{both[2]}, {both[1]}+{both[2]}")
    elif "," in inside and not _ONE_THING.search(inside):
        members = [member.strip() for member in inside.split(",")]
        turned = ", ".join(reversed(members))
        yield Written("ordering", f"\\{{{turned}\\}}" if braced else turned)
        yield Written("ordering", turned if braced else f"\\{{{turned}\\}}")
    if "\\cup" in answer:
        yield Written("ordering", "\\cup".join(reversed(answer.split("\\cup"))))
    if braced and "," in inside and "\\pm" in inside:
        yield Written("ordering", "\\{" + ",".join(reversed(inside.split(","))) + "\\}")


def _wrapping(answer: str) -> Iterator[Written]:
    """What is around the answer, and not of it."""
    yield Written("wrapping", f"${answer}$")
    yield Written("wrapping", f"\\boxed{{{answer}}}")
    yield Written("wrapping", f"{answer}.")
    if words := _WORDS.fullmatch(answer):
        yield Written("wrapping", words[1])
        yield Written("wrapping", words[1].strip("()"))
    if "\\left" in answer:
        yield Written("wrapping", answer.replace("\\left", "").replace("\\right", ""))
    elif answer[0] in "([" and answer[-1] in ")]" and "\\cup" not in answer:
        yield Written("wrapping", f"\\left{answer[:-1]}\\right{answer[-1]}")
    if _BASE.fullmatch(answer):
        yield Written("wrapping", _BASE.sub(r"\1_{\2}", answer))
        yield Written("wrapping", _BASE.sub(r"\1_\2", answer))
    if "pmatrix" in answer:
        yield Written("wrapping", answer.replace("pmatrix", "bmatrix"))
    if _NUMBER.fullmatch(answer):
        yield Written("wrapping", f"x = {answer}")


def near_misses(answer: str) -> list[Written]:
    """Answers that differ in what matters, and in little else."""
    found: dict[str, Written] = {}
    for miss in _near_misses(answer):
        if miss.text != answer:
            found.setdefault(miss.text, miss)
    return list(found.values())


def _near_misses(answer: str) -> Iterator[Written]:
    if _INTEGER.fullmatch(answer):
        yield Written("one more", str(int(answer) + 1))
        if int(answer):
            yield Written("other sign", str(-int(answer)))
            yield Written("ten times", f"{answer}0")
    elif _NUMBER.fullmatch(answer):
        yield Written("one more", str(float(answer) + 1))
        yield Written("rounded", f"{float(answer) * 1.05:.6g}")
    if _WHOLE_FRACTION.fullmatch(answer):
        yield Written("upside down", _FRACTION.sub(_upside_down, answer))
        yield Written("other sign", answer[1:] if answer.startswith("-") else f"-{answer}")
    if "\\sqrt" in answer:
        yield Written("no root", answer.replace("\\sqrt", ""))
    bare = answer.replace("\\left", "").replace("\\right", "")
    if pair := _BRACKETS.fullmatch(bare):
        if "\\cup" not in bare and bare.count(",") == 1 and pair[1].strip() != pair[2].strip():
            yield Written("other order", f"{bare[0]}{pair[2].strip()},{pair[1].strip()}{bare[-1]}")
        if "\\infty" not in bare and ("[" in bare or "]" in bare):
            other = str.maketrans("([)]", "[(])")
            yield Written("other brackets", bare.translate(other))
    if base := _BASE.fullmatch(answer):
        yield Written("other base", f"{base[1]}_{{{int(base[2]) + 1}}}")
    if answer.endswith("i") and "+" in answer:
        yield Written("conjugate", answer.replace("+", "-"))
