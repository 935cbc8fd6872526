"""The child's main function: read a request, build the isolation, run, and send the results.

It sends the active layers, then one result per input or one for a check. The child never holds
expected outputs, and it reads a check only after the program has a process of its own, so the
program cannot find either. When the child's input ends, the caller is gone and everything ends.
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

from podium.workers.sandbox.child import isolation, kernel, program
from podium.workers.sandbox.child.isolation import Isolation
from podium.workers.sandbox.child.processes import (
    CALLER_GONE,
    ChildResult,
    IsolatedRun,
    IsolationFailed,
    ProcessTree,
)


class ChildContext(NamedTuple):
    """State that all runs of a request share."""

    active: Isolation
    tree: ProcessTree
    limits: dict[str, Any]


def main() -> NoReturn:
    """Serve one request.

    Forks never return. All exit at once: Python's own cleanup would take longer than the rest.
    """
    request = json.loads(read_block())
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the first process of all never gets
    preload_checks(request.get("check"))
    disabled = request["disabled"]
    reasons = isolation.enter_namespaces(disabled)
    if reasons[isolation.PROCESSES] is None:
        first = os.fork()
        if first:
            wait_for_init(first)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if kernel.IS_LINUX:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    tree = ProcessTree()
    active = isolation.build(reasons, disabled)
    tree.reopen()
    send({"layers": active.absence_reasons})
    if "program" in request:
        try:
            run_request(ChildContext(active, tree, request["limits"]), request)
        except IsolationFailed as fault:
            send({"fault": str(fault)})
    os._exit(0)


def preload_checks(check_mode: str | None) -> None:
    """Import what checks need now; later the files are out of reach."""
    if check_mode == "in_process":
        importlib.import_module("podium.workers.sandbox.child.local_check")
    elif check_mode == "separate":
        importlib.import_module("podium.workers.sandbox.child.remote_check")


def run_request(context: ChildContext, request: dict[str, Any]) -> None:
    try:
        codes = [compile_source(part) for part in (request["prelude"], request["program"]) if part]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = f"the program is not valid Python: {type(error).__name__}"
        for _ in request["inputs"] or [None]:
            send_result(ChildResult(b"", problem))
        return
    program.preloaded_names()  # imported once, for all inputs
    gc.freeze()  # what all forks share stays shared
    if request["check"] == "in_process":
        run_local_check(context, codes)
    elif request["check"] == "separate":
        run_remote_check(context, codes)
    else:
        run_inputs(context, request, codes)


def compile_source(source: str) -> CodeType:
    return compile(source, "program.py", "exec", dont_inherit=True)


def wait_for_init(first: int) -> NoReturn:
    """Wait outside the namespaces for the child inside, with no file open."""
    os.closerange(0, 3)
    os.waitpid(first, 0)
    with suppress(OSError):
        os.rmdir(os.getcwd())  # in case the caller was killed
    os._exit(0)


def read_block() -> str:
    """Read a length on a line and that many bytes; what follows may be a secret."""
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


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def send_result(ended: ChildResult) -> None:
    send({"output": ended.output.decode("utf-8", "replace"), "problem": ended.problem})


def run_inputs(context: ChildContext, request: dict[str, Any], codes: list[CodeType]) -> None:
    function = request["function"]
    null_fd = os.open(os.devnull, os.O_WRONLY)
    for text in request["inputs"]:
        run = IsolatedRun(*context)
        output_read_fd, output_write_fd = os.pipe()
        input_fd = memory_file(text)
        streams = (input_fd, output_write_fd if function is None else null_fd, null_fd)
        child = run.start(streams if function is None else (*streams, output_write_fd))
        if child == 0:
            program.run_once(codes, function, output_write_fd)
        os.close(output_write_fd)
        os.close(input_fd)
        ended = run.watch(child, output_read_fd)
        os.close(output_read_fd)
        if ended.problem == CALLER_GONE:
            return
        send_result(ended)


def memory_file(text: str) -> int:
    """Open a nameless, immutable file with that text."""
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
    flags = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, flags)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def run_remote_check(context: ChildContext, codes: list[CodeType]) -> None:
    """Run the check in a process of its own, which calls the program's; send the verdict."""
    from podium.workers.sandbox.child import remote_check

    run = IsolatedRun(*context)
    null_fd = os.open(os.devnull, os.O_RDWR)
    streams = (null_fd, null_fd, null_fd)
    request_read_fd, request_write_fd = os.pipe()
    reply_read_fd, reply_write_fd = os.pipe()
    program_process = run.start((*streams, request_read_fd, reply_write_fd))
    if program_process == 0:
        remote_check.serve(codes, request_read_fd, reply_write_fd)
    check = read_block()
    verdict_read_fd, verdict_write_fd = os.pipe()
    child = run.start((*streams, request_write_fd, reply_read_fd, verdict_write_fd))
    if child == 0:
        remote_check.run(check, request_write_fd, reply_read_fd, verdict_write_fd)
    for fd in (request_read_fd, request_write_fd, reply_read_fd, reply_write_fd, verdict_write_fd):
        os.close(fd)
    ended = run.watch(child, verdict_read_fd, program_process)
    verdict = ended.output.decode("utf-8", "replace")
    if ended.problem is None and verdict != program.PASSED:
        exited = run.problem_of(program_process) if remote_check.EXITED in verdict else None
        ended = ChildResult(b"", exited or verdict or "the check gave no verdict")
    send_result(ChildResult(b"", ended.problem))


def run_local_check(context: ChildContext, codes: list[CodeType]) -> None:
    """Run the check in the program's process; send the verdict if the token is there."""
    from podium.workers.sandbox.child import local_check

    run = IsolatedRun(*context)
    null_fd = os.open(os.devnull, os.O_RDWR)
    verdict_read_fd, verdict_write_fd = os.pipe()
    check_read_fd, check_write_fd = os.pipe()
    child = run.start((null_fd, null_fd, null_fd, check_read_fd, verdict_write_fd))
    if child == 0:
        local_check.run(codes, check_read_fd, verdict_write_fd)
    for fd in (verdict_write_fd, check_read_fd):
        os.close(fd)
    check = read_block()
    token = os.urandom(32).hex()
    if os.fork() == 0:  # since the pipe takes no more than the child has read
        write_and_exit(f"{token}\n{check}", check_write_fd)
    os.close(check_write_fd)
    ended = run.watch(child, verdict_read_fd)
    before, vouched, verdict = ended.output.decode("utf-8", "replace").rpartition(token)
    problem = ended.problem
    if problem is None and (before or not vouched):
        problem = "exited before the check finished"
    elif problem is None and verdict != program.PASSED:
        problem = verdict
    send_result(ChildResult(b"", problem))


def write_and_exit(text: str, fd: int) -> NoReturn:
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    finally:
        os._exit(0)
