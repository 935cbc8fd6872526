"""Linux system calls that Python lacks, called through `ctypes`. Each raises OSError on failure."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
MACHINE: Final = os.uname().machine

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2

PR_SET_PDEATHSIG: Final = 1
"""The signal for when the parent exits."""
PR_SET_DUMPABLE: Final = 4
"""0 keeps processes of the same user from reading this one's memory."""
PR_SET_CHILD_SUBREAPER: Final = 36
"""1 makes this process the parent of descendants whose parent exits."""
PR_SET_NO_NEW_PRIVS: Final = 38
"""1 keeps programs started from here from gaining rights."""
_PR_GET_SECCOMP: Final = 21
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

# System calls newer than 2019 have the same number on every machine.
_MOUNT_SETATTR: Final = 442
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT_SELF: Final = 446
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_MOUNT_ATTR_RDONLY: Final = 1
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_CAPABILITY_VERSION: Final = 0x2008_0522

_AF_INET: Final = 2
_SOCK_DGRAM: Final = 2
_SIOCSIFFLAGS: Final = 0x8914
_UP_AND_RUNNING: Final = 0x41

if IS_LINUX:
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.syscall.restype = ctypes.c_long


def _check(returned: int, what: str) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return returned


def _call(what: str, number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def prctl(option: int, first: int, second: int = 0) -> None:
    arguments = [ctypes.c_ulong(number) for number in (first, second, 0, 0)]
    _check(_libc.prctl(option, *arguments), f"prctl {option}")


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def loopback_up() -> None:
    """Switch on the loopback interface of a new network namespace."""
    any_socket = _check(_libc.socket(_AF_INET, _SOCK_DGRAM, 0), "socket")
    request = struct.pack("16sH14x", b"lo", _UP_AND_RUNNING)
    try:
        _check(_libc.ioctl(any_socket, _SIOCSIFFLAGS, request), "loopback")
    finally:
        os.close(any_socket)


def mount(source: str, target: str, form: str, flags: int, options: str = "") -> None:
    returned = _libc.mount(
        source.encode(), target.encode(), form.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(returned, f"mounting {target}")


def make_read_only(target: str) -> None:
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY | MS_NOSUID, 0, 0, 0)
    _call(
        f"making {target} read-only",
        _MOUNT_SETATTR,
        _AT_FDCWD,
        target.encode(),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def make_root(directory: str) -> None:
    """Make a directory the root, for good."""
    if MACHINE not in _PIVOT_ROOT:
        raise OSError(f"pivot_root: its number on {MACHINE} is not known")
    os.chdir(directory)
    _call("pivot_root", _PIVOT_ROOT[MACHINE], b".", b".")
    _check(_libc.umount2(b".", _MNT_DETACH), "leaving the old root")
    os.chdir("/")


def give_up_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(none)), "capset")


def has_seccomp() -> bool:
    return bool(_libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0)


def filter_system_calls(instructions: bytes) -> None:
    """Install a seccomp filter, eight bytes per instruction, for good."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    filter_ = Filter(len(instructions) // 8, instructions)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIRECTORY: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_RIGHTS_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""File rights that each Landlock version knows; sixteen from version 5."""
_CONNECT_AND_BIND: Final = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 0b11
_KNOWS_NETWORK: Final = 4
_KNOWS_SIGNALS: Final = 6
_ASK_VERSION: Final = 1
_BENEATH_PATH: Final = 1


def landlock_version() -> int:
    """Return the Landlock version; 0 if the kernel has none."""
    try:
        return _call("landlock", _LANDLOCK_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def landlock_scopes_signals() -> bool:
    """True if Landlock keeps a process from signalling others than its own children."""
    return landlock_version() >= _KNOWS_SIGNALS


def restrict_files(readable: Iterable[str], writable: Iterable[str], *, own_network: bool) -> None:
    """Allow this process to read and to write these paths only (Landlock).

    Missing paths are ignored. Without a network of its own the process may not connect, and it may
    signal only its own children.
    """
    version = landlock_version()
    every_right = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    network = _CONNECT_AND_BIND if version >= _KNOWS_NETWORK and not own_network else 0
    scopes = _SIGNALS_AND_ABSTRACT_SOCKETS if version >= _KNOWS_SIGNALS else 0
    size = 8 if version < _KNOWS_NETWORK else 16 if version < _KNOWS_SIGNALS else 24
    attributes = ctypes.byref((ctypes.c_uint64 * 3)(every_right, network, scopes))
    ruleset = _call("landlock", _LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    for path in writable:
        _allow(ruleset, path, every_right)
    _call("landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("access", ctypes.c_uint64), ("descriptor", ctypes.c_int32))

    with suppress(FileNotFoundError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = Beneath(rights if os.path.isdir(path) else rights & _RIGHTS_OF_FILES, descriptor)
        _call("landlock", _LANDLOCK_ADD_RULE, ruleset, _BENEATH_PATH, ctypes.byref(rule), 0)
        os.close(descriptor)
