"""Compare mathematics with math-verify, in child processes.

Simplifying an expression may take all time or memory: `9^{9^{9^9}}` is seven characters. A child
that does not answer in time is killed, and the answer counts as wrong.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Timer
from time import monotonic
from typing import Final

from podium.core.errors import ConfigError
from podium.tasks.answers import MAX_ANSWER_CHARS

COMPARISON_SECONDS: Final = 10.0
"""Most comparisons take milliseconds."""

START_SECONDS: Final = 120.0
"""Loading sympy takes about a second on an idle machine."""

MAX_CHILDREN: Final = 4

_CHILD: Final = Path(__file__).with_name("math_child.py")
_SIZING: Final = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|!|,|;|:|quad)(?![a-zA-Z])")
_WORDS: Final = re.compile(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}")
_THOUSANDS: Final = re.compile(r"(?<=\d)(?:,\\!|\{,\}|\\,) ?(?=\d{3}(?!\d))")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_NUMBER_OF_TIMES: Final = re.compile(r"-?\d+(?:\.\d+)?[a-zA-Z]")
_BASED: Final = re.compile(r"(?P<digits>[0-9A-Z]+)(?:_(?:\{(?P<braced>\d+)\}|(?P<base>\d+)))?")
_BOXED: Final = re.compile(r"\\(?:boxed|fbox)\{([^{}]*)\}")
_LOOSE_SPACE: Final = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
"""Space that is not between two digits."""


async def is_equal(given: str, wanted: str, seconds: float = COMPARISON_SECONDS) -> bool:
    """True if both are equal; False if that cannot be decided in time."""
    given, wanted = _spelt_out(given[-MAX_ANSWER_CHARS:]), _spelt_out(wanted)
    plain_given, plain_wanted = _untypeset(given), _untypeset(wanted)
    if plain_given == plain_wanted:
        return True
    if "_" in plain_wanted and (same := _same_base(plain_given, plain_wanted)) is not None:
        return same
    if _is_multiple(given, wanted) or _is_multiple(wanted, given):
        return False
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), _compare, given, wanted, seconds)


def _spelt_out(text: str) -> str:
    """The text in the signs that math-verify knows: thousands are not set apart, and degrees are
    no letter."""
    return _THOUSANDS.sub("", text).replace("°", "^\\circ").strip()


def _is_multiple(one: str, other: str) -> bool:
    """True for a number and its multiple of an unknown, which math-verify may take for a unit."""
    return bool(_NUMBER.fullmatch(one) and _NUMBER_OF_TIMES.fullmatch(other))


def _same_base(given: str, wanted: str) -> bool | None:
    """Compare digits and bases, which math-verify ignores; None if these are no such numbers."""
    mine, theirs = _BASED.fullmatch(given), _BASED.fullmatch(wanted)
    if mine is None or theirs is None:
        return None
    bases = {found["braced"] or found["base"] for found in (mine, theirs)} - {None}
    return mine["digits"] == theirs["digits"] and len(bases) == 1


def _untypeset(text: str) -> str:
    text = _WORDS.sub(r"\1", _BOXED.sub(r"\1", _SIZING.sub("", text)))
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\%", "%")
    return _LOOSE_SPACE.sub("", text.strip()).strip("$").rstrip(".")


@dataclass(slots=True)
class _Child:
    """A process with math-verify that makes one comparison at a time."""

    process: subprocess.Popen[str] = field(
        default_factory=lambda: subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-I", str(_CHILD)],  # -I: nothing from the working directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
    )

    def greet(self) -> None:
        if self._line(START_SECONDS) is None:
            assert self.process.stderr is not None
            said = self.process.stderr.read().strip().splitlines() or ["it said nothing"]
            self.close()
            raise ConfigError(f"math-verify could not be started: {said[-1]}")

    def compare(self, given: str, wanted: str, seconds: float) -> bool | None:
        """Compare; None if the child died or was killed."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([given, wanted]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._line(seconds)
        return None if line is None else line.strip() == "true"

    def _line(self, seconds: float) -> str | None:
        assert self.process.stdout is not None
        alarm = Timer(seconds, self.process.kill)
        alarm.start()
        try:
            return self.process.stdout.readline() or None
        finally:
            alarm.cancel()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


_idle: Final[SimpleQueue[_Child]] = SimpleQueue()


def _compare(given: str, wanted: str, seconds: float) -> bool:
    """Ask a child that waits for work. It may have died since it was last asked: then the
    question is put once more, to a new one."""
    try:
        waiting = _idle.get_nowait()
    except Empty:
        waiting = None
    began = monotonic()
    equal = _ask(waiting, given, wanted, seconds) if waiting else None
    if equal is None and (waiting is None or monotonic() - began < seconds):
        child = _Child()
        child.greet()
        equal = _ask(child, given, wanted, seconds)
    return bool(equal)


def _ask(child: _Child, given: str, wanted: str, seconds: float) -> bool | None:
    equal = child.compare(given, wanted, seconds)
    if equal is None:
        child.close()
    else:
        _idle.put(child)
    return equal


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MAX_CHILDREN, os.cpu_count() or 1), "math-verify")


@atexit.register
def close() -> None:
    """Stop every idle child; the next comparison starts another."""
    while True:
        try:
            _idle.get_nowait().close()
        except Empty:
            return
