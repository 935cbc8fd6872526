"""Running programs that a model wrote, where they can do no harm and not for long.

    async for outcome in run_program(program, inputs):    what it wrote, or its function returned
        ...
    outcome = await run_check(program, check)              whether a check of it passes

A guard, a process of its own (`podium.tasks.guard`), runs the program behind as many walls as
the system lets it build: no network, no files but Python's own for reading, no other processes
to see, an empty directory that goes with it, no environment, and limits on time, memory, files,
output and processes. Whatever it started ends with it. `standing_walls` says which walls stand on
this machine, and one that is missing is told when the first program is run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from pydantic import ConfigDict

from podium.core.errors import ConfigError

_log: Final = logging.getLogger("podium")
_GUARD: Final = Path(__file__).with_name("guard") / "__main__.py"
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
    disk_bytes: int = 64 * 1024**2
    output_bytes: int = 4 * 1024**2
    processes: int = 16

    def __post_init__(self) -> None:
        for name, most in asdict(self).items():
            if most <= 0:
                raise ConfigError(f"the limit {name} must be more than 0, not {most:g}")


USUAL_LIMITS: Final = Limits()


_PURPOSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "limits": "limits on time, files, open files and processes, for each process",
        "memory": "a limit on memory, for each process",
        "users": "privileges that end where the program's own users end",
        "nobody": "the superuser's programs run as nobody",
        "processes": "no other process can be seen or signalled, and all end together",
        "network": "no network but a loopback of its own",
        "mounts": "no files but Python's and the system's, for reading; a directory in memory",
        "landlock": "no files but those, held a second time by the kernel",
        "seccomp": "no system calls that look into other processes or change the machine",
    }
)
_LEFT_OUT: tuple[str, ...] = ()
"""Walls not to build: tests see so what holds where a system lacks them."""


@dataclass(frozen=True, slots=True)
class Wall:
    """One of the walls around programs: what it is for and, where it does not stand, why."""

    name: str
    purpose: str
    missing: str | None

    @property
    def stands(self) -> bool:
        """Whether programs are behind it."""
        return self.missing is None


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
    async with _guard(
        {"inputs": list(inputs), "function": function, "check": None},
        program=program,
        limits=limits,
    ) as guard:
        for _ in inputs:
            yield await _next_outcome(guard, limits)


async def run_check(
    program: str,
    check: str,
    *,
    before: str = "",
    together: bool = False,
    limits: Limits = USUAL_LIMITS,
) -> Outcome:
    """Whether a check of the program passes: Python that uses the program's names and raises
    where it is wrong, or has cases of `unittest`. `before` is run ahead of the program.

    The check runs in a process of its own, out of the program's reach, and calls the program's
    functions from there. `together` runs it in the program's process, for checks that replace
    parts of modules or look into what cannot be copied; a program made for it could forge that.
    """
    async with _guard(
        {"inputs": [], "function": None, "check": "together" if together else "apart"},
        program=program,
        before=before,
        limits=limits,
        secret=check,
    ) as guard:
        return await _next_outcome(guard, limits)


async def standing_walls() -> tuple[Wall, ...]:
    """Every wall, and whether it stands on this machine for this user."""
    require_sandbox()
    async with _guard({}) as guard:
        return guard.walls


@dataclass(frozen=True, slots=True)
class _Guard:
    process: Process
    walls: tuple[Wall, ...]


@asynccontextmanager
async def _guard(
    request: dict[str, Any],
    *,
    program: str | None = None,
    before: str = "",
    limits: Limits = USUAL_LIMITS,
    secret: str | None = None,
) -> AsyncGenerator[_Guard, None]:
    """A guard that has heard its request and told which walls stand. The secret is for the guard
    alone: it comes after the request, which the program's memory is a copy of."""
    asked = {**request, "limits": asdict(limits), "left_out": list(_LEFT_OUT)}
    if program is not None:
        asked |= {"program": program, "before": before}
    async with _gate():
        place = await asyncio.to_thread(tempfile.mkdtemp, prefix="podium-sandbox-")
        process = await _start_guard(place)
        try:
            assert process.stdin is not None
            for block in (json.dumps(asked), *([] if secret is None else [secret])):
                data = block.encode("utf-8", "surrogatepass")
                process.stdin.write(b"%d\n%b" % (len(data), data))
            yield _Guard(process, await _walls_of(process))
        finally:
            await _dismiss(process)
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


async def _walls_of(process: Process) -> tuple[Wall, ...]:
    told = await _next_line(process, _SPARE_SECONDS)
    if told is None:
        raise ConfigError(
            "the guard of the sandbox did not start: run the same Python with -I and see whether "
            "it does"
        )
    walls = tuple(Wall(name, _PURPOSES[name], told["walls"][name]) for name in _PURPOSES)
    _tell_missing(walls)
    return walls


_told_missing: Final[set[str]] = set()


def _tell_missing(walls: Sequence[Wall]) -> None:
    """Say once which walls do not stand, and what that means."""
    for wall in walls:
        if wall.missing is not None and wall.name not in _told_missing:
            _told_missing.add(wall.name)
            _log.warning(
                "programs run without the wall %r (%s): %s", wall.name, wall.purpose, wall.missing
            )


async def _next_outcome(guard: _Guard, limits: Limits) -> Outcome:
    told = await _next_line(guard.process, limits.wall_seconds + _SPARE_SECONDS)
    if told is None:
        return Outcome("", "the program was lost together with its guard")
    if "fault" in told:
        raise ConfigError(
            f"the sandbox could not be closed around a program: {told['fault']}; see what "
            "`python -m podium.tasks.sandbox_doctor` says of this machine"
        )
    return Outcome(told["output"], told["problem"])


async def _next_line(process: Process, seconds: float) -> dict[str, Any] | None:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            told: dict[str, Any] = json.loads(await process.stdout.readline())
    except (TimeoutError, ValueError):
        return None
    return told


async def _dismiss(process: Process) -> None:
    """Tell the guard to end everything: it does when its input ends, also when we are killed."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_LEAVE):
            await process.communicate()
            return
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


_gates: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    """As many programs at once as there are processors: with more, right ones would run out of
    time."""
    loop = asyncio.get_running_loop()
    return _gates.setdefault(loop, asyncio.Semaphore(os.cpu_count() or 1))
