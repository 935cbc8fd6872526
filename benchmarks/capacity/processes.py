"""Processes and those that they started: their CPU time and their memory, as `/proc` has them."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.server_processes import cpu_seconds
from podium.core.errors import ConfigError

PROC: Final = Path("/proc")


def allow_many_connections() -> None:
    """Let this process open as many files as the system lets it: clients and workers of a thousand
    runs in flight are two thousand connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def family(process: int) -> Iterator[int]:
    """The process, and all that it started and that are still there."""
    yield process
    for thread in (PROC / str(process) / "task").glob("*/children"):
        try:
            children = thread.read_text("ascii").split()
        except OSError:
            continue  # the thread has ended meanwhile
        for child in children:
            yield from family(int(child))


def family_cpu_seconds(process: int) -> float:
    """The CPU time that they have had so far, all together."""
    return sum(map(_cpu_seconds, family(process)))


def _cpu_seconds(process: int) -> float:
    try:
        return cpu_seconds(process)
    except ConfigError:
        return 0.0  # it has ended meanwhile


def family_memory_bytes(process: int) -> int:
    """The memory that they hold, all together; what several of them share counts once."""
    return sum(map(_memory_bytes, family(process)))


def _memory_bytes(process: int) -> int:
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text("ascii").splitlines()
    except OSError as error:
        raise ConfigError(
            f"the memory of process {process} cannot be read: {error.strerror}; measure on Linux"
        ) from error
    kilobytes = next(line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(kilobytes) * 1024
