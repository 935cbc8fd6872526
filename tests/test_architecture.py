"""The arrows between the rooms of the package, as a table that the code is held to.

A room is a module or a package of `podium`. It may import itself, the rooms named beside it,
and nothing else of Podium. A module that falls into no room fails: give it a row.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import podium

DOMAIN: Final = (
    "errors",
    "quick",
    "tags",
    "usage",
    "workflow",
    "request",
    "pool",
    "worker",
    "budget",
    "attempt",
    "check",
    "routed",
    "run",
    "credit",
    "roles",
    "events",
    "task",
    "demands",
    "exclusion",
    "resumption",
    "ending",
    "patterns",
    "schemas",
    "structure",
)
"""Plain types that do no I/O. They may import each other, and nothing above."""

CONDUCTOR: Final = ("conductor", "conductor.base")
SET_UP: Final = ("providers", "catalogue", "local", "config")
BELOW_THE_API: Final = (
    *DOMAIN,
    *CONDUCTOR,
    *SET_UP,
    "_version",
    "files",
    "paths",
    "process",
    "spread",
    "svg",
    "plan",
    "routing",
    "engine",
    "engine.retry",
    "guardrails",
    "planning",
    "performance",
    "runner",
    "store",
    "document",
    "mcp",
    "watchers",
)
ENTRY_POINTS: Final = ("bench", "server", "evals", "train")
BELOW_THE_ENTRY_POINTS: Final = (
    *BELOW_THE_API,
    "cluster",
    "etudes",
    "tasks",
    "assembly",
    "house",
    "api",
    "sync",
    "",
)

SERVER: Final = (
    ("server.logs",),
    ("server.refusal",),
    ("server.names",),
    ("server.dialects", "server.access"),
    ("server.records", "server.figures", "server.learning"),
    ("server.answers",),
    ("server.service",),
    ("server.endpoints",),
    ("server.pages",),
    ("server.app",),
    ("server.operation",),
)
"""The floors of the server, from the ground up. The rooms of a floor know all those below it, and
nothing of each other."""

SERVER_ROOMS: Final = tuple(room for floor in SERVER for room in floor)


def below(room: str) -> tuple[str, ...]:
    """The rooms on the floors below a room of the server."""
    floor = next(index for index, rooms in enumerate(SERVER) if room in rooms)
    return tuple(other for rooms in SERVER[:floor] for other in rooms)


MAY_IMPORT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(DOMAIN, DOMAIN),
    "_version": (),
    "__main__": ("cli",),
    "paths": DOMAIN,
    "files": (*DOMAIN, "paths"),
    "process": (),
    "spread": (),
    "svg": (),
    "plan": DOMAIN,
    # A conductor plans and never executes; the engine executes and never plans; they meet in
    # a performance, which knows of conductors the protocol alone.
    "conductor.base": DOMAIN,
    "conductor": (*DOMAIN, "conductor.base", "files", "plan"),
    "engine.retry": DOMAIN,
    "engine": (*DOMAIN, "engine.retry"),
    # Guardrails are plain functions over plain values; a performance says when they look.
    "guardrails": DOMAIN,
    "planning": (*DOMAIN, "conductor.base", "engine", "engine.retry"),
    "performance": (
        *(*DOMAIN, "conductor.base", "engine", "engine.retry", "guardrails"),
        "planning",
    ),
    "runner": (
        *(*DOMAIN, "conductor.base", "engine", "engine.retry"),
        *("guardrails", "planning", "performance", "process"),
    ),
    "local": (*DOMAIN, "files", "paths"),
    "providers": (*DOMAIN, "_version", "local"),
    # A router says who is to answer; asking is the conductor's, who knows it.
    "routing": (*DOMAIN, "files", "local"),
    "etudes": (*DOMAIN, "conductor.base", "engine", "engine.retry", "plan"),
    "tasks": (*DOMAIN, "files", "paths", "etudes"),
    # Work spread over machines, for those who measure and those who train.
    "cluster": (*DOMAIN, "providers"),
    "store": (*DOMAIN, "_version", "paths", "process"),
    "watchers": (*DOMAIN, "store"),
    "document": (*DOMAIN, "plan", "store"),
    # What sets a pool and a conductor up.
    "catalogue": (*DOMAIN, "paths", "providers"),
    "config": (*DOMAIN, *CONDUCTOR, *SET_UP, "engine.retry", "guardrails", "paths", "plan"),
    # Tools of other programs, and Podium as tools of theirs, which is above the library.
    "mcp": (*DOMAIN, "_version", "providers", "local", "config"),
    # The library, and `podium` itself, which is its front door.
    "assembly": BELOW_THE_API,
    "house": (*BELOW_THE_API, "assembly"),
    "api": (*BELOW_THE_API, "assembly", "house"),
    "sync": (*BELOW_THE_API, "assembly", "house", "api"),
    "": (*BELOW_THE_API, "assembly", "house", "api", "sync"),
    "mcp.server": (*BELOW_THE_API, "assembly", "house", "api"),
    # Entry points know everything below, and nothing of each other; only the command line, by
    # which people reach them all, mounts the commands of the others.
    **dict.fromkeys(ENTRY_POINTS, BELOW_THE_ENTRY_POINTS),
    # Chaos breaks servers from the inside too; only the command line of the benches knows it.
    "bench.chaos": (*BELOW_THE_ENTRY_POINTS, *SERVER_ROOMS, "bench", "bench.fuzz"),
    "bench.cli": (*BELOW_THE_ENTRY_POINTS, "bench", "bench.chaos"),
    # The fuzzer of bodies asks the server's application itself, without a socket between.
    "bench.fuzz": (*BELOW_THE_ENTRY_POINTS, "bench", *SERVER_ROOMS),
    "server": (),  # only what holds its rooms together: a new module needs a floor
    **{room: (*BELOW_THE_ENTRY_POINTS, *below(room)) for room in SERVER_ROOMS},
    "cli": (*BELOW_THE_ENTRY_POINTS, *ENTRY_POINTS, *SERVER_ROOMS, "mcp.server"),
}

LEFT_TO_THOSE_WHO_NEED_IT: Final = {
    "torch",
    "sqlalchemy",
    "aiohttp",
    "typer",
    "rich",
    "fastapi",
    "xllamacpp",
}
"""What `import podium` must not load: it would make every start slow."""

PACKAGE: Final = Path(podium.__file__).parent
SOURCES: Final = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str | None:
    """The most specific room that the module is in; `podium` itself is the room ""."""
    inner = module.removeprefix("podium").removeprefix(".")
    while inner not in MAY_IMPORT and "." in inner:
        inner = inner.rpartition(".")[0]
    return inner if inner in MAY_IMPORT else None


def module_of(source: Path) -> str:
    parts = ("podium", *source.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imports(source: Path) -> Iterator[str]:
    """Every module of Podium that the file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("podium"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}: write imports in full, as everywhere else"
            base = node.module or ""
            if base == "podium" or base.startswith("podium."):
                for alias in node.names:
                    name = f"{base}.{alias.name}"
                    yield name if is_module(name) else base


