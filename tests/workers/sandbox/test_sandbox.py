from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.workers import sandbox
from podium.workers.sandbox import (
    DEFAULT_LIMITS,
    ProgramLimits,
    ProgramResult,
    isolation_layers,
    require_sandbox,
    run_program,
)

BRIEF = ProgramLimits(cpu_seconds=1, wall_seconds=1.0, output_bytes=10_000)


async def outcome(
    program: str, text: str = "", limits: ProgramLimits = DEFAULT_LIMITS
) -> ProgramResult:
    (only,) = [one async for one in run_program(program, [text], limits=limits)]
    return only


def exists(path: str) -> bool:
    return Path(path).exists()


def is_empty(path: Path) -> bool:
    return not any(path.iterdir())


MARK = f"600.{os.getpid()}"
"""By which processes of a program are known from outside: how many seconds they would sleep."""


def marked_processes() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if MARK in entry.read_text("utf-8", "replace").split("\0"):
                found.append(entry.parent.name)
    return found


async def test_each_input_meets_the_program_again() -> None:
    program = "import sys\nprint(input(), 'seen' in vars(sys))\nsys.seen = 1"
    outcomes = [one.output async for one in run_program(program, ["a", "b"])]
    assert outcomes == ["a False\n", "b False\n"]


async def test_a_program_ends_as_programs_do() -> None:
    threads = "import threading\nthreading.Thread(target=lambda: print('late')).start()"
    assert await outcome(threads) == ProgramResult("late\n")
    last = "import atexit\natexit.register(print, 'bye')\nif __name__ == '__main__': print('hi')"
    assert await outcome(last) == ProgramResult("hi\nbye\n")


async def test_a_failure_is_reported() -> None:
    assert (await outcome("raise ValueError")).problem == "exited with status 1"
    assert "not valid Python" in str((await outcome("def (")).problem)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("while True: pass", "exceeded the CPU time limit or timed out"),
        ("import time; time.sleep(60)", "timed out"),
        ("while True: print('x' * 999)", "exceeded the output limit"),
    ],
)
async def test_a_program_without_end_is_ended(program: str, problem: str) -> None:
    assert (await outcome(program, limits=BRIEF)).problem in problem.split(" or ")


@pytest.mark.skipif(sys.platform != "linux", reason="this system does not limit memory")
async def test_memory_and_files_are_limited() -> None:
    caught = "try: {}\nexcept {}: print('refused')"
    memory = caught.format("x = bytes(2 * 1024**3)", "MemoryError")
    assert (await outcome(memory)).output == "refused\n"
    file = caught.format("open('large', 'wb').write(bytes(32 * 1024**2))", "OSError")
    assert (await outcome(file)).output == "refused\n"


async def test_a_program_finds_an_empty_directory_and_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PODIUM_SECRET", "hush")
    look = "import os\nprint(os.listdir('.'), 'PODIUM_SECRET' in os.environ, os.getcwd())"
    files, secret, where = (await outcome(look)).output.split()
    assert (files, secret) == ("[]", "False")
    assert not exists(where)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who left the session")
async def test_processes_started_by_a_program_end_with_it() -> None:
    program = f"""
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv('/bin/sleep', ['sleep', {MARK!r}])
    os._exit(0)
os.close(writing)
os.read(reading, 1)
print('begun')
"""
    assert await outcome(program) == ProgramResult("begun\n")
    assert not marked_processes()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows all of a program's processes")
async def test_a_program_that_multiplies_is_ended() -> None:
    program = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(600)
