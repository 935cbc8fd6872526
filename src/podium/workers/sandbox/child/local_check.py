"""A check that runs in the program's own process and module.

BigCodeBench needs this: its checks patch modules that the program uses and inspect figures and
tables. In one process a program can tamper with its check. So `unittest` and the builtins are
restored before the check, a canary of false assertions must still fail, and a verdict counts only
with a token that arrives with the check, after the program was loaded. A program written against
this could still forge a verdict; use `remote_check` where possible.
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from podium.workers.sandbox.child.program import (
    CHECKED,
    LONGEST_VERDICT,
    PASSED,
    enter_program,
    execute,
    exit_now,
)
from podium.workers.sandbox.child.remote_check import run_test_cases

_CHECKED_MODULES: Final = (
    "builtins",
    "unittest",
    "unittest.case",
    "unittest.result",
    "unittest.suite",
)
_CHECKED_CLASSES: Final = (unittest.TestCase, unittest.TestResult, unittest.TestSuite)


def run(codes: Sequence[CodeType], check_fd: int, verdict_fd: int) -> NoReturn:
    """Execute the program, then its check.

    `check_fd` is a file with a token on its first line and the check below. Only a verdict that
    begins with the token counts.
    """
    enter_program()
    machinery = TestMachinery()
    token = ""
    try:
        names = execute(codes, CHECKED)
        machinery.restore()
        token, check = _read_check(check_fd)
        exec(compile(check, "check.py", "exec", dont_inherit=True), names)  # noqa: S102
        verdict = run_test_cases(names)
        if verdict == PASSED and not canary_fails():
            verdict = "the program has changed how it is judged"
    except BaseException as error:  # noqa: BLE001 - of a check, too, that ends itself
        verdict = f"{type(error).__name__}: {error}"
    token = token or _read_check(check_fd)[0]
    with open(verdict_fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(f"{token}{verdict[:LONGEST_VERDICT]}")
    exit_now(0)


def _read_check(check_fd: int) -> tuple[str, str]:
    with open(check_fd, encoding="utf-8", errors="surrogatepass") as file:
        token, _, check = file.read().partition("\n")
    return token, check


class TestMachinery:
    """A snapshot of `unittest` and the builtins, taken before the program runs."""

    def __init__(self) -> None:
        self._modules = {name: sys.modules[name] for name in _CHECKED_MODULES}
        owners: list[ModuleType | type] = [*self._modules.values(), *_CHECKED_CLASSES]
        self._owned: list[tuple[Any, dict[str, Any]]] = [
            (owner, dict(vars(owner))) for owner in owners
        ]

    def restore(self) -> None:
        """Undo every change that the program made."""
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
    def __init__(self, claim: str, about: tuple[Any, ...]) -> None:
        super().__init__("run_claim")
        self._claim = claim
        self._about = about

    def run_claim(self) -> None:
        getattr(self, self._claim)(*self._about)


def canary_fails() -> bool:
    result = unittest.TestResult()
    for claim, about in _FALSE_CLAIMS:
        _Canary(claim, about).run(result)
    return len(result.failures) == len(_FALSE_CLAIMS) and not result.wasSuccessful()
