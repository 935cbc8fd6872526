"""Guard the import directions between rooms and the exported names of the package."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import podium

PACKAGE: Final = Path(podium.__file__).parent
SOURCES: Final = sorted(PACKAGE.rglob("*.py"))

MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    room: frozenset(below.split())
    for room, below in {
        "core": "",
        "_util": "core",
        "workers": "core _util",
        "store": "core _util",
        "tasks": "core _util workers",
        "conductors": "core _util workers",
        "engine": "core _util store",
        "config": "core _util workers conductors engine",
        "client": "core _util workers store conductors engine config",
        "server": "core _util workers store conductors engine config client",
        "evals": "core _util workers store tasks conductors engine config client",
        "train": "core _util workers store tasks conductors engine config client",
        "cli": "core _util workers store tasks conductors engine config client server evals train",
    }.items()
}
"""Each room and the rooms that it may import. `_version` may be imported by all of them."""

TOP: Final = {"__init__.py", "__main__.py", "_version.py", "py.typed", *MAY_IMPORT}

MUST_NOT_LOAD: Final = {
    "torch",
    "sqlalchemy",
    "aiohttp",
    "typer",
    "rich",
    "fastapi",
    "xllamacpp",
}
"""Packages that `import podium` must not load: they would slow every start."""


def module_of(source: Path) -> str:
    parts = ("podium", *source.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Return the room of a module; the package itself and its top files have the room ''."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in MAY_IMPORT else ""


def imports(source: Path) -> Iterator[str]:
    """Yield every podium module that the file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("podium."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}: use absolute imports"
            base = node.module or ""
            if base == "podium":
                yield from (f"podium.{alias.name}" for alias in node.names)
            elif base.startswith("podium."):
                yield base


@pytest.mark.parametrize("source", SOURCES, ids=module_of)
def test_a_module_imports_only_from_rooms_below_it(source: Path) -> None:
    room = room_of(module_of(source))
    if not room:
        return
    allowed = {room, "", *MAY_IMPORT[room]}
    forbidden = sorted(name for name in imports(source) if room_of(name) not in allowed)
    assert not forbidden, f"{module_of(source)} imports {', '.join(forbidden)}"


def eager_imports(source: Path) -> Iterator[str]:
    """Yield what loading the file imports: not what functions or type checkers import."""
    pending: list[ast.AST] = [ast.parse(source.read_text("utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def test_podium_imports_podium_lab_only_inside_functions() -> None:
    eager = [
        f"{module_of(source)} imports {name}"
        for source in SOURCES
        for name in eager_imports(source)
        if name.partition(".")[0] == "podium_lab"
    ]
    assert not eager


def test_import_directions_have_no_cycle() -> None:
    for room, below in MAY_IMPORT.items():
        assert not any(room in MAY_IMPORT[other] for other in below)


def test_the_top_of_the_package_holds_rooms_only() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == TOP


def test_importing_podium_loads_nothing_heavy() -> None:
    code = "import sys, podium; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "podium" in loaded
    assert MUST_NOT_LOAD.isdisjoint(loaded)


def test_every_room_loads_without_podium_lab() -> None:
    rooms = "; ".join(f"import podium.{room}" for room in MAY_IMPORT)
    code = f"import sys; sys.modules['podium_lab'] = None; {rooms}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_exported_name_exists() -> None:
    for name in podium.__all__:
        assert getattr(podium, name) is not None
    for room in MAY_IMPORT:
        module = importlib.import_module(f"podium.{room}")
        for name in getattr(module, "__all__", ()):
            assert getattr(module, name) is not None, f"podium.{room}.{name}"


def test_architecture_page_names_every_room() -> None:
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+)/?`", page))
    assert set(MAY_IMPORT) - named == set()