@pytest.mark.parametrize("source", SOURCES, ids=module_of)
def test_a_module_imports_only_from_the_rooms_below_it(source: Path) -> None:
    module = module_of(source)
    room = room_of(module)
    assert room is not None, f"{module} is in no room; give it a row in MAY_IMPORT"
    allowed = {room, *MAY_IMPORT[room]}
    forbidden = sorted(name for name in imports(source) if room_of(name) not in allowed)
    assert not forbidden, f"{module} (room {room!r}) imports {', '.join(forbidden)}"


def test_the_table_itself_has_no_arrow_that_points_both_ways() -> None:
    domain = set(DOMAIN)
    both_ways = [
        (room, other)
        for room, others in MAY_IMPORT.items()
        for other in others
        if room != other and room in MAY_IMPORT[other] and not {room, other} <= domain
    ]
    assert not both_ways


def test_a_module_belongs_to_the_most_specific_room() -> None:
    assert room_of("podium") == ""
    assert room_of("podium.run") == "run"
    assert room_of("podium.core.conductor") == "conductor.base"
    assert room_of("podium.conductors.builtin") == "conductor"
    assert room_of("podium.server.dialects.chat.dialect") == "server.dialects"
    assert room_of("podium.nowhere") is None


def test_importing_podium_loads_nothing_heavy() -> None:
    code = "import sys, podium; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "podium" in loaded
    assert LEFT_TO_THOSE_WHO_NEED_IT.isdisjoint(loaded)


def test_every_room_is_on_the_page_about_them() -> None:
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+)(?:\.py|/)?`", page))
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and path.stem[0] != "_"
    }
    assert rooms - named == set()


@pytest.mark.parametrize("room", ["routing", "train"])
def test_the_map_of_a_room_has_every_module_in_it(room: str) -> None:
    modules = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
    drawn = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8")))
    named = re.findall(r"^ {4}([a-z_]+(?:, [a-z_]+)*)  ", drawn or "", re.MULTILINE)
    assert {name for names in named for name in names.split(", ")} == modules
