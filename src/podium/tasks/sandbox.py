"""Running programs that a model wrote, where they can do little harm and not for long.

    async for outcome in run_program(program, inputs):
        ...

A guard, a process of its own (`sandbox_guard`), runs the program once for each input: in a new
session, in an empty directory that is removed afterwards, with no environment, and with limits
on time, memory, file size, output and processes. Whatever it started ends with it. This keeps
accidents away from the machine; it does not hide the machine's files or its network from a
program that means harm, so grade as a user who may lose little.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from pydantic import ConfigDict

from podium.errors import ConfigError

_GUARD: Final = Path(__file__).with_name("sandbox_guard.py")
_SECONDS_TO_LEAVE: Final = 10.0
_SPARE_SECONDS: Final = 60.0
"""How much longer than a program may run its guard may keep silent, before it counts as lost."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use for one input."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    cpu_seconds: int = 6
    wall_seconds: float = 12.0
    memory_bytes: int = 1024**3
    file_bytes: int = 16 * 1024**2
    output_bytes: int = 4 * 1024**2
    processes: int = 16

    def __post_init__(self) -> None:
        for name, most in asdict(self).items():
            if most <= 0:
                raise ConfigError(f"the limit {name} must be more than 0, not {most:g}")


USUAL_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out, and what went wrong: None, or the reason in words."""

    output: str
    problem: str | None = None


def require_sandbox() -> None:
    """Say at once where programs cannot be run at all."""
    if not hasattr(os, "fork"):
        raise ConfigError(
            "programs can be graded on Linux and macOS only, where processes can be limited"
        )


async def run_program(
    program: str,
    inputs: Sequence[str],
    *,
    function: str | None = None,
    limits: Limits = USUAL_LIMITS,
) -> AsyncGenerator[Outcome, None]:
    """Run the program for each input in turn: what it wrote or, where a function is named, what
    that returned, as JSON. Whoever stops listening stops the program."""
    async with _gate():
        place = await asyncio.to_thread(tempfile.mkdtemp, prefix="podium-sandbox-")
        guard = await _start_guard(place)
        try:
            request = {
                "program": program,
                "function": function,
                "inputs": list(inputs),
                "limits": asdict(limits),
            }
            assert guard.stdin is not None
            guard.stdin.write(json.dumps(request).encode() + b"\n")
            for _ in inputs:
                yield await _next_outcome(guard, limits)
        finally:
            await _dismiss(guard)
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


async def _start_guard(place: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",  # nothing from the working directory or the environment
        "-X",
        "utf8",
        str(_GUARD),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=place,
        env={"PATH": os.defpath, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
        limit=2**30,
    )


async def _next_outcome(guard: Process, limits: Limits) -> Outcome:
    assert guard.stdout is not None
    try:
        async with asyncio.timeout(limits.wall_seconds + _SPARE_SECONDS):
            line = await guard.stdout.readline()
        told = json.loads(line)
    except (TimeoutError, ValueError):
        return Outcome("", "the program was lost together with its guard")
    return Outcome(told["output"], told["problem"])


async def _dismiss(guard: Process) -> None:
    """Tell the guard to end everything: it does when its input ends, also when we are killed."""
    assert guard.stdin is not None
    guard.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_LEAVE):
            await guard.communicate()
            return
    with suppress(ProcessLookupError):
        guard.kill()
    await guard.communicate()


_gates: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    """As many programs at once as there are processors: with more, right ones would run out of
    time."""
    loop = asyncio.get_running_loop()
    return _gates.setdefault(loop, asyncio.Semaphore(os.cpu_count() or 1))
