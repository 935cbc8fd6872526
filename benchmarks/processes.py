"""Start, await, measure and stop the processes of the benchmarks."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, TypeVar

import httpx

from podium.core.errors import ConfigError

OK: Final = 200
Result = TypeVar("Result")


def run_on_fast_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine on uvloop where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


LONGEST_START_SECONDS: Final = 180.0
"""A peer may have to compile all its imports at its first start."""

LONGEST_STOP_SECONDS: Final = 10.0
BETWEEN_TRIES_SECONDS: Final = 0.02
LOG: Final = "log"
UPSTREAM: Final = "benchmarks.upstream"

CONFIGURATION: Final = "podium.toml"
WORKER: Final = """
[[worker]]
name = "{name}"
provider = "openai-compatible"
model = "{name}"
base_url = "http://127.0.0.1:{port}/v1"
description = "answers at once"
{more}
"""
"""A worker of a configuration: an upstream on that port of this machine."""

LEFT_OUT: Final = "PYTHONDONTWRITEBYTECODE"
"""This variable would make every start compile all modules again."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that is ready, and the seconds that its start took."""

    process: asyncio.subprocess.Process
    port: int
    seconds: float

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, finer than the hundredths in `/proc`."""
    clock = ctypes.c_int()
    find: Any = getattr(ctypes.CDLL(None), "clock_getcpuclockid", None)
    if find is None or find(pid, ctypes.byref(clock)) != 0:
        raise ConfigError(
            f"the system gives no clock for the CPU time of process {pid}; measure on Linux, in a "
            f"container for instance"
        )
    return time.clock_gettime(clock.value)


def inherited_environment() -> dict[str, str]:
    """Return our environment without a proxy for this machine."""
    settings = {key: value for key, value in os.environ.items() if key != LEFT_OUT}
    return {**settings, "NO_PROXY": "127.0.0.1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@asynccontextmanager
async def upstream_process(module: str = UPSTREAM, *options: str) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None, "the process was started with a pipe"
    try:
        async with asyncio.timeout(LONGEST_START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise ConfigError("the upstream did not start; its output is above")
        yield json.loads(line)["port"]
    finally:
        await _end(process)


@asynccontextmanager
async def server_process(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    ready: str,
    directory: Path,
    environment: Mapping[str, str],
) -> AsyncIterator[Started]:
    """Start a server on that port and wait until the path `ready` answers; log to a file."""
    log = directory / LOG
    started = perf_counter()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**inherited_environment(), **environment},
        )
    try:
        try:
            async with asyncio.timeout(LONGEST_START_SECONDS):
                await _until_ready(process, f"http://127.0.0.1:{port}{ready}")
        except (EOFError, TimeoutError) as error:
            raise ConfigError(f"{name} did not become ready: {_last_words(log)}") from error
        yield Started(process, port, perf_counter() - started)
    finally:
        await _end(process)


def podium_process(
    home: Path,
    *options: str,
    text: str = "",
    port: int | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AbstractAsyncContextManager[Started]:
    """Start `podium serve` with the configuration in that home directory, or with `text`."""
    home.mkdir(parents=True, exist_ok=True)
    if text:
        (home / CONFIGURATION).write_text(text, "utf-8")
    port = port or free_port()
    where = ("--config", CONFIGURATION, "--host", "127.0.0.1", "--port", str(port))
    return server_process(
        "podium serve",
        (sys.executable, "-P", "-m", "podium", "serve", *where, *options),
        port=port,
        ready="/readyz",
        directory=home,
        environment={"PODIUM_HOME": str(home), **environment},
    )


async def _until_ready(process: asyncio.subprocess.Process, url: str) -> None:
    """Poll until it is ready; raise `EOFError` if the process ends before."""
    async with httpx.AsyncClient(trust_env=False) as client:
        while process.returncode is None:
            with suppress(httpx.TransportError):
                if (await client.get(url)).status_code == OK:
                    return
            await asyncio.sleep(BETWEEN_TRIES_SECONDS)
    raise EOFError


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(LONGEST_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")[-400:]
