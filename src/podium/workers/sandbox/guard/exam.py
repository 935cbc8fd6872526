"""A check that runs together with the program, in one process and one module.

Some checks need that: those of BigCodeBench replace parts of modules that the program uses, and
look into figures and tables that it returns. In one process a program could do anything to its
check. So what judges is put back to what it was before the program ran, and a canary, claims
that are false whatever the program is, runs beside the check: where these pass, somebody has
made the judges blind, and nothing is believed. The verdict counts only with a token that
arrives with the check, after the program was loaded. A program that knows all this can still forge;
`examiner` is for checks that can do without.
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from podium.workers.sandbox.guard.examiner import verdict_of_cases
from podium.workers.sandbox.guard.program import (
    CHECKED,
    LONGEST_VERDICT,
    PASSED,
    become,
    leave,
    settle_in,
)

_JUDGES: Final = ("builtins", "unittest", "unittest.case", "unittest.result", "unittest.suite")
_JUDGING_CLASSES: Final = (unittest.TestCase, unittest.TestResult, unittest.TestSuite)


def sit(codes: Sequence[CodeType], checking: int, writing: int) -> NoReturn:
    """Be the program, then its check. `checking` is a file with a token on its first line and the
    check below; only a verdict that begins with the token counts."""
    settle_in()
    judges = Judges()
    token = ""
    try:
        names = become(codes, CHECKED)
        judges.put_back()
        token, check = _handed(checking)
        exec(compile(check, "check.py", "exec", dont_inherit=True), names)  # noqa: S102
        verdict = verdict_of_cases(names)
        if verdict == PASSED and not canary_dies():
            verdict = "the program has changed how it is judged"
    except BaseException as error:  # noqa: BLE001 - of a check, too, that ends itself
        verdict = f"{type(error).__name__}: {error}"
    token = token or _handed(checking)[0]
    with open(writing, "w", encoding="utf-8", errors="replace") as file:
        file.write(f"{token}{verdict[:LONGEST_VERDICT]}")
    leave(0)


def _handed(checking: int) -> tuple[str, str]:
    """The token and the check, as the guard hands them over."""
    with open(checking, encoding="utf-8", errors="surrogatepass") as file:
        token, _, check = file.read().partition("\n")
    return token, check


class Judges:
    """What judges, as it was before the program ran."""

    def __init__(self) -> None:
        self._modules = {name: sys.modules[name] for name in _JUDGES}
        owners: list[ModuleType | type] = [*self._modules.values(), *_JUDGING_CLASSES]
        self._owned: list[tuple[Any, dict[str, Any]]] = [
            (owner, dict(vars(owner))) for owner in owners
        ]

    def put_back(self) -> None:
        """Undo whatever the program did to it while it was loaded."""
        sys.modules.update(self._modules)
        for owner, names in self._owned:
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)


_FALSE_CLAIMS: Final[Sequence[tuple[str, tuple[Any, ...]]]] = (
    ("assertEqual", (1, 2)),
    ("assertNotEqual", (1, 1)),
    ("assertTrue", ([],)),
    ("assertFalse", ([0],)),
    ("assertAlmostEqual", (1.0, 1.5)),
    ("assertIn", ("a", "bcd")),
    ("assertIs", ([], [])),
    ("assertIsInstance", ("a", int)),
    ("assertIsNone", (0,)),
    ("assertIsNotNone", (None,)),
    ("assertGreater", (1, 2)),
    ("assertLess", (2, 1)),
    ("assertListEqual", ([1], [2])),
    ("assertDictEqual", ({1: 1}, {1: 2})),
    ("assertRaises", (ValueError, list)),
    ("assertRegex", ("a", "b")),
)


class _Canary(unittest.TestCase):
    """One claim that is false."""

    def __init__(self, claim: str, about: tuple[Any, ...]) -> None:
        super().__init__("run_claim")
        self._claim = claim
        self._about = about

    def run_claim(self) -> None:
        """Claim it."""
        getattr(self, self._claim)(*self._about)


def canary_dies() -> bool:
    """Whether every false claim is still found to be false."""
    result = unittest.TestResult()
    for claim, about in _FALSE_CLAIMS:
        _Canary(claim, about).run(result)
    return len(result.failures) == len(_FALSE_CLAIMS) and not result.wasSuccessful()