"""
    assert (await outcome(program)).problem == "exceeded the process limit"


async def test_cancelling_a_call_stops_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "import time\nif input(): time.sleep(600)"
    async with aclosing(run_program(program, ["\n", "wait\n"])) as outcomes:
        assert await anext(outcomes) == ProgramResult("")
    assert is_empty(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what others run")
async def test_a_cancelled_grading_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sleep = f"import os\nos.execv('/bin/sleep', ['sleep', {MARK!r}])"
    grading = asyncio.create_task(outcome(sleep))
    async with asyncio.timeout(30):
        while not marked_processes():
            await asyncio.sleep(0.01)
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading
    assert is_empty(tmp_path)
    assert not marked_processes()


async def test_a_missing_layer_is_logged_once_when_a_program_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sandbox, "_warned", set())
    monkeypatch.setattr(sandbox, "_DISABLED", ("landlock",))
    layers = {layer.name: layer for layer in await isolation_layers()}
    assert not layers["landlock"].is_active
    assert layers["limits"].is_active
    assert caplog.records == []
    for _ in range(2):
        await outcome("pass")
    logged = [record.message for record in caplog.records if "landlock" in record.message]
    assert logged == [
        "programs run without the isolation layers landlock (disabled); podium doctor explains them"
    ]


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="we are an ordinary user")
def test_an_ordinary_user_has_the_same_layers(tmp_path: Path) -> None:
    script = """
import asyncio, os
from podium.workers.sandbox import run_program, isolation_layers
async def main():
    missing = {layer.name for layer in await isolation_layers() if not layer.is_active}
    (outcome,) = [one async for one in run_program("print(input())", ["a"])]
    print(os.getuid() > 0, sorted(missing), outcome.output.strip(), outcome.problem)
asyncio.run(main())
"""
    support = Path(__file__).parents[2] / "support" / "ordinary_user.py"
    command = [sys.executable, str(support), str(tmp_path), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this superuser may not mount, and cannot let others read its Python")
    missing = sorted(layer.name for layer in asyncio.run(isolation_layers()) if not layer.is_active)
    assert done.stdout == f"True {missing} a None\n", done.stderr


@pytest.mark.parametrize("library", ["numpy", "pandas"])
async def test_libraries_can_be_used(library: str) -> None:
    pytest.importorskip(library)
    program = {
        "numpy": "import numpy\nprint(numpy.linalg.inv(numpy.eye(64) * 2)[0, 0])",
        "pandas": "import pandas\nprint(pandas.Series([1, 2]).mean() - 1)",
    }[library]
    assert await outcome(program) == ProgramResult("0.5\n")


async def test_temporary_files_and_processes_of_its_own_are_a_programs_right() -> None:
    program = """
import multiprocessing, os, shutil, subprocess, sys, tempfile
def double(number):
    return 2 * number
if __name__ == "__main__":
    with tempfile.NamedTemporaryFile("w+") as file:
        assert os.path.dirname(file.name) == os.getcwd()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(double, [1, 2]))
    assert shutil.which(os.path.basename(sys.executable)) == sys.executable
    print(subprocess.check_output([sys.executable, "-c", "print(6)"], text=True).strip())
"""
    assert await outcome(program) == ProgramResult("[2, 4]\n6\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a network to itself")
async def test_a_program_may_talk_to_itself() -> None:
    if not all(layer.is_active for layer in await isolation_layers()):
        pytest.skip("without all layers a program may open no sockets")
    program = """
import asyncio, socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        client.send(b"hello")
        print(server.accept()[0].recv(5).decode())
async def nothing(): return "done"
print(asyncio.run(nothing()))
"""
    assert await outcome(program) == ProgramResult("hello\ndone\n")


def test_programs_need_a_system_with_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigError, match="needs Linux or macOS"):
        require_sandbox()


async def test_a_sandbox_failure_is_not_a_wrong_answer() -> None:
    with pytest.raises(ConfigError, match="could not isolate a program"):
        await outcome("pass", limits=ProgramLimits(cpu_seconds=2**70))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what others run")
@pytest.mark.parametrize("disabled", [(), ("users", "processes", "network", "mounts")])
async def test_killing_the_child_kills_the_program(
    disabled: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_DISABLED", disabled)
    children: list[asyncio.subprocess.Process] = []
    start = sandbox._start_child

    async def remember(where: str) -> asyncio.subprocess.Process:
        children.append(await start(where))
        return children[-1]

    monkeypatch.setattr(sandbox, "_start_child", remember)
    sleep = f"import os\nos.execv('/bin/sleep', ['sleep', {MARK!r}])"
    grading = asyncio.create_task(outcome(sleep))
    async with asyncio.timeout(30):
        while not marked_processes():
            await asyncio.sleep(0.01)
        children[0].kill()
        assert await grading == ProgramResult("", "the sandbox process died")
        while marked_processes():
            await asyncio.sleep(0.01)
