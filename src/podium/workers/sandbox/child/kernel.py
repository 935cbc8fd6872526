"""Linux system calls that Python lacks, called through `ctypes`. Each raises OSError on failure."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
MACHINE: Final = os.uname().machine

NEW_MOUNTS: Final = 0x0002_0000
NEW_IPC: Final = 0x0800_0000
NEW_USERS: Final = 0x1000_0000
NEW_PROCESSES: Final = 0x2000_0000
NEW_NETWORK: Final = 0x4000_0000

MOUNT_NO_SUID: Final = 2
MOUNT_NO_DEVICES: Final = 4
MOUNT_NO_EXEC: Final = 8
MOUNT_BIND: Final = 4096
MOUNT_RECURSIVE: Final = 16384
MOUNT_PRIVATE: Final = 1 << 18
_UNMOUNT_LATER: Final = 2

_MOUNT_SETATTR: Final = 442
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT_SELF: Final = 446
"""System calls newer than 2019 have the same number on every machine."""
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_ATTRIBUTE_READ_ONLY: Final = 1
_AT_RECURSIVE: Final = 0x8000
_LANDLOCK_ASK_VERSION: Final = 1
_LANDLOCK_BENEATH_PATH: Final = 1
_CAPABILITY_VERSION: Final = 0x2008_0522

_INTERNET: Final = 2
_DATAGRAMS: Final = 2
_SET_FLAGS_OF_INTERFACE: Final = 0x8914
_UP_AND_RUNNING: Final = 0x41

_SET_DEATH_SIGNAL: Final = 1
_SET_DUMPABLE: Final = 4
_SET_SECCOMP: Final = 22
_GET_SECCOMP: Final = 21
_SECCOMP_FILTER: Final = 2
_SET_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVILEGES: Final = 38

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


def _by_machine(what: str, numbers: dict[str, int]) -> int:
    if MACHINE not in numbers:
        raise OSError(f"{what}: its number on {MACHINE} is not known")
    return numbers[MACHINE]


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def loopback_up() -> None:
    """Switch on the loopback interface of a new network namespace."""
    any_socket = _check(_libc.socket(_INTERNET, _DATAGRAMS, 0), "socket")
    request = struct.pack("16sH14x", b"lo", _UP_AND_RUNNING)
    try:
        _check(_libc.ioctl(any_socket, _SET_FLAGS_OF_INTERFACE, request), "loopback")
    finally:
        os.close(any_socket)


def mount(source: str, target: str, form: str, flags: int, options: str = "") -> None:
    """Mount a file system."""
    returned = _libc.mount(
        source.encode(), target.encode(), form.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(returned, f"mounting {target}")


def make_read_only(target: str) -> None:
    """Make a mount and everything below it read-only."""
    attributes = (ctypes.c_uint64 * 4)(_ATTRIBUTE_READ_ONLY | MOUNT_NO_SUID, 0, 0, 0)
    _call(
        f"making {target} read-only",
        _MOUNT_SETATTR,
        -100,
        target.encode(),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def make_root(place: str) -> None:
    """Make a directory the root, for good."""
    number = _by_machine("pivot_root", _PIVOT_ROOT)
    os.chdir(place)
    _call("pivot_root", number, b".", b".")
    _check(_libc.umount2(b".", _UNMOUNT_LATER), "leaving the old root")
    os.chdir("/")


def give_up_capabilities() -> None:
    """Drop all capabilities."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(none)), "capset")


def no_new_privileges() -> None:
    """Keep programs started from here from gaining rights."""
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent exits."""
    _prctl(_SET_SUBREAPER, 1)


def die_with_parent(signal: int) -> None:
    """Request a signal for when the parent exits."""
    _prctl(_SET_DEATH_SIGNAL, signal)


def hide_memory() -> None:
    """Keep processes of the same user from reading this one's memory."""
    _prctl(_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Undo `hide_memory`."""
    _prctl(_SET_DUMPABLE, 1)


def has_seccomp() -> bool:
    """True if the kernel can filter system calls."""
    return bool(_libc.prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0)


def filter_system_calls(instructions: bytes) -> None:
    """Install a seccomp filter, eight bytes per instruction, for good."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    filter_ = Filter(len(instructions) // 8, instructions)
    _prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(filter_))


def _prctl(option: int, first: int, second: int = 0) -> None:
    arguments = [ctypes.c_ulong(number) for number in (first, second, 0, 0)]
    _check(_libc.prctl(option, *arguments), f"prctl {option}")


def landlock_version() -> int:
    """Return the Landlock version; 0 if the kernel has none."""
    try:
        return _call("landlock", _LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_ASK_VERSION)
    except OSError:
        return 0


def landlock_ruleset(files: int, network: int, scopes: int, size: int) -> int:
    """Create a rule set; `size` is that of the structure at its version."""
    attributes = (ctypes.c_uint64 * 3)(files, network, scopes)
    return _call(
        "landlock", _LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0
    )


def landlock_allow(ruleset: int, access: int, place: int) -> None:
    """Allow access beneath an open path."""

    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("access", ctypes.c_uint64), ("place", ctypes.c_int32))

    rule = Beneath(access, place)
    _call("landlock", _LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_BENEATH_PATH, ctypes.byref(rule), 0)


def landlock_restrict(ruleset: int) -> None:
    """Apply the rules to this process and its children."""
    _call("landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
