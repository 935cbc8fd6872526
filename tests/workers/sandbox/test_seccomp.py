"""The filter of system calls, decided as the kernel would, for machines that are not this one."""

from __future__ import annotations

import errno
import struct

import pytest

from podium.workers.sandbox.child.seccomp import filter_for

X86, ARM = "x86_64", "aarch64"
ARCHITECTURES = {X86: 0xC000003E, ARM: 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"
LOCAL, INTERNET, PACKETS = 1, 2, 17

MACHINES = pytest.mark.parametrize("machine", [X86, ARM])


def decide(
    instructions: bytes, machine: str, number: int, first: int = 0, second: int = 0
) -> str | int:
    """What a kernel says to a call: allowed, killed, or the error with which it is refused."""
    words = (number, ARCHITECTURES[machine], 0, 0, first, 0, second, 0)
    data = struct.pack("=8I", *(word & 0xFFFFFFFF for word in words))
    program: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", instructions))
    loaded, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        if code == 0x06:
            named = {0x7FFF0000: ALLOWED, 0x80000000: KILLED}
            return named.get(value) or value & 0xFFFF
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
            at += 1
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}
            at += 1 + (if_true if holds[code] else if_false)


def enclosed(machine: str) -> bytes:
    return filter_for(machine, own_network=True, own_files=True, own_processes=None)


def exposed(machine: str) -> bytes:
    return filter_for(machine, own_network=False, own_files=False, own_processes=77)


@MACHINES
def test_ordinary_system_calls_are_allowed(machine: str) -> None:
    read_write_open_exec = {X86: (0, 1, 257, 59), ARM: (63, 64, 56, 221)}[machine]
    for number in read_write_open_exec:
        assert decide(enclosed(machine), machine, number) == ALLOWED
        assert decide(exposed(machine), machine, number) == ALLOWED


@MACHINES
def test_looking_into_processes_and_mounting_are_refused(machine: str) -> None:
    ptrace_mount_unshare_setns = {X86: (101, 165, 272, 308), ARM: (117, 40, 97, 268)}[machine]
    for number in ptrace_mount_unshare_setns:
        assert decide(enclosed(machine), machine, number) == errno.EPERM


@MACHINES
def test_processes_may_be_started_but_not_in_new_namespaces(machine: str) -> None:
    clone, clone3 = {X86: (56, 435), ARM: (220, 435)}[machine]
    assert decide(enclosed(machine), machine, clone, 0x11) == ALLOWED
    assert decide(enclosed(machine), machine, clone, 0x10000011) == errno.EPERM
    assert decide(enclosed(machine), machine, clone3) == errno.ENOSYS


@MACHINES
def test_sockets_are_for_those_with_a_network_of_their_own(machine: str) -> None:
    socket = {X86: 41, ARM: 198}[machine]
    assert decide(enclosed(machine), machine, socket, LOCAL) == ALLOWED
    assert decide(enclosed(machine), machine, socket, INTERNET) == ALLOWED
    assert decide(enclosed(machine), machine, socket, PACKETS) == errno.EPERM
    assert decide(exposed(machine), machine, socket, LOCAL) == errno.EPERM


@MACHINES
def test_a_program_that_sees_other_processes_can_signal_only_itself(machine: str) -> None:
    kill, tgkill = {X86: (62, 234), ARM: (129, 131)}[machine]
    assert decide(enclosed(machine), machine, kill, 1) == ALLOWED
    assert decide(exposed(machine), machine, kill, 77) == ALLOWED
    assert decide(exposed(machine), machine, tgkill, 77) == ALLOWED
    assert decide(exposed(machine), machine, kill, 0) == ALLOWED
    assert decide(exposed(machine), machine, kill, 1) == errno.EPERM
    assert decide(exposed(machine), machine, kill, -1) == errno.EPERM


@MACHINES
def test_modes_of_files_are_changed_in_pretence_where_files_are_others(machine: str) -> None:
    fchmodat, fchownat = {X86: (268, 260), ARM: (53, 54)}[machine]
    assert decide(enclosed(machine), machine, fchmodat) == ALLOWED
    assert decide(exposed(machine), machine, fchmodat) == 0
    assert decide(exposed(machine), machine, fchownat) == errno.EPERM


@MACHINES
def test_a_program_cannot_type_into_the_terminal(machine: str) -> None:
    ioctl = {X86: 16, ARM: 29}[machine]
    assert decide(enclosed(machine), machine, ioctl, 0, 0x5413) == ALLOWED
    assert decide(enclosed(machine), machine, ioctl, 0, 0x5412) == errno.EPERM


def test_calls_of_another_machine_end_the_program() -> None:
    assert decide(enclosed(X86), ARM, 0) == KILLED
    assert decide(enclosed(X86), X86, 0x40000000) == errno.ENOSYS
