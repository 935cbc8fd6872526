"""Build the isolation layers that this system allows, and put a process behind them.

Every layer is tried and reported. If a layer that was reported as active cannot be built for a
process, that process ends before the program starts.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from podium.workers.sandbox.child import kernel, namespaces, seccomp

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIRECTORY: Final = 1 << 3
_TRUNCATE: Final = 1 << 14

_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""File rights that each Landlock version knows; sixteen from version 5."""
_RIGHTS_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_CONNECT_AND_BIND: Final = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 0b11

_KNOWS_NETWORK: Final = 4
KNOWS_SIGNALS: Final = 6


def restrict_files(readable: Iterable[str], writable: Iterable[str], *, own_network: bool) -> None:
    """Allow this process to read and to write these paths only (Landlock).

    Missing paths are ignored. Without a network of its own the process may not connect, and it may
    signal only its own children.
    """
    version = kernel.landlock_version()
    every_right = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    network = _CONNECT_AND_BIND if version >= _KNOWS_NETWORK and not own_network else 0
    scopes = _SIGNALS_AND_ABSTRACT_SOCKETS if version >= KNOWS_SIGNALS else 0
    size = 8 if version < _KNOWS_NETWORK else 16 if version < KNOWS_SIGNALS else 24
    ruleset = kernel.landlock_ruleset(every_right, network, scopes, size)
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    for path in writable:
        _allow(ruleset, path, every_right)
    kernel.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_directory = os.path.isdir(path)
        kernel.landlock_allow(ruleset, rights if is_directory else rights & _RIGHTS_OF_FILES, place)
        os.close(place)


LIMITS: Final = "limits"
MEMORY: Final = "memory"
USERS: Final = "users"
NOBODY: Final = "nobody"
PROCESSES: Final = "processes"
NETWORK: Final = "network"
MOUNTS: Final = "mounts"
LANDLOCK: Final = "landlock"
SECCOMP: Final = "seccomp"

_OPEN_FILES: Final = 256
_THREADS: Final = 64
"""Threads that a program may have beside its processes; the system counts both."""
_MANY_PROCESSES: Final = 1024
"""Allowance where the system also counts other processes of the user."""


class Isolation(NamedTuple):
    """The layers by name: None if active, else the reason why not."""

    missing: dict[str, str | None]
    user: int | None = None
    """The user that the program becomes, if it is another."""

    def has(self, name: str) -> bool:
        """True if that layer is active."""
        return self.missing[name] is None

    @property
    def has_own_sockets(self) -> bool:
        """True if sockets cannot reach anything outside, by network or by path."""
        return self.has(NETWORK) and self.has(MOUNTS)


def build(missing: dict[str, str | None], disabled: Collection[str]) -> Isolation:
    """Build every layer that belongs to the child itself, in its namespaces."""
    found = dict(missing)
    if found[NETWORK] is None:
        kernel.loopback_up()
    user = None if NOBODY in disabled else namespaces.program_identity(own_root=True)
    try:
        if MOUNTS in disabled or not kernel.IS_LINUX:
            raise OSError("only Linux has namespaces")
        namespaces.build_root(os.getcwd(), os.getuid() if user is None else user)
        found[MOUNTS] = None
    except OSError as error:
        found[MOUNTS] = str(error)
        user = None if NOBODY in disabled else namespaces.program_identity(own_root=False)
    stays = os.getuid() == namespaces.ROOT and user is None
    found[NOBODY] = f"the program stays the superuser{_how_far()}" if stays else None
    found[LANDLOCK] = None if kernel.IS_LINUX and kernel.landlock_version() else "not in the kernel"
    found[SECCOMP] = None if seccomp.is_possible() else f"not in the kernel, or not on {_machine()}"
    found[LIMITS] = None
    found[MEMORY] = None if kernel.IS_LINUX else "only Linux holds a process to such a limit"
    found |= dict.fromkeys(disabled, "disabled")
    return Isolation(found, user)


def _how_far() -> str:
    return ", without privileges" if kernel.IS_LINUX else ""


def _machine() -> str:
    return f"{sys.platform} {kernel.MACHINE}"


def count_threads() -> int:
    """Count all threads on the machine.

    Without a user namespace the process limit counts the user's other threads too.
    """
    count = 0
    with suppress(OSError):
        for name in os.listdir("/proc"):
            with suppress(OSError):
                count += len(os.listdir(f"/proc/{name}/task")) if name.isdigit() else 0
    return count


# In the child that will be the program.


def enter_directory(isolation: Isolation, directory: str, limits: dict[str, Any]) -> None:
    """Change to the program's empty directory, the only place that it may fill."""
    if isolation.has(MOUNTS):
        directory = namespaces.mount_directory(isolation.user or os.getuid(), limits["disk_bytes"])
    elif isolation.user is not None:
        os.chown(directory, isolation.user, isolation.user)
        os.chmod(os.path.dirname(directory), 0o711)  # noqa: S103 - the program's way to its own
    os.chdir(directory)


def drop_privileges(isolation: Isolation, limits: dict[str, Any]) -> None:
    """Give up every right that the program must not have, for good."""
    if isolation.user is not None:
        with suppress(PermissionError):  # a namespace of users may know no groups at all
            os.setgroups([])
        os.setresgid(isolation.user, isolation.user, isolation.user)
        os.setresuid(isolation.user, isolation.user, isolation.user)
    _limit(isolation, limits)
    if kernel.IS_LINUX:
        kernel.die_with_parent(signal.SIGKILL)
        kernel.no_new_privileges()
        kernel.give_up_capabilities()
    if isolation.has(LANDLOCK):
        readable, writable = _open_places(isolation)
        restrict_files(readable, writable, own_network=isolation.has_own_sockets)
    if isolation.has(SECCOMP):
        sees_others = not (isolation.has(PROCESSES) or _landlock_scopes_signals(isolation))
        kernel.filter_system_calls(
            seccomp.filter_for(
                kernel.MACHINE,
                own_network=isolation.has_own_sockets,
                own_files=isolation.has(MOUNTS),
                own_processes=os.getpid() if sees_others else None,
            )
        )


def _landlock_scopes_signals(isolation: Isolation) -> bool:
    return isolation.has(LANDLOCK) and kernel.landlock_version() >= KNOWS_SIGNALS


def _open_places(isolation: Isolation) -> tuple[list[str], list[str]]:
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    if isolation.has(MOUNTS):
        return ["/"], [".", namespaces.SHARED_MEMORY, *devices]
    return [*namespaces.readable_paths(), "/proc/self"], [".", *devices]


def _limit(isolation: Isolation, limits: dict[str, Any]) -> None:
    """Set resource limits that the program cannot raise."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"] + 1,
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_NPROC: limits["processes"] + _THREADS
        if isolation.has(USERS)
        else count_threads() + _MANY_PROCESSES,
    }
    if isolation.has(MEMORY):
        wanted[resource.RLIMIT_AS] = limits["memory_bytes"]
    for kind, most in wanted.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    # SIGXCPU comes a second before SIGKILL: the exit status then names the reason.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu_seconds"], hard), hard))
