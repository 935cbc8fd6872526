"""The filter of system calls that a program may make (seccomp).

Everything that benchmark programs need is allowed. Calls that look into other processes, change the
machine or keep memory that no limit counts are refused, and so is a call that is harmless only
behind a layer that is missing.
"""

from __future__ import annotations

import errno
import struct
from typing import Final

from podium.workers.sandbox.child import kernel

_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

_REFUSED: Final = {
    # name: (number on x86_64, number on aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Memory that stays when no process holds it, or that no limit counts.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
_SIGNALS_BY_NUMBER: Final = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}
_SIGNALS_WITH_DATA: Final = {
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_OWNERS: Final = {
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
}
_MODES_AND_TIMES: Final = {
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
"""Landlock does not cover owners, modes and times. Where it alone protects files, these calls are
refused; those that copying a file makes succeed without effect."""
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_SOCKET: Final = (41, 198)
_IOCTL: Final = (16, 29)

_NEW_NAMESPACES: Final = 0x7E02_0080
_FORGE_KEYS: Final = (0x5412, 0x541C)
"""Requests that put characters into a terminal as if its user had typed them."""
_LOCAL_AND_INTERNET: Final = (1, 2, 10)

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF_0000
_KILL: Final = 0x8000_0000
_REFUSE: Final = 0x0005_0000

_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_OLD_NUMBERS: Final = 0x4000_0000
"""x86_64 has its calls a second time above this number."""


def is_possible() -> bool:
    """True if the kernel has seccomp and the call numbers of this machine are known."""
    return kernel.IS_LINUX and kernel.MACHINE in _ARCHITECTURES and kernel.has_seccomp()


def filter_for(
    machine: str, *, own_network: bool, own_files: bool, own_processes: int | None
) -> bytes:
    """Return the filter for this machine.

    A network of its own allows sockets, files of its own allow changing modes. `own_processes` is
    the only process that may be signalled where the program sees others.
    """
    column = list(_ARCHITECTURES).index(machine)
    refused: list[int | None] = [numbers[column] for numbers in _REFUSED.values()]
    parts = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        parts += [_instruction(_AT_LEAST, _OLD_NUMBERS, 0, 1), _refusal(errno.ENOSYS)]
    # Without clone3, whose flags a filter cannot see, the C library uses clone.
    parts += _on(_CLONE3[column], [_refusal(errno.ENOSYS)])
    parts += _on(_CLONE[column], _unless_any_bit(_FIRST_ARGUMENT, _NEW_NAMESPACES))
    parts += _on(_IOCTL[column], _unless_one_of(_SECOND_ARGUMENT, _FORGE_KEYS))
    if own_network:
        parts += _on(_SOCKET[column], _only_if_one_of(_FIRST_ARGUMENT, _LOCAL_AND_INTERNET))
    else:
        refused.append(_SOCKET[column])
    if own_processes is not None:
        refused += [numbers[column] for numbers in _SIGNALS_WITH_DATA.values()]
        for numbers in _SIGNALS_BY_NUMBER.values():
            parts += _on(numbers[column], _only_if_one_of(_FIRST_ARGUMENT, (own_processes, 0)))
    if not own_files:
        refused += [numbers[column] for numbers in _OWNERS.values()]
        for pretended in _MODES_AND_TIMES.values():
            parts += _on(pretended[column], [_refusal(0)])
    for number in refused:
        parts += _on(number, [_refusal(errno.EPERM)])
    return b"".join([*parts, _instruction(_RETURN, _ALLOW)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refusal(number: int) -> bytes:
    return _instruction(_RETURN, _REFUSE | number)


def _on(number: int | None, then: list[bytes]) -> list[bytes]:
    """Return instructions for one system call; none on machines that lack it."""
    if number is None:
        return []
    return [_instruction(_EQUAL, number, 0, len(then)), *then]


def _only_if_one_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    return _by_value(argument, values, _instruction(_RETURN, _ALLOW), _refusal(errno.EPERM))


def _unless_one_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    return _by_value(argument, values, _refusal(errno.EPERM), _instruction(_RETURN, _ALLOW))


def _by_value(
    argument: int, values: tuple[int, ...], if_one: bytes, otherwise: bytes
) -> list[bytes]:
    tests = [
        _instruction(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)
    ]
    return [_instruction(_LOAD, argument), *tests, otherwise, if_one]


def _unless_any_bit(argument: int, bits: int) -> list[bytes]:
    return [
        _instruction(_LOAD, argument),
        _instruction(_ANY_BIT, bits, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _refusal(errno.EPERM),
    ]
