"""A Python interpreter as a worker: it runs the program of its step in the sandbox.

The program is the last fenced block in the step's subtask or in the replies that the step may
read, or else one of these texts as it is, if it is Python. The reply is what the program printed,
with the value of its last line as an interactive interpreter shows it. A program whose assertions
hold is itself the reply, after what it printed: code that passed its tests. A program that fails is
no failure of the worker: the reply then holds the error, and its `finish` is `error`.

Options are the sandbox's limits (`cpu_seconds`, `wall_seconds`, `memory_bytes`, …).
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import aclosing
from typing import Final

from podium.core.errors import ConfigError, RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, Usage
from podium.core.worker import Worker
from podium.workers.endpoints import Endpoint
from podium.workers.http import Http
from podium.workers.sandbox import ProgramLimits, ProgramResult, isolation_problem, run_program

LONGEST_PROGRAM: Final = 100_000
LONGEST_OUTPUT: Final = 8_000
"""Characters of a program's output that a reply holds: its start and its end."""

NO_PROGRAM: Final = "There is no Python program in this subtask, nor in what it may read."
NO_OUTPUT: Final = "The program ended without printing anything."
PASSED: Final = "All assertions of this program hold."

_FENCE: Final = "```"
_LANGUAGES: Final = ("", "python", "python3", "py")
_RAISED: Final = "\x1eraised: "
_GUARD: Final = f"""
try:
    pass
except Exception as _error:
    print({_RAISED!r} + type(_error).__name__ + ": " + str(_error))
    raise SystemExit(1)
"""
_REPLY: Final = re.compile(r"<(reply[\w-]*) step=\"[^\"]*\">\n(.*?)\n</\1>", re.S)


class PythonWorker(Worker):
    """Runs programs; nothing of one run is left for the next."""

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        self.profile = profile
        try:
            self._limits = ProgramLimits(**endpoint.options)
        except (TypeError, ConfigError) as error:
            raise ConfigError(f"worker {profile.name!r}: options: {error}") from error

    async def reply(self, request: Request) -> Reply:
        if problem := await isolation_problem():
            raise RequestRefused(f"worker {self.profile.name!r} cannot run programs: {problem}")
        program = find_program(request.messages[-1].text)
        if program is None:
            return _failure(NO_PROGRAM)
        try:
            prepared = prepare_program(program)
        except (SyntaxError, RecursionError) as error:
            return _failure(f"The program failed: {type(error).__name__}: {error}")
        async with aclosing(run_program(prepared, [""], limits=self._limits)) as results:
            result = await anext(results)
        if result.problem is not None:
            return _failure(_describe_failure(result))
        output = _shorten(result.output.strip())
        if has_assertions(program):
            passed = f"{PASSED}\n\n{_FENCE}python\n{program.strip()}\n{_FENCE}"
            output = f"{output}\n\n{passed}" if output else passed
        return Reply(output, Usage(0, 0), model="python") if output else _failure(NO_OUTPUT)


def find_program(text: str) -> str | None:
    """Return the program in a step's prompt; None if there is none."""
    fenced = [block for block in _blocks(text) if block.strip()]
    if fenced:
        return fenced[-1] if len(fenced[-1]) <= LONGEST_PROGRAM else None
    return next((part for part in _parts(text) if _is_program(part)), None)


def _blocks(text: str) -> Iterator[str]:
    """Yield the fenced blocks that are Python, or of no language."""
    language: str | None = None
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if not bare.startswith(_FENCE):
            lines.append(line)
        elif language is None:
            language, lines = bare.removeprefix(_FENCE).strip().lower(), []
        else:
            if language in _LANGUAGES:
                yield textwrap.dedent("".join(lines))
            language = None


def _parts(text: str) -> Iterator[str]:
    """Yield the subtask, then the replies before it, the last one first."""
    replies = list(_REPLY.finditer(text))
    yield text[replies[-1].end() :] if replies else text
    yield from (found[2] for found in reversed(replies))


def _is_program(text: str) -> bool:
    """True for Python that does something: a word or a number alone is an answer."""
    body = _parse(text.strip())
    if not body:
        return False
    only = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    return not isinstance(only, ast.Constant | ast.Name | ast.Tuple | ast.Attribute)


def _parse(program: str) -> list[ast.stmt]:
    try:
        return parse_program(program)
    except SyntaxError:
        return []


def parse_program(program: str) -> list[ast.stmt]:
    if len(program) > LONGEST_PROGRAM:
        raise SyntaxError("the program is too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(program).body
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from error


def has_assertions(program: str) -> bool:
    """True if assertions are executed: at the top level, or in functions called from there."""
    body = parse_program(program)
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    executed = [one for one in body if not isinstance(one, definitions)]
    names = {node.id for one in executed for node in ast.walk(one) if isinstance(node, ast.Name)}
    executed += [one for one in body if isinstance(one, definitions) and one.name in names]
    return any(isinstance(node, ast.Assert) for one in executed for node in ast.walk(one))


def prepare_program(program: str) -> str:
    """Return the program with its last value printed, if it has one, and with its error."""
    body = parse_program(program)
    first = 1 + max((i for i, one in enumerate(body) if _is_declaration(one)), default=-1)
    last = body[-1] if body[first:] else None
    if isinstance(last, ast.Expr):
        shown, printed = ast.parse("_ = None\nif _ is not None: print(_)").body
        assert isinstance(shown, ast.Assign)
        shown.value = last.value
        body[-1:] = [shown, printed]
    (guarded,) = ast.parse(_GUARD).body
    assert isinstance(guarded, ast.Try)
    guarded.body = body[first:] or guarded.body
    return ast.unparse(ast.Module([*body[:first], guarded], []))


def _is_declaration(statement: ast.stmt) -> bool:
    """True for what must stay at the top of a file."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _describe_failure(result: ProgramResult) -> str:
    printed, raised, error = result.output.rpartition(_RAISED)
    problem = error.strip() if raised else result.problem
    before = _shorten((printed if raised else result.output).strip())
    return f"The program failed: {problem}" + (f"\nIt printed before:\n{before}" if before else "")


def _failure(text: str) -> Reply:
    return Reply(text, Usage(0, 0), "error", model="python")


def _shorten(output: str) -> str:
    if len(output) <= LONGEST_OUTPUT:
        return output
    half = LONGEST_OUTPUT // 2
    left_out = len(output) - 2 * half
    return f"{output[:half]}\n[{left_out:,} characters left out]\n{output[-half:]}"
