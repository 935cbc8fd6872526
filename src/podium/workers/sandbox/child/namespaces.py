"""Namespaces of users, processes, network and mounts: an empty machine around the program.

The child enters them once per program and is their first process, so all others end with it. The
only network is a loopback of their own, and the root holds what Python needs, read-only. Each run
gets an empty directory and shared memory, both in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final

from podium.workers.sandbox.child import kernel

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
        "network": lambda: kernel.unshare(kernel.NEW_NETWORK),
        "processes": lambda: kernel.unshare(kernel.NEW_PROCESSES),
    }
    missing: dict[str, str | None] = {}
    for name, step in steps.items():
        try:
            if name in disabled:
                raise OSError("disabled")
            if not kernel.IS_LINUX:
                raise OSError("only Linux has namespaces")
            step()
        except OSError as error:
            missing[name] = str(error)
        else:
            missing[name] = None
    return missing


def _new_users(uid: int, gid: int) -> None:
    """Enter a user namespace with every capability inside and none outside."""
    if uid != ROOT:
        kernel.unshare(kernel.NEW_USERS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    # Only one who stays outside may name a second user, who is to be the program.
    child = os.getpid()
    hearing, telling = os.pipe()
    outside = os.fork()
    if outside == 0:
        os.close(telling)
        if os.read(hearing, 1):
            for name, own in (("uid_map", uid), ("gid_map", gid)):
                try:
                    _write(f"/proc/{child}/{name}", f"{own} {own} 1\n{NOBODY_ID} {NOBODY_ID} 1")
                except OSError:
                    _write(f"/proc/{child}/{name}", f"{own} {own} 1")
        os._exit(0)
    os.close(hearing)
    try:
        kernel.unshare(kernel.NEW_USERS)
        os.write(telling, b"!")
    finally:
        os.close(telling)
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
    above = {place for path in (*python_paths(), os.getcwd()) for place in _above(path)}
    if not own_root and any(not os.stat(place).st_mode & 0o1 for place in above):
        return None
    return NOBODY_ID


def _above(path: str) -> Iterator[str]:
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


def build_root(place: str, user: int) -> None:
    """Build a root in memory with only the readable paths, and switch to it."""
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.mount("none", "/", "", kernel.MOUNT_RECURSIVE | kernel.MOUNT_PRIVATE)
    kernel.mount("tmpfs", place, "tmpfs", kernel.MOUNT_NO_SUID, "size=4m,mode=755")
    for path in readable_paths():
        if os.path.islink(path):
            _make_parent(place + path)
            os.symlink(os.readlink(path), place + path)
        elif os.path.exists(path) and not os.path.exists(place + path):
            _bind(path, place + path)
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{place}/dev/{name}")
    for name, end in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/fd{end}", f"{place}/dev/{name}")
    for directory in (WORK_DIRECTORY, SHARED_MEMORY, "/proc"):
        os.makedirs(place + directory)
    shared = f"{place}/tmp"  # noqa: S108 - what others take for the shared one
    if not os.path.exists(shared):  # it does where Python itself lies below it
        os.symlink(WORK_DIRECTORY, shared)
    _write(f"{place}/etc/passwd", f"program:x:{user}:{user}::{WORK_DIRECTORY}:/bin/false\n")
    _write(f"{place}/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    with suppress(OSError):  # in containers that hide parts of it; programs rarely need it
        kernel.mount("proc", f"{place}/proc", "proc", _NOTHING_SPECIAL)
    kernel.make_root(place)
    kernel.make_read_only("/")


_NOTHING_SPECIAL: Final = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES | kernel.MOUNT_NO_EXEC


def _make_parent(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _bind(source: str, target: str) -> None:
    _make_parent(target)
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        _write(target, "")
    kernel.mount(source, target, "", kernel.MOUNT_BIND | kernel.MOUNT_RECURSIVE)


def mount_directory(user: int, disk_bytes: int) -> str:
    """Mount an empty directory and shared memory for this process and its children."""
    kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_IPC)
    options = f"size={disk_bytes},nr_inodes={disk_bytes // 4096 + 64},uid={user},gid={user}"
    for place in (WORK_DIRECTORY, SHARED_MEMORY):
        flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES
        kernel.mount("tmpfs", place, "tmpfs", flags, f"{options},mode=700")
    return WORK_DIRECTORY
