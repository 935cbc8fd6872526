"""Which walls this system lets us build around a program, and putting a process behind them.

Every wall is tried, and the guard tells which stand. A wall that was told to stand and then
cannot be built ends the process before the program begins.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final, NamedTuple

from podium.workers.sandbox.guard import kernel, landlock, namespaces, seccomp

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
"""Threads that a program may have beside those of its processes: they count as processes."""
_MANY_PROCESSES: Final = 1024
"""How many more than there are on the machine, where the system counts others' with ours."""


class Walls(NamedTuple):
    """The walls by name, each with None where it stands, else the reason why it does not."""

    missing: dict[str, str | None]
    user: int | None = None
    """Who the program becomes, where it is not who the guard is."""

    def has(self, name: str) -> bool:
        """Whether that wall stands."""
        return self.missing[name] is None

    @property
    def has_own_sockets(self) -> bool:
        """Whether no socket can reach anybody else's: neither by network nor by path."""
        return self.has(NETWORK) and self.has(MOUNTS)


def build(missing: dict[str, str | None], left_out: Collection[str]) -> Walls:
    """Every wall that the guard itself must build, in the namespaces that it has entered."""
    found = dict(missing)
    if found[NETWORK] is None:
        kernel.loopback_up()
    user = None if NOBODY in left_out else namespaces.program_identity(own_root=True)
    try:
        if MOUNTS in left_out or not kernel.IS_LINUX:
            raise OSError("only Linux has namespaces")
        namespaces.build_root(os.getcwd(), os.getuid() if user is None else user)
        found[MOUNTS] = None
    except OSError as error:
        found[MOUNTS] = str(error)
        user = None if NOBODY in left_out else namespaces.program_identity(own_root=False)
    stays = os.getuid() == namespaces.ROOT and user is None
    found[NOBODY] = f"the program stays the superuser{_how_far()}" if stays else None
    found[LANDLOCK] = None if kernel.IS_LINUX and kernel.landlock_version() else "not in the kernel"
    found[SECCOMP] = None if seccomp.is_possible() else f"not in the kernel, or not on {_machine()}"
    found[LIMITS] = None
    found[MEMORY] = None if kernel.IS_LINUX else "only Linux holds a process to such a limit"
    found |= dict.fromkeys(left_out, "left out on demand")
    return Walls(found, user)


def _how_far() -> str:
    return ", without privileges" if kernel.IS_LINUX else ""


def _machine() -> str:
    return f"{sys.platform} {kernel.MACHINE}"


def count_of_threads() -> int:
    """How many threads there are on the machine: where a program has no users of its own, the
    system's limit counts a user's others too."""
    count = 0
    with suppress(OSError):
        for name in os.listdir("/proc"):
            with suppress(OSError):
                count += len(os.listdir(f"/proc/{name}/task")) if name.isdigit() else 0
    return count


# In the child that will be the program.


def enter_box(walls: Walls, box: str, limits: dict[str, Any]) -> None:
    """Go where the program is to be: an empty directory, the only place that it may fill."""
    if walls.has(MOUNTS):
        box = namespaces.own_box(walls.user or os.getuid(), limits["disk_bytes"])
    elif walls.user is not None:
        os.chown(box, walls.user, walls.user)
        os.chmod(os.path.dirname(box), 0o711)  # noqa: S103 - the program's way to its own
    os.chdir(box)


def close_behind(walls: Walls, limits: dict[str, Any]) -> None:
    """Give up every right that the program is not to have. There is no way back."""
    if walls.user is not None:
        with suppress(PermissionError):  # a namespace of users may know no groups at all
            os.setgroups([])
        os.setresgid(walls.user, walls.user, walls.user)
        os.setresuid(walls.user, walls.user, walls.user)
    _limit(walls, limits)
    if kernel.IS_LINUX:
        kernel.die_with_parent(signal.SIGKILL)
        kernel.no_new_privileges()
        kernel.give_up_capabilities()
    if walls.has(LANDLOCK):
        readable, writable = _open_places(walls)
        landlock.enclose(readable, writable, own_network=walls.has_own_sockets)
    if walls.has(SECCOMP):
        sees_others = not (walls.has(PROCESSES) or _landlock_scopes_signals(walls))
        kernel.filter_system_calls(
            seccomp.filter_for(
                kernel.MACHINE,
                own_network=walls.has_own_sockets,
                own_files=walls.has(MOUNTS),
                own_processes=os.getpid() if sees_others else None,
            )
        )


def _landlock_scopes_signals(walls: Walls) -> bool:
    return walls.has(LANDLOCK) and kernel.landlock_version() >= landlock.KNOWS_SIGNALS


def _open_places(walls: Walls) -> tuple[list[str], list[str]]:
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    if walls.has(MOUNTS):
        return ["/"], [".", namespaces.SHARED_MEMORY, *devices]
    return [*namespaces.readable_paths(), "/proc/self"], [".", *devices]


def _limit(walls: Walls, limits: dict[str, Any]) -> None:
    """Limits that the program cannot raise again."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"] + 1,
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_NPROC: limits["processes"] + _THREADS
        if walls.has(USERS)
        else count_of_threads() + _MANY_PROCESSES,
    }
    if walls.has(MEMORY):
        wanted[resource.RLIMIT_AS] = limits["memory_bytes"]
    for kind, most in wanted.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    # A second before the system kills it, it is told why: the exit status says so.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu_seconds"], hard), hard))
