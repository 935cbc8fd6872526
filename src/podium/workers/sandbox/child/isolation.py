"""Build the isolation layers that this system allows, and put a process behind them.

The child enters namespaces of users, processes, network and mounts once per program and is their
first process, so all others end with it. The only network is a loopback of their own, and the root
holds what Python needs, read-only. Each run gets an empty directory and shared memory, both in
memory. If a layer that was reported as active cannot be built for a process, that process ends
before the program starts.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from podium.workers.sandbox.child import kernel, seccomp

WORK_DIRECTORY: Final = "/box"
"""The program's directory in a root of its own."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the one that is mounted here

NOBODY_ID: Final = 65534
ROOT: Final = 0

_TO_CHANGE_USERS: Final = 0b1100_0001
"""The capabilities to change a file's owner and to become another user."""

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SYSTEM_FILES: Final = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/ssl",
)
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS: Final = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}


def enter_namespaces(disabled: Collection[str]) -> dict[str, str | None]:
    """Enter every namespace that the system allows; return the reasons of those it refuses.

    The next child is the first process of the new process namespace.
    """
    steps: dict[str, Callable[[], None]] = {
        "users": lambda: _new_users(os.getuid(), os.getgid()),
        "network": lambda: kernel.unshare(kernel.CLONE_NEWNET),
        "processes": lambda: kernel.unshare(kernel.CLONE_NEWPID),
    }
    reasons: dict[str, str | None] = {}
    for name, step in steps.items():
        try:
            if name in disabled:
                raise OSError("disabled")
            if not kernel.IS_LINUX:
                raise OSError("only Linux has namespaces")
            step()
        except OSError as error:
            reasons[name] = str(error)
        else:
            reasons[name] = None
    return reasons


