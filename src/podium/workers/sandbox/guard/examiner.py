"""A check that runs in a process of its own, apart from the program that it is about.

A name that the check does not define itself is the program's: a function of it is called over
there, and its answer is compared here, where the program can change nothing. It never sees the
check, only what it is called with.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NoReturn

from podium.workers.sandbox.guard import kernel, wire
from podium.workers.sandbox.guard.program import LONGEST_VERDICT, PASSED, leave

MODULES: Final = MappingProxyType({"np": "numpy", "pd": "pandas"})
"""Modules that a check may look into under these names, or its own, without importing them: from
the program they might say anything."""
CHECK: Final = "check"


class Refused(Exception):
    """What the program raised when it was asked, where Python has no such exception itself."""


class OutOfTurn(Exception):
    """The program speaks on the line to the check, where only its server should."""


class Elsewhere:
    """Something that the program holds. Equality is ours to judge, so it is equal to itself
    alone."""

    _line: Line
    _number: int

    def __init__(self, line: Line, number: int) -> None:
        vars(self).update(_line=line, _number=number)

    def _ask(self, do: str, **rest: Any) -> Any:
        return self._line.ask({"do": do, "held": self._number, **rest})

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it over there."""
        return self._ask(
            "call",
            arguments=[self._line.pack(one) for one in arguments],
            named={name: self._line.pack(one) for name, one in named.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{name} of the program's objects is not asked for")
        return self._ask("attribute", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name=name, arguments=[self._line.pack(value)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elsewhere) and other._number == self._number

    def __hash__(self) -> int:
        return self._number

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", arguments=[self._line.pack(key)])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask("items"))

    def __len__(self) -> int:
        return int(self._ask("length"))

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self._ask("text"))

    @property
    def number(self) -> int:
        """By which the program knows it."""
        return self._number


class Line:
    """The line to the program: a question, then its answer."""

    def __init__(self, asking: int, hearing: int) -> None:
        self._questions = open(asking, "w", encoding="utf-8")  # noqa: SIM115 - while the check runs
        self._answers = open(hearing, encoding="utf-8")  # noqa: SIM115

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask, and raise what the program raised."""
        try:
            self._questions.write(json.dumps(question) + "\n")
            self._questions.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EOFError("the program ended before the check did")
        try:
            answer = json.loads(line)
            value = wire.unpack(answer.get("value"), self._held)
            error = _same_error(answer["error"], answer["told"]) if "error" in answer else None
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as wrong:
            raise OutOfTurn("the program wrote something else than an answer") from wrong
        if error is not None:
            raise error
        return value

    def pack(self, value: Any) -> Any:
        """A value of the check on its way to the program."""
        return wire.pack(value, _only_its_own)

    def _held(self, packed: Any) -> Any:
        return Elsewhere(self, packed["held"])


def _only_its_own(value: Any) -> dict[str, Any]:
    if isinstance(value, Elsewhere):
        return {"held": value.number}
    name = getattr(value, "__name__", "")
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return {"built_in": name}
    raise TypeError(f"a {type(value).__name__} of the check cannot be handed to the program")


def _same_error(name: str, told: str) -> Exception:
    form = getattr(builtins, name, None)
    if isinstance(form, type) and issubclass(form, Exception):
        try:
            return form(told)
        except TypeError:  # those that want more than a text
            pass
    return Refused(f"{name}: {told}")


class Names(dict[str, Any]):
    """The names of the check: its own, then what is built in, then the program's. Where a check
    names nothing of the program's, it is about functions that are called as built-in ones are
    (MBPP has a `sum`), and then these come from the program."""

    def __init__(self, line: Line, tree: ast.Module) -> None:
        super().__init__({"__name__": CHECK, "__builtins__": builtins})
        self._line = line
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        loaded = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        built_in = {name for name in loaded if hasattr(builtins, name)}
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        self._looked_into = {
            node.value.id for node in attributes if isinstance(node.value, ast.Name)
        }
        if not loaded - built_in:
            for name in built_in:
                with suppress(KeyError):
                    self[name] = self._from_program(name)

    def _from_program(self, name: str) -> Any:
        return self._line.ask({"do": "name", "name": name})

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        module = MODULES.get(name, name if name in sys.stdlib_module_names else None)
        if module and name in self._looked_into:
            self[name] = importlib.import_module(module)
        else:
            self[name] = self._from_program(name)
        return self[name]


def examine(check: str, asking: int, hearing: int, writing: int) -> NoReturn:
    """Run the check, and write the verdict: `passed`, or what went wrong."""
    if kernel.IS_LINUX:
        kernel.hide_memory()
    wire.allow_large_numbers()
    try:
        tree = ast.parse(check, "check.py")
        names = Names(Line(asking, hearing), tree)
        exec(compile(tree, "check.py", "exec", dont_inherit=True), names)  # noqa: S102
        verdict = verdict_of_cases(names)
    except BaseException as error:  # noqa: BLE001 - of a check, too, that ends itself
        verdict = f"{type(error).__name__}: {error}"
    with open(writing, "w", encoding="utf-8", errors="replace") as file:
        file.write(verdict[:LONGEST_VERDICT])
    leave(0)


def verdict_of_cases(names: dict[str, Any]) -> str:
    """What comes of the cases of `unittest` that a check defines; without any it has passed by
    now. That package is slow to import, so only checks that use it do."""
    if "unittest" not in sys.modules:
        return PASSED
    import unittest

    result = unittest.TestResult()
    for found in list(names.values()):
        if (
            isinstance(found, type)
            and issubclass(found, unittest.TestCase)
            and found.__module__ == names["__name__"]
        ):
            unittest.TestLoader().loadTestsFromTestCase(found).run(result)
    unexpected = [(test, "succeeded unexpectedly") for test in result.unexpectedSuccesses]
    # A check says with a decorator what it leaves out; whatever else skips is the program.
    skipped = [(test, "was skipped") for test, _ in result.skipped if not _is_left_out(test)]
    wrong = (*result.errors, *result.failures, *unexpected, *skipped)
    if not wrong:
        return PASSED if result.wasSuccessful() else "the cases failed without saying why"
    test, trace = wrong[0]
    return f"{test}: {trace.strip().splitlines()[-1]}"


def _is_left_out(test: Any) -> bool:
    method = getattr(test, getattr(test, "_testMethodName", ""), None)
    return bool(
        getattr(type(test), "__unittest_skip__", False)
        or getattr(method, "__unittest_skip__", False)
    )
