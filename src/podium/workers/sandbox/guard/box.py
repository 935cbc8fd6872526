"""Starting a child behind the walls, watching it, and ending everything that it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Final, NamedTuple

from podium.workers.sandbox.guard import walls
from podium.workers.sandbox.guard.tree import Tree
from podium.workers.sandbox.guard.walls import Walls

LOOK_EVERY_SECONDS: Final = 0.02
ABOUT_TO_END_SECONDS: Final = 0.001
"""A child whose output has ended ends right after, as a rule."""
COUNT_EVERY_SECONDS: Final = 0.1
MOST_TRIES_TO_KILL: Final = 1000
NOBODY_WAITS: Final = "nobody waits for it any more"


class CannotEnclose(Exception):
    """A wall that was found to stand could not be built: the fault of no program."""


class Ended(NamedTuple):
    """How a child ended: what it wrote to the guard, and what was wrong."""

    output: bytes
    problem: str | None


class Box:
    """Everything that runs for one input, and the directory where it does."""

    def __init__(self, standing: Walls, tree: Tree, limits: dict[str, Any]) -> None:
        self._walls = standing
        self._tree = tree
        self._limits = limits
        self._statuses: dict[int, tuple[int, float]] = {}
        self._is_ending = False
        self._children: list[int] = []
        self._directories: list[str] = []

    def start(self, kept: tuple[int, ...]) -> int:
        """Fork, once: 0 in the child, which is then behind the walls with nothing of the guard's
        open but `kept`; its standard streams are `kept` too, in their order."""
        has_root = self._walls.has(walls.MOUNTS)
        directory = "" if has_root else _new_directory()
        hearing, troubled = os.pipe()
        child = os.fork()
        if child:
            self._children.append(child)
            self._directories += [directory] if directory else []
            os.close(troubled)
            with open(hearing, encoding="utf-8") as file:  # ends when the child is behind them
                trouble = file.read()
            if trouble:
                raise CannotEnclose(trouble)
            return child
        try:
            os.setsid()
            walls.enter_box(self._walls, directory, self._limits)
            _close_all_but((*kept, troubled))
            walls.close_behind(self._walls, self._limits)
        except Exception as error:  # noqa: BLE001 - no program begins where a wall is missing
            os.write(troubled, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os.close(troubled)
        return 0

    def watch(self, child: int, reading: int) -> Ended:
        """Wait until that child has ended or a limit is used up, and end whatever is left."""
        deadline = time.monotonic() + self._limits["wall_seconds"]
        next_count = time.monotonic() + COUNT_EVERY_SECONDS
        output = bytearray()
        listening = [0, reading]
        problem = None
        while problem is None and child not in self._statuses:
            patience = LOOK_EVERY_SECONDS if reading in listening else ABOUT_TO_END_SECONDS
            ready, _, _ = select.select(listening, [], [], patience)
            if reading in ready and not _take(reading, output):
                listening.remove(reading)
            if 0 in ready and not os.read(0, 1):
                problem = NOBODY_WAITS
            elif len(output) > self._limits["output_bytes"]:
                problem = "it wrote too much"
            elif time.monotonic() > deadline:
                problem = "it took too long"
            elif time.monotonic() > next_count:
                next_count = time.monotonic() + COUNT_EVERY_SECONDS
                problem = self._excess()
            self._reap()
        while reading in listening and problem is None and _take(reading, output):
            if len(output) > self._limits["output_bytes"]:
                problem = "it wrote too much"
        problem = problem or self._too_many_files()  # written since the last count
        self._end_everything()
        return Ended(bytes(output), problem or self.problem_of(child))

    def problem_of(self, child: int) -> str | None:
        """What the way in which a child ended tells of, where it ended by itself."""
        status, seconds = self._statuses.get(child, (0, 0.0))
        is_killed = status == -signal.SIGKILL and seconds >= self._limits["cpu_seconds"]
        if is_killed or status == -signal.SIGXCPU:
            return "it took too much processor time"
        return None if status == 0 else f"it ended with status {status}"

    def _reap(self) -> bool:
        """Take leave of children that have ended; False when none is left."""
        try:
            while True:
                child, status, used = os.wait4(-1, os.WNOHANG)
                if not child:
                    return True
                if not self._is_ending:
                    seconds = used.ru_utime + used.ru_stime
                    self._statuses[child] = (os.waitstatus_to_exitcode(status), seconds)
        except ChildProcessError:
            return False

    def _excess(self) -> str | None:
        """What the child and all that it started have too much of together."""
        processes = self._tree.processes()
        if len(processes) > self._limits["processes"]:
            return "it started too many processes"
        if self._tree.hold_more_than(self._limits["memory_bytes"], processes):
            return "it used too much memory"
        return self._too_many_files()

    def _too_many_files(self) -> str | None:
        fills = any(_fills(one, self._limits["disk_bytes"]) for one in self._directories)
        return "it wrote too many files" if fills else None

    def _end_everything(self) -> None:
        """Kill the child, and whatever left it: orphans come to the guard."""
        self._is_ending = True
        for _ in range(MOST_TRIES_TO_KILL):
            self._kill_once()
            if not self._reap():
                break
            time.sleep(0.0005)
        for directory in self._directories:
            _remove(directory)

    def _kill_once(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._walls.has(walls.PROCESSES):
                assert os.getpid() == 1, "only the first process may end all others"
                os.kill(-1, signal.SIGKILL)
                return
        for child in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        for process in self._tree.processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _new_directory() -> str:
    import tempfile  # only where the box is not in memory

    return tempfile.mkdtemp(dir=os.getcwd())


def _close_all_but(kept: tuple[int, ...]) -> None:
    """The first three of `kept` become the standard streams, the others stay as they are."""
    for stream, descriptor in enumerate(kept[:3]):
        os.dup2(descriptor, stream)
    before = 2
    for descriptor in sorted(kept[3:]):
        os.closerange(before + 1, descriptor)
        before = descriptor
    os.closerange(before + 1, max(before + 2, 4096))


def _take(reading: int, output: bytearray) -> bool:
    """Take what there is to read without waiting; False when there will never be more."""
    if not select.select([reading], [], [], 0)[0]:
        return False
    data = os.read(reading, 2**16)
    output += data
    return bool(data)


def _fills(directory: str, most: int) -> bool:
    """Whether there is more in a directory, names and empty files counted too."""
    left = most
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                left -= 4096 + os.lstat(os.path.join(place, name)).st_blocks * 512
            if left < 0:
                return True
    return False


def _remove(directory: str) -> None:
    """Remove a directory whatever the program did to its rights."""
    import shutil  # only where the box is not in memory

    with contextlib.suppress(OSError):
        os.chmod(directory, 0o700)
    for place, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)
