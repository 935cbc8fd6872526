"""The guard: runs a program once for each input, within limits; started by `sandbox`.

It reads one line of JSON, and writes one for each input. For each it forks, and the fork sets
its own limits and becomes the program: Python need not be started again for it. The
guard never holds the wanted outputs, so the program cannot find them. When the guard's own input
ends, nobody listens any more, and everything ends.

Standard library only: it is run as a script, apart from Podium.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

LOOK_EVERY_SECONDS: Final = 0.02
ABOUT_TO_END_SECONDS: Final = 0.001
"""A program whose output has ended ends right after, as a rule."""
COUNT_EVERY_SECONDS: Final = 0.2
MOST_TRIES_TO_KILL: Final = 1000
MANY_PROCESSES: Final = 1024
BECOME_SUBREAPER: Final = 36

AT_HAND: Final = (
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "itertools",
    "functools",
    "operator",
    "io",
    "json",
    "sys",
    "typing",
)
"""What a program may use without importing it, the modules and the names in them: such is the
custom of the sites that the tasks are from, whose own first lines name `List` and import nothing.
"""

DEEPEST_RECURSION: Final = 50_000


class Ended(NamedTuple):
    """How one run of the program ended."""

    output: bytes
    problem: str | None


def main() -> int:
    """Run everything that was asked for; the forks leave here too, as the program."""
    request = json.loads(sys.stdin.buffer.readline())
    adopt_orphans()
    request["limits"]["all_processes"] = count_of_threads() + MANY_PROCESSES
    namespace = names_at_hand()
    try:
        code = compile(request["program"], "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        for _ in request["inputs"]:
            tell(Ended(b"", f"the program is not valid Python: {type(error).__name__}"))
        return 0
    for text in request["inputs"]:
        box = tempfile.mkdtemp(dir=".")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            enter(box, request, text, writing)
            return perform(code, namespace, request["function"], writing)
        os.close(writing)
        ended = watch(child, reading, request["limits"])
        os.close(reading)
        shutil.rmtree(box, ignore_errors=True)
        tell(ended)
    return 0


def tell(ended: Ended) -> None:
    """One line to whoever listens."""
    output = ended.output.decode("utf-8", "replace")
    sys.stdout.write(json.dumps({"output": output, "problem": ended.problem}) + "\n")
    sys.stdout.flush()


def names_at_hand() -> dict[str, Any]:
    """What a program finds before its first line. What is built in stays what it is."""
    names: dict[str, Any] = {}
    for module_name in AT_HAND:
        module = importlib.import_module(module_name)
        public = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        names |= {name: getattr(module, name) for name in public if not hasattr(builtins, name)}
    return names | {module_name: sys.modules[module_name] for module_name in AT_HAND}


# In the fork: becoming the program.


def enter(box: str, request: dict[str, Any], text: str, writing: int) -> None:
    """Leave everything of the guard behind but the code, and take on the limits."""
    os.setsid()
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
        file.seek(0)
        os.dup2(file.fileno(), 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere if request["function"] else writing, 1)
    os.dup2(nowhere, 2)
    for descriptor in range(3, 256):
        if descriptor != writing:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    os.chdir(box)
    os.environ.clear()
    os.environ |= {"HOME": os.getcwd(), "TMPDIR": os.getcwd(), "PATH": os.defpath}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    tempfile.tempdir = None
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the program
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    limit(request["limits"])


def limit(limits: dict[str, Any]) -> None:
    """Limits that the program cannot raise again."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"] + 1,
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: limits["all_processes"],
    }
    if sys.platform == "linux":
        wanted[resource.RLIMIT_AS] = limits["memory_bytes"]
    for kind, most in wanted.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    # A second before the system kills it, it is told why: the exit status says so.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu_seconds"], hard), hard))


def perform(code: CodeType, namespace: dict[str, Any], function: str | None, writing: int) -> int:
    """Be the program: return its exit status, and let Python end as it always does."""
    program = ModuleType("__main__")
    program.__dict__.update(namespace)
    sys.modules["__main__"] = program
    sys.argv = ["program.py"]
    sys.setrecursionlimit(DEEPEST_RECURSION)
    exec(code, program.__dict__)  # noqa: S102 - this is what the sandbox is for
    if function is not None:
        arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
        owner = program.__dict__.get("Solution")
        called = getattr(owner(), function) if owner else program.__dict__[function]
        with open(writing, "w", encoding="utf-8") as file:
            json.dump(called(*arguments), file)
    return 0


# In the guard: watching it.


def watch(child: int, reading: int, limits: dict[str, Any]) -> Ended:
    """Wait until the program has ended or used up a limit, and end whatever is left of it."""
    deadline = time.monotonic() + limits["wall_seconds"]
    next_count = time.monotonic() + COUNT_EVERY_SECONDS
    output = bytearray()
    listening = [0, reading]
    status = None
    problem = None
    while problem is None and status is None:
        patience = LOOK_EVERY_SECONDS if reading in listening else ABOUT_TO_END_SECONDS
        ready, _, _ = select.select(listening, [], [], patience)
        if reading in ready and not take(reading, output):
            listening.remove(reading)
        if 0 in ready and not os.read(0, 1):
            problem = "nobody waits for it any more"
        elif len(output) > limits["output_bytes"]:
            problem = "it wrote too much"
        elif time.monotonic() > deadline:
            problem = "it took too long"
        elif time.monotonic() > next_count:
            next_count = time.monotonic() + COUNT_EVERY_SECONDS
            if sum(1 for _ in descendants()) > limits["processes"]:
                problem = "it started too many processes"
        status = status_of(child)
    while reading in listening and problem is None and take(reading, output):
        if len(output) > limits["output_bytes"]:
            problem = "it wrote too much"
    end_everything(child)
    if problem == "nobody waits for it any more":
        shutil.rmtree(os.getcwd(), ignore_errors=True)  # nor will anybody clear up
        raise SystemExit(0)
    return Ended(bytes(output), problem or told_by(status))


def take(reading: int, output: bytearray) -> bool:
    """Take what there is to read without waiting; False when there will never be more."""
    if not select.select([reading], [], [], 0)[0]:
        return False
    data = os.read(reading, 2**16)
    output += data
    return bool(data)


def status_of(child: int) -> int | None:
    """How the program ended, None while it runs."""
    with contextlib.suppress(ChildProcessError):
        ended, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    return 0


def told_by(status: int | None) -> str | None:
    """The problem that an exit status tells of."""
    if status == -signal.SIGXCPU:
        return "it took too much processor time"
    return None if status == 0 else f"it ended with status {status}"


def end_everything(child: int) -> None:
    """Kill the program's session, and whatever left it: orphans come to the guard."""
    for _ in range(MOST_TRIES_TO_KILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if not reap():
            return
        for process in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.001)


def reap() -> bool:
    """Take leave of children that have ended; False when none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants() -> Iterator[int]:
    """Every process below the guard. Systems without /proc show none, and only the program's own
    session is ended there."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            stat = entry.read_text("utf-8", "replace")
            parents[int(entry.parent.name)] = int(stat.rpartition(")")[2].split()[1])
    guard = os.getpid()
    for process in parents:
        above = process
        while above in parents and parents[above] != guard:
            above = parents[above]
        if above in parents:
            yield process


def count_of_threads() -> int:
    """How many threads there are on the machine: the system's limit counts a user's others too,
    so a program is allowed some more than these."""
    return sum(1 for _ in Path("/proc").glob("[0-9]*/task/[0-9]*"))


def adopt_orphans() -> None:
    """On Linux, processes whose parent ended become children of the guard, not of the system."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
