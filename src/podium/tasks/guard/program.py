"""Being the program, in a child behind the walls: for one input, or as a server of functions."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, Final

from podium.tasks.guard import kernel, wire

AT_HAND: Final = (
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "itertools",
    "functools",
    "operator",
    "io",
    "json",
    "sys",
    "typing",
)
"""What a program may use without importing it, the modules and the names in them: such is the
custom of the sites that the tasks are from, whose own first lines name `List` and import nothing.
"""

DEEPEST_RECURSION: Final = 50_000

CHECKED: Final = "checked"
"""The module that a program is while it is checked: what it does as a script is left out."""


def names_at_hand() -> dict[str, Any]:
    """What a program finds before its first line. What is built in stays what it is."""
    names: dict[str, Any] = {}
    for module_name in AT_HAND:
        module = importlib.import_module(module_name)
        public = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        names |= {name: getattr(module, name) for name in public if not hasattr(builtins, name)}
    return names | {module_name: sys.modules[module_name] for module_name in AT_HAND}


def settle_in() -> None:
    """Leave everything of the guard behind but the code."""
    here = os.getcwd()
    os.environ.clear()
    os.environ |= {"HOME": here, "TMPDIR": here, "PATH": os.defpath, "LANG": "C.UTF-8"}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    tempfile.tempdir = None
    if kernel.IS_LINUX:
        kernel.show_memory()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the program
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for name in [name for name in sys.modules if name.split(".")[0] == "podium"]:
        del sys.modules[name]
    sys.argv = ["program.py"]
    sys.setrecursionlimit(DEEPEST_RECURSION)


def become(codes: Sequence[CodeType], name: str) -> dict[str, Any]:
    """Run the program as the module of that name; what it defined is returned."""
    program = ModuleType(name)
    program.__dict__.update(names_at_hand())
    program.__file__ = "program.py"
    sys.modules[name] = program
    for code in codes:
        exec(code, program.__dict__)  # noqa: S102 - this is what the sandbox is for
    return program.__dict__


def perform(codes: Sequence[CodeType], function: str | None, writing: int) -> int:
    """Be the program for one input: return its exit status, and let Python end as it always
    does."""
    settle_in()
    names = become(codes, "__main__")
    if function is not None:
        arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
        owner = names.get("Solution")
        called = getattr(owner(), function) if owner else names[function]
        with open(writing, "w", encoding="utf-8") as file:
            json.dump(called(*arguments), file)
    return 0


def serve(codes: Sequence[CodeType], hearing: int, answering: int) -> int:
    """Be the program that another process examines: it asks, and is given values."""
    settle_in()
    wire.allow_large_numbers()
    held = wire.Held()
    names: dict[str, Any] | None = None
    with open(hearing, encoding="utf-8") as questions, open(answering, "w") as answers:
        for question in questions:
            try:
                if names is None:
                    names = become(codes, CHECKED)
                answer = {"value": held.answer(json.loads(question), names)}
            except BaseException as error:  # noqa: BLE001 - whatever it is, the examiner decides
                answer = {"error": type(error).__name__, "told": _told(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


def _told(error: BaseException) -> str:
    """The error in its own words, which may fail too."""
    try:
        return str(error)[:1000]
    except BaseException:  # noqa: BLE001
        return ""
