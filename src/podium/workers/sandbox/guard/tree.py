"""The processes below the guard, and what they hold in memory, as /proc tells it.

The guard holds /proc open from before it entered its own root, since in there another one may
not be mounted. Its numbers are then those of the machine, and good for counting alone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

PROC: Final = "/proc"
_PAGE: Final = os.sysconf("SC_PAGESIZE")


class Tree:
    """Everything below this process. Systems without /proc show nothing."""

    def __init__(self) -> None:
        self._proc = os.open(PROC, os.O_RDONLY) if os.path.exists(f"{PROC}/self") else None

    def look_again(self) -> None:
        """Take the /proc that is there now, if there is one: in a root of our own it tells of
        fewer processes, and faster."""
        if self._proc is not None and os.path.exists(f"{PROC}/self"):
            os.close(self._proc)
            self._proc = os.open(PROC, os.O_RDONLY)

    def processes(self) -> list[int]:
        """Every process below this one."""
        if self._proc is None:
            return []
        guard = int(os.readlink("self", dir_fd=self._proc))
        parents: dict[int, int] = {}
        for name in filter(str.isdigit, os.listdir(self._proc)):
            with suppress(OSError):
                stat = self._read(f"{name}/stat")
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        return [process for process in parents if _is_below(process, guard, parents)]

    def hold_more_than(self, most: int, processes: list[int]) -> bool:
        """Whether these hold more bytes in memory together."""
        return sum(map(self._own_bytes, processes)) > most and (
            sum(map(self._shared_out_bytes, processes)) > most
        )

    def _own_bytes(self, process: int) -> int:
        """What a process holds, pages that it shares with its parent counted again."""
        with suppress(OSError, ValueError, IndexError):
            numbers = self._read(f"{process}/statm").split()
            return (int(numbers[1]) - int(numbers[2])) * _PAGE
        return 0

    def _shared_out_bytes(self, process: int) -> int:
        """What a process holds, with its share of what it shares; slow to find out."""
        with suppress(OSError, ValueError, StopIteration):
            lines = self._read(f"{process}/smaps_rollup").splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
        return self._own_bytes(process)

    def _read(self, name: str) -> str:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=self._proc)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read()


def _is_below(process: int, guard: int, parents: dict[int, int]) -> bool:
    while process in parents and parents[process] != guard:
        process = parents[process]
    return process in parents
