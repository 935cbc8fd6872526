"""Be the program: execute it for one input, in an isolated process."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from podium.workers.sandbox.child import kernel

PRELOADED: Final = (
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
"""Modules whose names a program may use without importing them, as on the sites that the tasks come
from."""

DEEPEST_RECURSION: Final = 50_000

PASSED: Final = "passed"
LONGEST_VERDICT: Final = 2000
CHECKED: Final = "checked"
"""The module name of a program under a check, so that its `__main__` part does not run."""


def preloaded_names() -> dict[str, Any]:
    """Return the names that a program starts with; builtins stay as they are."""
    names: dict[str, Any] = {}
    for module_name in PRELOADED:
        module = importlib.import_module(module_name)
        public = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        names |= {name: getattr(module, name) for name in public if not hasattr(builtins, name)}
    return names | {module_name: sys.modules[module_name] for module_name in PRELOADED}


def enter_program() -> None:
    """Remove every trace of the child but its code."""
    here = os.getcwd()
    os.environ.clear()
    path = f"{os.path.dirname(sys.executable)}:{os.defpath}"
    os.environ |= {"HOME": here, "TMPDIR": here, "PATH": path, "LANG": "C.UTF-8"}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    if "tempfile" in sys.modules:
        vars(sys.modules["tempfile"])["tempdir"] = None
    if kernel.IS_LINUX:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the program
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for name in [name for name in sys.modules if name.split(".")[0] == "podium"]:
        del sys.modules[name]
    sys.argv = ["program.py"]
    sys.setrecursionlimit(DEEPEST_RECURSION)


def execute(codes: Sequence[CodeType], name: str) -> dict[str, Any]:
    """Execute the program as that module; return its names."""
    program = ModuleType(name)
    program.__dict__.update(preloaded_names())
    program.__file__ = "program.py"
    sys.modules[name] = program
    for code in codes:
        exec(code, program.__dict__)  # noqa: S102 - this is what the sandbox is for
    return program.__dict__


def run_once(codes: Sequence[CodeType], function: str | None, output_fd: int) -> NoReturn:
    enter_program()
    status = 1
    try:
        names = execute(codes, "__main__")
        if function is not None:
            _call(names, function, output_fd)
        status = 0
    except SystemExit as leaving:
        status = _status_of(leaving)
    except BaseException:  # noqa: BLE001 - only the status is read
        status = 1
    exit_program(status)


def _call(names: dict[str, Any], function: str, output_fd: int) -> None:
    arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
    owner = names.get("Solution")
    called = getattr(owner(), function) if owner else names[function]
    with open(output_fd, "w", encoding="utf-8") as file:
        json.dump(called(*arguments), file)


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1


def exit_program(status: int) -> NoReturn:
    """Exit as Python does: threads, atexit functions, flush; without freeing memory."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - the program's own, at its very end
        status = status or 1
    finally:
        exit_now(status)


exit_now: Final = os._exit
"""A name of our own, which the program does not know."""
