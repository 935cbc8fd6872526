"""Every hostile program of the directory `hostile` is contained, behind all layers and behind
those alone that need no namespaces; the table of the sandbox page is made from their heads."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from podium.workers import sandbox
from podium.workers.sandbox import (
    ProgramLimits,
    ProgramResult,
    isolation_layers,
    run_check,
    run_program,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="most layers are of Linux")

HOSTILE = Path(__file__).with_name("hostile")
PAGE = HOSTILE / "README.md"
TIGHT = ProgramLimits(
    cpu_seconds=1,
    wall_seconds=10.0,
    memory_bytes=512 * 1024**2,
    disk_bytes=32 * 1024**2,
    output_bytes=1024**2,
)
CONTAINED = "contained"
NAMESPACES = ("users", "nobody", "processes", "network", "mounts")

PRELUDE = """\
import json, os, sys
world = json.loads(sys.stdin.readline())
escapes = []
def attempt(name, work):
    try:
        escapes.append(f"{name}: {work()!r}")
    except Exception:
        pass
def done():
    print(*(escapes or ["contained"]), sep="; ")
"""


@dataclass(frozen=True, slots=True)
class Hostile:
    name: str
    head: dict[str, str]
    program: str
    check: str | None

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def read_hostile(path: Path) -> Hostile:
    program, _, check = path.read_text("utf-8").partition("#### check\n")
    head = dict(
        line.removeprefix("# ").split(": ", 1)
        for line in program.splitlines()
        if line.startswith("# ")
    )
    return Hostile(path.stem, head, program, check or None)


PROGRAMS = [read_hostile(path) for path in sorted(HOSTILE.glob("*.txt"))]
HELD_WITHOUT_NAMESPACES = [
    program
    for program in PROGRAMS
    if program.check is None and ("fallback" in program.head or program.head["layer"] != "limits")
]
"""All but those that limits alone hold, and those that a check holds: these are the same there."""


@dataclass(frozen=True, slots=True)
class World:
    """What a program would like to reach."""

    mark: str
    outside: Path
    victim: subprocess.Popen[bytes]
    facts: dict[str, Any]

    def is_untouched(self) -> bool:
        return (
            self.victim.poll() is None
            and [path.name for path in self.outside.iterdir()] == ["secret"]
            and (self.outside / "secret").read_text() == "hush"
            and not self.leftovers()
        )

    def leftovers(self) -> list[str]:
        """Processes and shared memory that bear the mark."""
        found = [path.name for path in Path("/dev/shm").iterdir() if self.mark in path.name]
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if self.mark in entry.read_text("utf-8", "replace").split("\0"):
                    found.append(entry.parent.name)
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("PODIUM_SECRET", "hush")
    boxes = tmp_path / "boxes"
    outside = tmp_path / "outside"
    boxes.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("hush")
    monkeypatch.setattr(tempfile, "tempdir", str(boxes))
    mark = f"600.{secrets.randbelow(10**9):09}"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as by_name,
        subprocess.Popen(["/bin/sleep", "600"]) as victim,
    ):
        by_path.bind(str(tmp_path / "socket"))
        by_name.bind("\0" + mark)
        by_path.listen()
        by_name.listen()
        facts = {
            "mark": mark,
            "outside": str(outside),
            "secret_file": str(outside / "secret"),
            "victim": victim.pid,
            "parent": os.getpid(),
            "port": listener.getsockname()[1],
            "socket": str(tmp_path / "socket"),
        }
        yield World(mark, outside, victim, facts)
        victim.kill()
    assert not any(boxes.iterdir()), "every box is removed"


async def run(hostile: Hostile, world: World) -> ProgramResult:
    limits = replace(TIGHT, wall_seconds=float(hostile.head.get("seconds", TIGHT.wall_seconds)))
    if hostile.check is not None:
        in_process = "in_process" in hostile.head
        return await run_check(hostile.program, hostile.check, in_process=in_process, limits=limits)
    program = f"{PRELUDE}\n{hostile.program}"
    text = json.dumps(world.facts) + "\n"
    (outcome,) = [one async for one in run_program(program, [text], limits=limits)]
    return outcome


def assert_contained(outcome: ProgramResult, ends: str) -> None:
    if ends == CONTAINED:
        assert outcome == ProgramResult("contained\n")
    else:
        assert outcome.problem is not None
        assert any(end in outcome.problem for end in ends.split(" or "))


def named(hostile: Hostile) -> str:
    return hostile.name


def test_there_are_more_than_thirty_programs() -> None:
    assert len(PROGRAMS) > 30


@pytest.mark.parametrize("hostile", PROGRAMS, ids=named)
async def test_a_hostile_program_is_contained(hostile: Hostile, world: World) -> None:
    missing = [layer.name for layer in await isolation_layers() if not layer.is_active]
    if missing:
        pytest.skip(f"this system has no {', '.join(missing)}")
    assert_contained(await run(hostile, world), hostile.head["ends"])
    assert world.is_untouched()


@pytest.mark.parametrize("hostile", HELD_WITHOUT_NAMESPACES, ids=named)
async def test_it_is_contained_without_namespaces_too(
    hostile: Hostile, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_DISABLED", NAMESPACES)
    layers = {layer.name: layer for layer in await isolation_layers()}
    if not (layers["landlock"].is_active and layers["seccomp"].is_active):
        pytest.skip("this system has no Landlock or no filter of system calls")
    ends = hostile.head.get("fallback", hostile.head["ends"])
    assert_contained(await run(hostile, world), ends)
    assert world.is_untouched()


@pytest.mark.parametrize("name", ["calls_the_kernel", "kills_the_parent", "opens_sockets"])
async def test_a_filter_of_system_calls_alone_keeps_to_itself(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_DISABLED", (*NAMESPACES, "landlock"))
    if not {layer.name: layer for layer in await isolation_layers()}["seccomp"].is_active:
        pytest.skip("this system has no filter of system calls")
    assert_contained(await run(read_hostile(HOSTILE / f"{name}.txt"), world), CONTAINED)
    assert world.is_untouched()


@pytest.mark.parametrize("name", ["opens_sockets", "reads_files_of_the_parent", "symlink_escape"])
async def test_without_any_layer_the_same_programs_get_out(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_DISABLED", (*NAMESPACES, "landlock", "seccomp"))
    outcome = await run(read_hostile(HOSTILE / f"{name}.txt"), world)
    assert outcome.problem is None
    assert outcome.output != "contained\n"


def table() -> str:
    """The hostile programs as the page of the directory shows them."""
    rows = ["| program | layers | ends |", "|---|---|---|"]
    for program in PROGRAMS:
        head = program.head
        layers = ", ".join(f"`{layer}`" for layer in head["layer"].split(", "))
        rows.append(f"| {program.title} | {layers} | {head['ends']} |")
    return "\n".join(rows)


def test_the_page_shows_every_hostile_program() -> None:
    assert table() in PAGE.read_text("utf-8")
