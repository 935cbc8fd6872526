"""A check in a process of its own, which calls the program in another.

A name that the check does not define is the program's: its functions are called there and their
results are compared here, where the program can change nothing. The program sees only the
arguments.

Values cross as JSON and are rebuilt as builtin types, whatever the program's classes say about
equality. An object that cannot be copied stays with the program and is known by a number.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import decimal
import fractions
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, MappingProxyType
from typing import Any, Final, NoReturn

from podium.workers.sandbox.child import kernel
from podium.workers.sandbox.child.program import (
    CHECKED,
    LONGEST_VERDICT,
    PASSED,
    enter_program,
    execute,
    exit_now,
    exit_program,
)

MAX_ITEMS: Final = 1_000_000
"""Items that are read of an endless iterable."""

_SEQUENCES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_BY_TEXT: Final[Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, repr, complex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (
        datetime.datetime,
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}

EXITED: Final = "the program exited before the check finished"


def encode(value: Any, hold: Callable[[Any], Any]) -> Any:
    """Convert a value to JSON; `hold` takes what has no such form."""
    if value is None or type(value) in (bool, str):
        return value
    # By the types' own methods: those of a subclass are the program's.
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__mul__(value, 1.0)
    if isinstance(value, str):
        return str.__add__(value, "")
    for name, form in _SEQUENCES.items():
        if isinstance(value, form):  # type: ignore[arg-type]
            items = [encode(item, hold) for item in form.__iter__(value)]  # type: ignore[attr-defined]
            return {name: items}
    if isinstance(value, dict):
        pairs = dict.items(value)
        return {"dict": [[encode(key, hold), encode(item, hold)] for key, item in pairs]}
    for name, (form, to_text, _) in _BY_TEXT.items():
        if type(value) is form:
            return {name: to_text(value)}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not value.shape:
        return encode(value.item(), hold)
    return hold(value)


def decode(encoded: Any, held: Callable[[Any], Any]) -> Any:
    """Rebuild a value; `held` resolves objects of the other side."""
    if not isinstance(encoded, dict):
        return encoded
    ((name, content),) = encoded.items()
    if name in _SEQUENCES:
        return _SEQUENCES[name](decode(item, held) for item in content)
    if name == "dict":
        return {decode(key, held): decode(item, held) for key, item in content}
    if name in _BY_TEXT:
        return _BY_TEXT[name][2](content)
    return held(encoded)


class ObjectTable:
    """The program's side: the objects it holds for the check, and its answers."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def _hold(self, thing: Any) -> dict[str, int]:
        number = self._numbers.setdefault(id(thing), len(self._objects))
        if number == len(self._objects):
            self._objects.append(thing)
        return {"held": number}

    def _decode_object(self, encoded: Any) -> Any:
        if "built_in" in encoded:
            return getattr(builtins, encoded["built_in"])
        return self._objects[encoded["held"]]

    def answer(self, request: dict[str, Any], names: dict[str, Any]) -> Any:
        """Carry out a request of the check and return the encoded result."""
        if request["do"] == "name":
            return encode(names[request["name"]], self._hold)
        thing = self._decode_object(request)
        arguments = [decode(one, self._decode_object) for one in request.get("arguments", ())]
        named = {
            name: decode(one, self._decode_object) for name, one in request.get("named", {}).items()
        }
        match request["do"]:
            case "call":
                result = thing(*arguments, **named)
            case "attribute":
                result = getattr(thing, request["name"])
            case "set":
                setattr(thing, request["name"], arguments[0])
                result = None
            case "item":
                result = thing[arguments[0]]
            case "length":
                result = len(thing)
            case "text":
                result = str(thing)
            case _:
                result = [item for item, _ in zip(thing, range(MAX_ITEMS), strict=False)]
        return encode(result, self._hold)


def allow_large_numbers() -> None:
    """Lift Python's limit on the digits of integers, which JSON writes in decimal."""
    sys.set_int_max_str_digits(0)


def serve(codes: Sequence[CodeType], request_fd: int, reply_fd: int) -> NoReturn:
    """Execute the program and answer the check's requests in order."""
    enter_program()
    allow_large_numbers()
    held = ObjectTable()
    names: dict[str, Any] | None = None
    with open(request_fd, encoding="utf-8") as requests, open(reply_fd, "w") as replies:
        for request in requests:
            try:
                if names is None:
                    names = execute(codes, CHECKED)
                answer = {"value": held.answer(json.loads(request), names)}
            except BaseException as error:  # noqa: BLE001 - whatever it is, the examiner decides
                answer = {"error": type(error).__name__, "message": _message(error)}
            replies.write(json.dumps(answer) + "\n")
            replies.flush()
    exit_program(0)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:  # noqa: BLE001
        return ""