def _new_users(uid: int, gid: int) -> None:
    """Enter a user namespace with every capability inside and none outside."""
    if uid != ROOT:
        kernel.unshare(kernel.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    # Only a process outside may map a second user, who is to be the program.
    child = os.getpid()
    read_fd, write_fd = os.pipe()
    outside = os.fork()
    if outside == 0:
        os.close(write_fd)
        if os.read(read_fd, 1):
            for name, own in (("uid_map", uid), ("gid_map", gid)):
                try:
                    _write(f"/proc/{child}/{name}", f"{own} {own} 1\n{NOBODY_ID} {NOBODY_ID} 1")
                except OSError:
                    _write(f"/proc/{child}/{name}", f"{own} {own} 1")
        os._exit(0)
    os.close(read_fd)
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(write_fd, b"!")
    finally:
        os.close(write_fd)
        os.waitpid(outside, 0)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _write(path: str, text: str) -> None:
    """Write in one call, as the kernel requires for ID maps."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def program_identity(*, own_root: bool) -> int | None:
    """Return the user ID that root's programs run as, or None to stay the same user.

    It is `nobody`, if that user exists here and can reach Python and the work directory.
    """
    if os.getuid() != ROOT or not kernel.IS_LINUX:
        return None
    with suppress(OSError):
        known = _read("/proc/self/uid_map").split()
        everyone = int(known[2]) > NOBODY_ID
        if not everyone and str(NOBODY_ID) not in known[3::3]:
            return None
        privileges = _read("/proc/self/status").partition("CapEff:")[2].split()[0]
        if ~int(privileges, 16) & _TO_CHANGE_USERS:
            return None
    if any(os.stat(path).st_mode & 0o5 != 0o5 for path in python_paths()):
        return None
    above = {parent for path in (*python_paths(), os.getcwd()) for parent in _parents(path)}
    if not own_root and any(not os.stat(parent).st_mode & 0o1 for parent in above):
        return None
    return NOBODY_ID


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def python_paths() -> tuple[str, ...]:
    """Return the directories of this Python and its packages, none below another."""
    found = {os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    found |= {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found -= {"/"}
    return tuple(
        path for path in sorted(found) if not any(path.startswith(f"{one}/") for one in found)
    )


def readable_paths() -> Iterator[str]:
    """Yield every path that a program may read."""
    yield from _SYSTEM
    yield from _SYSTEM_FILES
    yield from python_paths()


def build_root(root: str, user: int) -> None:
    """Build a root in memory with only the readable paths, and switch to it."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID, "size=4m,mode=755")
    for path in readable_paths():
        if os.path.islink(path):
            _make_parent(root + path)
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path) and not os.path.exists(root + path):
            _bind(path, root + path)
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{root}/dev/{name}")
    for name, end in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/fd{end}", f"{root}/dev/{name}")
    for directory in (WORK_DIRECTORY, SHARED_MEMORY, "/proc"):
        os.makedirs(root + directory)
    shared = f"{root}/tmp"  # noqa: S108 - what others take for the shared one
    if not os.path.exists(shared):  # it does where Python itself lies below it
        os.symlink(WORK_DIRECTORY, shared)
    _write(f"{root}/etc/passwd", f"program:x:{user}:{user}::{WORK_DIRECTORY}:/bin/false\n")
    _write(f"{root}/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    with suppress(OSError):  # in containers that hide parts of it; programs rarely need it
        kernel.mount("proc", f"{root}/proc", "proc", _NOTHING_SPECIAL)
    kernel.make_root(root)
    kernel.make_read_only("/")


_NOTHING_SPECIAL: Final = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def _make_parent(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _bind(source: str, target: str) -> None:
    _make_parent(target)
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        _write(target, "")
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)


def mount_directory(user: int, disk_bytes: int) -> str:
    """Mount an empty directory and shared memory for this process and its children."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    options = f"size={disk_bytes},nr_inodes={disk_bytes // 4096 + 64},uid={user},gid={user}"
    for directory in (WORK_DIRECTORY, SHARED_MEMORY):
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", directory, "tmpfs", flags, f"{options},mode=700")
    return WORK_DIRECTORY


LIMITS: Final = "limits"
MEMORY: Final = "memory"
USERS: Final = "users"
NOBODY: Final = "nobody"
PROCESSES: Final = "processes"
NETWORK: Final = "network"
MOUNTS: Final = "mounts"
LANDLOCK: Final = "landlock"
SECCOMP: Final = "seccomp"

NO_SECCOMP: Final = f"not in the kernel, or not on {sys.platform} {kernel.MACHINE}"

_OPEN_FILES: Final = 256
_THREADS: Final = 64
"""Threads that a program may have beside its processes; the system counts both."""
_MANY_PROCESSES: Final = 1024
"""Allowance where the system also counts other processes of the user."""


class Isolation(NamedTuple):
    """The layers by name: None if active, else the reason why not."""

    absence_reasons: dict[str, str | None]
    user: int | None = None
    """The user that the program becomes, if it is another."""

    def has(self, name: str) -> bool:
        return self.absence_reasons[name] is None

    @property
    def has_own_sockets(self) -> bool:
        """True if sockets cannot reach anything outside, by network or by path."""
        return self.has(NETWORK) and self.has(MOUNTS)


def build(absence_reasons: dict[str, str | None], disabled: Collection[str]) -> Isolation:
    """Build every layer that belongs to the child itself, in its namespaces."""
    found = dict(absence_reasons)
    if found[NETWORK] is None:
        kernel.loopback_up()
    user = None if NOBODY in disabled else program_identity(own_root=True)
    try:
        if MOUNTS in disabled or not kernel.IS_LINUX:
            raise OSError("only Linux has namespaces")
        build_root(os.getcwd(), os.getuid() if user is None else user)
        found[MOUNTS] = None
    except OSError as error:
        found[MOUNTS] = str(error)
        user = None if NOBODY in disabled else program_identity(own_root=False)
    stays = os.getuid() == ROOT and user is None
    unprivileged = ", without privileges" if kernel.IS_LINUX else ""
    found[NOBODY] = f"the program stays the superuser{unprivileged}" if stays else None
    found[LANDLOCK] = None if kernel.IS_LINUX and kernel.landlock_version() else "not in the kernel"
    found[SECCOMP] = None if seccomp.is_possible() else NO_SECCOMP
    found[LIMITS] = None
    found[MEMORY] = None if kernel.IS_LINUX else "only Linux holds a process to such a limit"
    found |= dict.fromkeys(disabled, "disabled")
    return Isolation(found, user)


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
        directory = mount_directory(isolation.user or os.getuid(), limits["disk_bytes"])
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
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.give_up_capabilities()
    if isolation.has(LANDLOCK):
        readable, writable = _open_paths(isolation)
        kernel.restrict_files(readable, writable, own_network=isolation.has_own_sockets)
    if isolation.has(SECCOMP):
        signals_are_scoped = isolation.has(LANDLOCK) and kernel.landlock_scopes_signals()
        sees_others = not (isolation.has(PROCESSES) or signals_are_scoped)
        kernel.filter_system_calls(
            seccomp.filter_for(
                kernel.MACHINE,
                own_network=isolation.has_own_sockets,
                own_files=isolation.has(MOUNTS),
                own_processes=os.getpid() if sees_others else None,
            )
        )


def _open_paths(isolation: Isolation) -> tuple[list[str], list[str]]:
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    if isolation.has(MOUNTS):
        return ["/"], [".", SHARED_MEMORY, *devices]
    return [*readable_paths(), "/proc/self"], [".", *devices]


def _limit(isolation: Isolation, limits: dict[str, Any]) -> None:
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
