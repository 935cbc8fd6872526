"""What the guard is asked, and what it tells: the guard's own run, from its start to its end.

It reads one request, enters its namespaces, and tells which walls stand; then it tells one
outcome for each input, or one for a check. The guard never holds the wanted outputs, and reads
a check only when the program is in a process of its own, so the program cannot find them. When
the guard's own input ends, nobody listens any more, and everything ends.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from podium.workers.sandbox.guard import kernel, namespaces, program, walls
from podium.workers.sandbox.guard.box import NOBODY_WAITS, Box, CannotEnclose, Ended
from podium.workers.sandbox.guard.tree import Tree
from podium.workers.sandbox.guard.walls import Walls


class Guarded(NamedTuple):
    """What every box of a request has in common."""

    standing: Walls
    tree: Tree
    limits: dict[str, Any]


def main() -> NoReturn:
    """Run everything that was asked for. Forks end where they begin to be the program; and all
    end at once, without Python's tidying up, which would take longer than the rest."""
    request = json.loads(read_block())
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the first process of all never gets
    load_what_checks(request.get("check"))
    left_out = request["left_out"]
    missing = namespaces.leave_the_machine(left_out)
    if missing[walls.PROCESSES] is None:
        first = os.fork()
        if first:
            await_first(first)
        kernel.die_with_parent(signal.SIGKILL)
    if kernel.IS_LINUX:
        kernel.adopt_orphans()
        kernel.hide_memory()
    tree = Tree()
    standing = walls.build(missing, left_out)
    tree.look_again()
    tell({"walls": standing.missing})
    if "program" in request:
        try:
            grade(Guarded(standing, tree, request["limits"]), request)
        except CannotEnclose as fault:
            tell({"fault": str(fault)})
    os._exit(0)


def load_what_checks(way: str | None) -> None:
    """What only checks need, which is slow to import; later its files are out of sight."""
    if way == "together":
        importlib.import_module("podium.workers.sandbox.guard.exam")
    elif way == "apart":
        importlib.import_module("podium.workers.sandbox.guard.examiner")
        importlib.import_module("podium.workers.sandbox.guard.server")


def grade(guarded: Guarded, request: dict[str, Any]) -> None:
    """Run the program, and tell what came of it."""
    try:
        codes = [compiled(part) for part in (request["before"], request["program"]) if part]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = f"the program is not valid Python: {type(error).__name__}"
        for _ in request["inputs"] or [None]:
            tell_ended(Ended(b"", problem))
        return
    program.names_at_hand()  # imported once, for all inputs
    gc.freeze()  # what all forks share stays shared
    if request["check"] == "together":
        check_together(guarded, codes)
    elif request["check"] == "apart":
        check_apart(guarded, codes)
    else:
        run_each_input(guarded, request, codes)


def compiled(source: str) -> CodeType:
    """A part of the program as Python reads it."""
    return compile(source, "program.py", "exec", dont_inherit=True)


def await_first(first: int) -> NoReturn:
    """Outside the namespaces: wait for the guard inside, and hold nothing of its own open."""
    os.closerange(0, 3)
    os.waitpid(first, 0)
    with suppress(OSError):
        os.rmdir(os.getcwd())  # should nobody else be left to do so
    os._exit(0)


def read_block() -> str:
    """A length on a line, and so many bytes; not one more, since what follows may be a secret."""
    length = b""
    while not length.endswith(b"\n"):
        digit = os.read(0, 1)
        if not digit:
            os._exit(0)
        length += digit
    block = bytearray()
    while len(block) < int(length):
        part = os.read(0, int(length) - len(block))
        if not part:
            os._exit(0)
        block += part
    return block.decode("utf-8", "surrogatepass")


def tell(told: dict[str, Any]) -> None:
    """One line to whoever listens."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def tell_ended(ended: Ended) -> None:
    """How a run of the program ended."""
    tell({"output": ended.output.decode("utf-8", "replace"), "problem": ended.problem})


def run_each_input(guarded: Guarded, request: dict[str, Any], codes: list[CodeType]) -> None:
    """Run the program anew for each input."""
    function = request["function"]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for text in request["inputs"]:
        box = Box(*guarded)
        reading, writing = os.pipe()
        source = file_of(text)
        streams = (source, writing, nowhere) if function is None else (source, nowhere, nowhere)
        child = box.start(streams if function is None else (*streams, writing))
        if child == 0:
            program.perform(codes, function, writing)
        os.close(writing)
        os.close(source)
        ended = box.watch(child, reading)
        os.close(reading)
        if ended.problem == NOBODY_WAITS:
            return
        tell_ended(ended)


def file_of(text: str) -> int:
    """A file with that text, open at its beginning, that has no name and cannot be changed."""
    data = text.encode("utf-8", "surrogatepass")
    if not kernel.IS_LINUX:
        import tempfile

        with tempfile.TemporaryFile(dir=".") as file:
            file.write(data)
            file.seek(0)
            return os.dup(file.fileno())
    descriptor = os.memfd_create("input", os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def check_apart(guarded: Guarded, codes: list[CodeType]) -> None:
    """Let the check call the program from a process of its own, and tell its verdict."""
    from podium.workers.sandbox.guard import examiner, server

    box = Box(*guarded)
    nowhere = os.open(os.devnull, os.O_RDWR)
    streams = (nowhere, nowhere, nowhere)
    hearing, asking = os.pipe()
    learning, answering = os.pipe()
    examined = box.start((*streams, hearing, answering))
    if examined == 0:
        server.serve(codes, hearing, answering)
    check = read_block()
    reading, writing = os.pipe()
    child = box.start((*streams, asking, learning, writing))
    if child == 0:
        examiner.examine(check, asking, learning, writing)
    for descriptor in (hearing, asking, learning, answering, writing):
        os.close(descriptor)
    ended = box.watch(child, reading)
    verdict = ended.output.decode("utf-8", "replace")
    if ended.problem is None and verdict != program.PASSED:
        ended = Ended(b"", box.problem_of(examined) or verdict or "the check gave no verdict")
    tell_ended(Ended(b"", ended.problem))


def check_together(guarded: Guarded, codes: list[CodeType]) -> None:
    """Let the check follow the program in one process, and tell the verdict that it vouches
    for."""
    from podium.workers.sandbox.guard import exam

    box = Box(*guarded)
    nowhere = os.open(os.devnull, os.O_RDWR)
    reading, writing = os.pipe()
    checking, handing = os.pipe()
    child = box.start((nowhere, nowhere, nowhere, checking, writing))
    if child == 0:
        exam.sit(codes, checking, writing)
    for descriptor in (writing, checking):
        os.close(descriptor)
    check = read_block()
    token = os.urandom(32).hex()
    if os.fork() == 0:  # since the pipe takes no more than the child has read
        hand_over(f"{token}\n{check}", handing)
    os.close(handing)
    ended = box.watch(child, reading)
    told, vouched, verdict = ended.output.decode("utf-8", "replace").rpartition(token)
    problem = ended.problem
    if problem is None and (told or not vouched):
        problem = "it ended before the check did"
    elif problem is None and verdict != program.PASSED:
        problem = verdict
    tell_ended(Ended(b"", problem))


def hand_over(text: str, handing: int) -> NoReturn:
    """Write a text as fast as it is read, and end."""
    try:
        with open(handing, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    finally:
        os._exit(0)