MODULES: Final = MappingProxyType({"np": "numpy", "pd": "pandas"})
"""Modules that a check may use without importing them; the program's could lie."""
CHECK: Final = "check"


class ProgramError(Exception):
    """The program raised an exception that is not a builtin one."""


class ProtocolViolation(Exception):
    """The program wrote to the check's pipe itself."""


class RemoteObject:
    """An object that the program holds; equal only to itself."""

    _program: RemoteProgram
    _number: int

    def __init__(self, program: RemoteProgram, number: int) -> None:
        vars(self).update(_program=program, _number=number)

    def _ask(self, do: str, **rest: Any) -> Any:
        return self._program.ask({"do": do, "held": self._number, **rest})

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._ask(
            "call",
            arguments=[self._program.encode(one) for one in arguments],
            named={name: self._program.encode(one) for name, one in named.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{name} of the program's objects is not asked for")
        return self._ask("attribute", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name=name, arguments=[self._program.encode(value)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteObject) and other._number == self._number

    def __hash__(self) -> int:
        return self._number

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", arguments=[self._program.encode(key)])

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
        return self._number


class RemoteProgram:
    """The connection to the program: one request, then its answer."""

    def __init__(self, request_fd: int, reply_fd: int) -> None:
        self._requests = open(request_fd, "w", encoding="utf-8")  # noqa: SIM115 - kept open
        self._replies = open(reply_fd, encoding="utf-8")  # noqa: SIM115

    def ask(self, request: dict[str, Any]) -> Any:
        """Send a request; raise what the program raised."""
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            line = self._replies.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EOFError(EXITED)
        try:
            answer = json.loads(line)
            value = decode(answer.get("value"), self._held)
            error = (
                _rebuild_error(answer["error"], answer["message"]) if "error" in answer else None
            )
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as wrong:
            raise ProtocolViolation("the program wrote something else than an answer") from wrong
        if error is not None:
            raise error
        return value

    def encode(self, value: Any) -> Any:
        return encode(value, _only_its_own)

    def _held(self, encoded: Any) -> Any:
        return RemoteObject(self, encoded["held"])


def _only_its_own(value: Any) -> dict[str, Any]:
    if isinstance(value, RemoteObject):
        return {"held": value.number}
    name = getattr(value, "__name__", "")
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return {"built_in": name}
    raise TypeError(f"a {type(value).__name__} of the check cannot be passed to the program")


def _rebuild_error(name: str, message: str) -> Exception:
    form = getattr(builtins, name, None)
    if isinstance(form, type) and issubclass(form, Exception):
        try:
            return form(message)
        except TypeError:  # those that want more than a text
            pass
    return ProgramError(f"{name}: {message}")


class CheckNames(dict[str, Any]):
    """The check's names: its own, then builtins, then the program's.

    A check that uses no name of the program tests functions with builtin names (MBPP has a `sum`);
    then those come from the program.
    """

    def __init__(self, program: RemoteProgram, tree: ast.Module) -> None:
        super().__init__({"__name__": CHECK, "__builtins__": builtins})
        self._program = program
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
        return self._program.ask({"do": "name", "name": name})

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        module = MODULES.get(name, name if name in sys.stdlib_module_names else None)
        if module and name in self._looked_into:
            self[name] = importlib.import_module(module)
        else:
            self[name] = self._from_program(name)
        return self[name]


def run(check: str, request_fd: int, reply_fd: int, verdict_fd: int) -> NoReturn:
    """Run the check and write the verdict: `passed`, or what went wrong."""
    if kernel.IS_LINUX:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    allow_large_numbers()
    try:
        tree = ast.parse(check, "check.py")
        names = CheckNames(RemoteProgram(request_fd, reply_fd), tree)
        exec(compile(tree, "check.py", "exec", dont_inherit=True), names)  # noqa: S102
        verdict = run_test_cases(names)
    except BaseException as error:  # noqa: BLE001 - of a check, too, that ends itself
        verdict = f"{type(error).__name__}: {error}"
    with open(verdict_fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(verdict[:LONGEST_VERDICT])
    exit_now(0)


def run_test_cases(names: dict[str, Any]) -> str:
    """Run the `unittest` cases that a check defines; without any it has passed.

    `unittest` is slow to import, so only checks that import it pay for it.
    """
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
