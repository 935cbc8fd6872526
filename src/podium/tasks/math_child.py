"""The program that compares mathematics, started by `mathematics`.

It reads `["given", "wanted"]` per line and writes `true` or `false`. It needs math-verify and
nothing of Podium. It has no time limit of its own: the parent kills it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from typing import Final

from math_verify import parse, verify  # type: ignore[import-not-found, import-untyped, unused-ignore]

MAX_BYTES: Final = 4 * 1024**3
"""Memory, after which an expression is too large to be compared."""

PROSE: Final = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,} [a-zA-Z]{2,}|\n")
DOLLARS: Final = re.compile(r"(?<=\d)\s*(?:dollars?|USD)$")
SETS_MATHEMATICS_APART: Final = ("$", "\\boxed", "\\(", "\\[")


def main() -> None:
    _limit_memory()
    logging.disable()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        given, wanted = json.loads(line)
        sys.stdout.write("true\n" if is_equal(given, wanted) else "false\n")
        sys.stdout.flush()


def is_equal(given: str, wanted: str) -> bool:
    try:
        reference = parse(_as_mathematics(wanted), parsing_timeout=None)
        found = parse(_as_mathematics(given), parsing_timeout=None)
        return bool(verify(reference, found, timeout_seconds=None))
    except (ArithmeticError, ValueError, TypeError, RecursionError, MemoryError):
        return False  # what cannot be compared is not equal


def _as_mathematics(text: str) -> str:
    """An expression is marked as one; prose is left as it is, and math-verify looks for the
    expression in it. Amounts of money lose their sign, which would be taken for a mark, and their
    word, which math-verify does not know for a unit."""
    text = DOLLARS.sub("", text.strip().replace("\\$", ""))
    if PROSE.search(text) or any(mark in text for mark in SETS_MATHEMATICS_APART):
        return text
    return f"${text}$"


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # where a system has no limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


if __name__ == "__main__":
    main()
