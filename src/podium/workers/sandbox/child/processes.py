"""Start a process behind the isolation layers, watch it, and kill everything that it started."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

from podium.workers.sandbox.child import isolation
from podium.workers.sandbox.child.isolation import Isolation

PROC: Final = "/proc"
_PAGE: Final = os.sysconf("SC_PAGESIZE")


class ProcessTree:
    """The processes below this one, read from /proc; empty where there is none.

    /proc is opened before the child enters its own root, where it may not be mountable. Its process
    IDs are then those of the machine and only good for counting.
    """

    def __init__(self) -> None:
        self._proc = os.open(PROC, os.O_RDONLY) if os.path.exists(f"{PROC}/self") else None

    def reopen(self) -> None:
        """Use the current /proc if there is one: it lists fewer processes."""
        if self._proc is not None and os.path.exists(f"{PROC}/self"):
            os.close(self._proc)
            self._proc = os.open(PROC, os.O_RDONLY)

    def processes(self) -> list[int]:
        if self._proc is None:
            return []
        root = int(os.readlink("self", dir_fd=self._proc))
        parents: dict[int, int] = {}
        for name in filter(str.isdigit, os.listdir(self._proc)):
            with suppress(OSError):
                stat = self._read(f"{name}/stat")
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        return [process for process in parents if _is_below(process, root, parents)]

    def exceeds_memory(self, most: int, processes: list[int]) -> bool:
        """True if these processes together hold more than `most` bytes."""
        return sum(map(self._own_bytes, processes)) > most and (
            sum(map(self._shared_out_bytes, processes)) > most
        )

    def _own_bytes(self, process: int) -> int:
        """Bytes of a process, counting pages shared with its parent."""
        with suppress(OSError, ValueError, IndexError):
            numbers = self._read(f"{process}/statm").split()
            return (int(numbers[1]) - int(numbers[2])) * _PAGE
        return 0

    def _shared_out_bytes(self, process: int) -> int:
        """Proportional set size of a process; slow."""
        with suppress(OSError, ValueError, StopIteration):
            lines = self._read(f"{process}/smaps_rollup").splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
        return self._own_bytes(process)

    def _read(self, name: str) -> str:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=self._proc)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read()


def _is_below(process: int, root: int, parents: dict[int, int]) -> bool:
    while process in parents and parents[process] != root:
        process = parents[process]
    return process in parents


LOOK_EVERY_SECONDS: Final = 0.02
ABOUT_TO_END_SECONDS: Final = 0.001
"""A process whose output has ended usually exits right after."""
EXIT_SECONDS: Final = 0.2
"""The longest wait for a process that ends with another; it is killed then."""
COUNT_EVERY_SECONDS: Final = 0.1
MAX_TRIES_TO_KILL: Final = 1000
CALLER_GONE: Final = "the caller is gone"


class IsolationFailed(Exception):
    """A layer that was reported as active could not be built."""


class ChildResult(NamedTuple):
    """The output of a process, and the problem if it failed."""

    output: bytes
    problem: str | None


class IsolatedRun:
    """All processes of one input, and their directory."""

    def __init__(self, active: Isolation, tree: ProcessTree, limits: dict[str, Any]) -> None:
        self._isolation = active
        self._tree = tree
        self._limits = limits
        self._statuses: dict[int, tuple[int, float]] = {}
        self._is_ending = False
        self._children: list[int] = []
        self._directories: list[str] = []

    def start(self, keep_fds: tuple[int, ...]) -> int:
        """Fork; return 0 in the new process, which is then isolated.

        It keeps only the descriptors in `keep_fds`; the first three become its standard streams.
        """
        has_root = self._isolation.has(isolation.MOUNTS)
        directory = "" if has_root else _new_directory()
        failure_read_fd, failure_write_fd = os.pipe()
        child = os.fork()
        if child:
            self._children.append(child)
            self._directories += [directory] if directory else []
            os.close(failure_write_fd)
            with open(failure_read_fd, encoding="utf-8") as file:
                trouble = file.read()  # ends when the child is behind its layers
            if trouble:
                raise IsolationFailed(trouble)
            return child
        try:
            os.setsid()
            isolation.enter_directory(self._isolation, directory, self._limits)
            _close_all_but((*keep_fds, failure_write_fd))
            isolation.drop_privileges(self._isolation, self._limits)
        except Exception as error:  # noqa: BLE001 - no program starts without its isolation
            os.write(failure_write_fd, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os.close(failure_write_fd)
        return 0

    def watch(self, child: int, output_fd: int, other: int | None = None) -> ChildResult:
        """Wait for a process to exit or to exceed a limit, then kill whatever is left.

        `other` is a process that is about to exit then, and whose status is asked for.
        """
        deadline = time.monotonic() + self._limits["wall_seconds"]
        next_count = time.monotonic() + COUNT_EVERY_SECONDS
        output = bytearray()
        listening = [0, output_fd]
        problem = None
        while problem is None and child not in self._statuses:
            patience = LOOK_EVERY_SECONDS if output_fd in listening else ABOUT_TO_END_SECONDS
            ready, _, _ = select.select(listening, [], [], patience)
            if output_fd in ready and not _read_available(output_fd, output):
                listening.remove(output_fd)
            if 0 in ready and not os.read(0, 1):
                problem = CALLER_GONE
            elif len(output) > self._limits["output_bytes"]:
                problem = "exceeded the output limit"
            elif time.monotonic() > deadline:
                problem = "timed out"
            elif time.monotonic() > next_count:
                next_count = time.monotonic() + COUNT_EVERY_SECONDS
                problem = self._exceeded_limit()
            self._reap()
        while output_fd in listening and problem is None and _read_available(output_fd, output):
            if len(output) > self._limits["output_bytes"]:
                problem = "exceeded the output limit"
        problem = problem or self._disk_problem()  # written since the last count
        deadline = time.monotonic() + EXIT_SECONDS
        while other is not None and other not in self._statuses and time.monotonic() < deadline:
            time.sleep(0.0005)
            self._reap()
        self._end_everything()
        return ChildResult(bytes(output), problem or self.problem_of(child))

    def problem_of(self, child: int) -> str | None:
        """Describe how a process ended; None if it succeeded."""
        status, seconds = self._statuses.get(child, (0, 0.0))
        is_killed = status == -signal.SIGKILL and seconds >= self._limits["cpu_seconds"]
        if is_killed or status == -signal.SIGXCPU:
            return "exceeded the CPU time limit"
        return None if status == 0 else f"exited with status {status}"

    def _reap(self) -> bool:
        """Collect exited processes; False if none is left."""
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

    def _exceeded_limit(self) -> str | None:
        processes = self._tree.processes()
        if len(processes) > self._limits["processes"]:
            return "exceeded the process limit"
        if self._tree.exceeds_memory(self._limits["memory_bytes"], processes):
            return "exceeded the memory limit"
        return self._disk_problem()

    def _disk_problem(self) -> str | None:
        fills = any(_exceeds_disk(one, self._limits["disk_bytes"]) for one in self._directories)
        return "exceeded the disk limit" if fills else None

    def _end_everything(self) -> None:
        self._is_ending = True
        for _ in range(MAX_TRIES_TO_KILL):
            self._kill_once()
            if not self._reap():
                break
            time.sleep(0.0005)
        for directory in self._directories:
            _remove(directory)

    def _kill_once(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._isolation.has(isolation.PROCESSES):
                assert os.getpid() == 1, "only the first process may end all others"
                os.kill(-1, signal.SIGKILL)
                return
        for child in self._children:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        for process in self._tree.processes():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _new_directory() -> str:
    import tempfile  # only if the directory is not in memory

    return tempfile.mkdtemp(dir=os.getcwd())


def _close_all_but(keep_fds: tuple[int, ...]) -> None:
    """Make the first three of `keep_fds` the standard streams; close all other descriptors."""
    for stream, descriptor in enumerate(keep_fds[:3]):
        os.dup2(descriptor, stream)
    before = 2
    for descriptor in sorted(keep_fds[3:]):
        os.closerange(before + 1, descriptor)
        before = descriptor
    os.closerange(before + 1, max(before + 2, 4096))


def _read_available(fd: int, output: bytearray) -> bool:
    """Read without waiting; False at the end of the stream."""
    if not select.select([fd], [], [], 0)[0]:
        return False
    data = os.read(fd, 2**16)
    output += data
    return bool(data)


def _exceeds_disk(directory: str, most: int) -> bool:
    """True if a directory takes more space, counting names and empty files."""
    left = most
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                left -= 4096 + os.lstat(os.path.join(parent, name)).st_blocks * 512
            if left < 0:
                return True
    return False


def _remove(directory: str) -> None:
    """Remove a directory whatever its permissions."""
    import shutil  # only if the directory is not in memory

    with suppress(OSError):
        os.chmod(directory, 0o700)
    for parent, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)
