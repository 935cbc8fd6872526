"""Run programs that a model wrote, isolated and within limits.

async for result in run_program(program, inputs):     its output, or a function's return value
    ...
result = await run_check(program, check)               problem None: the check passed

A child process (`podium.workers.sandbox.child`) runs the program behind every isolation layer that
the system allows: no network, read-only files, no other processes, an empty directory, no
environment, and limits on time, memory, files, output and processes. `isolation_layers` lists them;
a layer that is missing is logged with the first program.
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
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from pydantic import ConfigDict

from podium.core.errors import ConfigError

_log: Final = logging.getLogger("podium")
_CHILD: Final = Path(__file__).with_name("child") / "__main__.py"
_SECONDS_TO_LEAVE: Final = 10.0
_SPARE_SECONDS: Final = 60.0
"""Seconds that the child may be silent beyond a program's time limit."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The resources that a program may use for one input."""

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
                raise ConfigError(f"the limit {name} must be more than 0, got {most:g}")


DEFAULT_LIMITS: Final = ProgramLimits()


_LAYERS: Final = (
    *("limits", "memory", "users", "nobody", "processes", "network", "mounts", "landlock"),
    "seccomp",
)
"""Their purposes are in `docs/reference/sandbox.md`."""

_DISABLED: tuple[str, ...] = ()
"""Layers not to build; for tests of systems that lack them."""


@dataclass(frozen=True, slots=True)
class IsolationLayer:
    """One layer of isolation; `missing` is the reason why it is not active, or None."""

    name: str
    missing: str | None

    @property
    def is_active(self) -> bool:
        """True if programs run behind this layer."""
        return self.missing is None


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The output of a program, and the problem if it failed."""

    output: str
    problem: str | None = None


def require_sandbox() -> None:
    if not hasattr(os, "fork"):
        raise ConfigError("the sandbox needs Linux or macOS")


async def run_program(
    program: str,
    inputs: Sequence[str],
    *,
    function: str | None = None,
    limits: ProgramLimits = DEFAULT_LIMITS,
) -> AsyncGenerator[ProgramResult, None]:
    """Run the program once for each input and yield the results.

    A result holds what the program printed or, with `function`, what that function returned, as
    JSON. Closing the generator stops the program.
    """
    async with _child(
        {"inputs": list(inputs), "function": function, "check": None},
        program=program,
        limits=limits,
    ) as child:
        for _ in inputs:
            yield await _next_outcome(child, limits)


async def run_check(
    program: str,
    check: str,
    *,
    prelude: str = "",
    in_process: bool = False,
    limits: ProgramLimits = DEFAULT_LIMITS,
) -> ProgramResult:
    """Run a check of the program; its `problem` is None if the check passes.

    A check is Python that uses the program's names and raises if they are wrong, or defines
    `unittest` cases. `prelude` runs ahead of the program. The check runs in a process of its own,
    out of the program's reach, and calls the program's functions from there. `in_process` runs it
    in the program's process, for checks that patch modules or inspect objects that cannot be
    copied; a program written against it could forge the verdict.
    """
    async with _child(
        {"inputs": [], "function": None, "check": "in_process" if in_process else "separate"},
        program=program,
        prelude=prelude,
        limits=limits,
        secret=check,
    ) as child:
        return await _next_outcome(child, limits)


async def isolation_layers() -> tuple[IsolationLayer, ...]:
    """List every layer and whether it is active on this machine for this user."""
    require_sandbox()
    async with _child({}) as child:
        return child.layers


async def isolation_problem() -> str:
    """Return why programs would not be kept from files and network here; empty if they are.

    Found out once.
    """
    global _problem
    if _problem is None:
        _problem = await _find_problem()
    return _problem


_problem: str | None = None


async def _find_problem() -> str:
    try:
        missing = {layer.name for layer in await isolation_layers() if not layer.is_active}
    except ConfigError as error:
        return str(error)
    if {"mounts", "landlock"} <= missing:
        return "this machine cannot keep programs from its files"
    if {"network", "seccomp"} <= missing:
        return "this machine cannot keep programs from the network"
    return ""


@dataclass(frozen=True, slots=True)
class _ChildProcess:
    process: Process
    layers: tuple[IsolationLayer, ...]


@asynccontextmanager
async def _child(
    request: dict[str, Any],
    *,
    program: str | None = None,
    prelude: str = "",
    limits: ProgramLimits = DEFAULT_LIMITS,
    secret: str | None = None,
) -> AsyncGenerator[_ChildProcess, None]:
    """Start a child, send it the request and read its layers.

    The secret follows the request, because the program's memory is a copy of the request.
    """
    full_request = {**request, "limits": asdict(limits), "disabled": list(_DISABLED)}
    if program is not None:
        full_request |= {"program": program, "prelude": prelude}
    async with _semaphore():
        path = await asyncio.to_thread(tempfile.mkdtemp, prefix="podium-sandbox-")
        process = await _start_child(path)
        try:
            assert process.stdin is not None
            for block in (json.dumps(full_request), *([] if secret is None else [secret])):
                data = block.encode("utf-8", "surrogatepass")
                process.stdin.write(b"%d\n%b" % (len(data), data))
            layers = await _read_layers(process)
            if program is not None:
                _warn_missing(layers)
            yield _ChildProcess(process, layers)
        finally:
            await _stop_child(process)
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


async def _start_child(path: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",  # nothing from the working directory or the environment
        "-X",
        "utf8",
        str(_CHILD),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=path,
        env={"PATH": os.defpath, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
        limit=2**30,
    )


async def _read_layers(process: Process) -> tuple[IsolationLayer, ...]:
    message = await _next_line(process, _SPARE_SECONDS)
    if message is None:
        raise ConfigError("the sandbox process did not start; check that `python -I` starts")
    return tuple(IsolationLayer(name, message["layers"][name]) for name in _LAYERS)


_warned: Final[set[str]] = set()


def _warn_missing(layers: Sequence[IsolationLayer]) -> None:
    missing = [layer for layer in layers if layer.missing and layer.name not in _warned]
    if missing:
        _warned.update(layer.name for layer in missing)
        _log.warning(
            "programs run without the isolation layers %s (%s); podium doctor explains them",
            ", ".join(layer.name for layer in missing),
            ", ".join(dict.fromkeys(layer.missing or "" for layer in missing)),
        )


async def _next_outcome(child: _ChildProcess, limits: ProgramLimits) -> ProgramResult:
    message = await _next_line(child.process, limits.wall_seconds + _SPARE_SECONDS)
    if message is None:
        return ProgramResult("", "the sandbox process died")
    if "fault" in message:
        raise ConfigError(
            f"the sandbox could not isolate a program: {message['fault']}; run podium doctor"
        )
    return ProgramResult(message["output"], message["problem"])


async def _next_line(process: Process, seconds: float) -> dict[str, Any] | None:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            message: dict[str, Any] = json.loads(await process.stdout.readline())
    except (TimeoutError, ValueError):
        return None
    return message


async def _stop_child(process: Process) -> None:
    """Close the child's input: it then ends every process, also if we were killed."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_LEAVE):
            await process.communicate()
            return
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


_semaphores: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = (
    WeakKeyDictionary()
)


def _semaphore() -> asyncio.Semaphore:
    """Allow one program per processor; more would make correct programs time out."""
    loop = asyncio.get_running_loop()
    return _semaphores.setdefault(loop, asyncio.Semaphore(os.cpu_count() or 1))
