"""Generate the lists of keys and of Python names in the documentation.

    python scripts/reference.py

The test suite checks that the pages are current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import podium
from podium.client.run_options import RunOptions
from podium.config.problems import table_in
from podium.config.schema import ConfigFile
from podium.train.recipe import Recipe
from podium.train.router import RouterRecipe

_MADE: Final = "made by scripts/reference.py, not by hand"
DOCS: Final = Path(__file__).parents[1] / "docs" / "reference"
PAGES: Final = ("configuration.md", "python-api.md", "training.md", "routing.md")

_TYPES: Final = {
    str: "text",
    Path: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
}


def reference(form: type[BaseModel] = ConfigFile, without: tuple[str, ...] = ()) -> str:
    """Return all tables of a file of that form, in Markdown, without these tables and keys."""
    seen: dict[str, str] = {}
    fields = [(name, field) for name, field in form.model_fields.items() if name not in without]
    return "\n".join(
        line for name, field in fields for line in _section(name, field, seen, without)
    )


RESEARCH: Final = ("evolve", "etudes.", "oracle", "drop", "flaky")
"""Tables and keys for experiments and études, which the page leaves out."""


def python_api() -> str:
    """Return every exported name with its parameters and the first line of its docstring."""
    lines = ["### `Podium`, `AsyncPodium`", "", *_parameters(podium.AsyncPodium), ""]
    for name in ("ask", "plan", "run", "resume", "stream", "close"):
        method = getattr(podium.AsyncPodium, name)
        lines.append(f"- `{name}({_names(method)})`: {_parts(method)[0]}")
    lines += ["", "### Options of a run", "", *_parameters(RunOptions), "", "### Other names", ""]
    others = set(podium.__all__) - {"Podium", "AsyncPodium", "__version__"}
    for name in sorted(others, key=lambda name: (name.lower(), name)):
        value = getattr(podium, name)
        lines.append(f"- `{name}({_names(value)})`: {_parts(value)[0]}".replace("()", ""))
    return "\n".join(lines)


def _names(value: Callable[..., Any]) -> str:
    """Return the parameters that a caller gives; none of what Podium makes itself."""
    if "Attributes:" in (inspect.getdoc(value) or ""):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # an exception without a constructor of its own
        return ""
    variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    names = [one.name for one in parameters if one.kind not in variable and one.name != "self"]
    is_open = any(one.name == "options" and one.kind in variable for one in parameters)
    return ", ".join([*names, *(["**options"] if is_open else [])])


def _parameters(value: Callable[..., Any]) -> list[str]:
    """Return the parameters or attributes that a docstring describes, as a list."""
    return [f"- `{name}`: {' '.join(text.split())}" for name, text in _parts(value)[1]]


def _parts(value: Callable[..., Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return the first line of a docstring, and what it says of parameters."""
    text = inspect.getdoc(value) or ""
    described = re.search(r"^(?:Args|Attributes):\n((?:(?: .*)?\n)+)", text + "\n", re.M)
    parts = re.findall(r"^ {4}([\w*]+): (.*(?:\n {8}.*)*)", described[1] if described else "", re.M)
    return " ".join(text.partition("\n\n")[0].split()), parts


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "reference": reference,
    "recipe": partial(reference, Recipe, RESEARCH),
    "router": partial(reference, RouterRecipe),
    "python api": python_api,
}


def update_page(page: str) -> str:
    """Return the page with its generated parts up to date."""
    parts = [name for name in PARTS if f"<!-- {name}: {_MADE}" in page]
    for part in parts:
        begin, end = f"<!-- {part}: {_MADE} -->", f"<!-- end of the {part} -->"
        before, _, rest = page.partition(begin)
        _, ends, after = rest.partition(end)
        if not ends:
            raise ValueError(f"the page needs the mark {end!r}")
        page = f"{before}{begin}\n\n{PARTS[part]()}\n{end}{after}"
    if not parts:
        raise ValueError(f"the page needs the marks of one of {', '.join(PARTS)}")
    return page


def _section(
    name: str, field: FieldInfo, seen: dict[str, str], without: tuple[str, ...]
) -> Iterator[str]:
    """Yield one table; keys that an earlier one described alike are only named."""
    table = table_in(field.annotation)
    assert table is not None, "a file consists of tables"
    headings: dict[Any, str] = {tuple: f"[[{name}]]", dict: f"[{name}.NAME]"}
    heading = headings.get(get_origin(field.annotation), f"[{name}]")
    yield from (f"### `{heading}`", "", " ".join(f"{table.__doc__}".split()), "")
    alike: dict[str, list[str]] = {}
    for key, inner in _keys(table):
        if key.startswith(without or " "):
            continue
        described = f"({_value(inner)}): {inner.description}"
        known = f"{key.rpartition('.')[2]} {described}"
        if known in seen:
            alike.setdefault(seen[known], []).append(f"`{key}`")
        else:
            seen[known] = heading
            yield f"- `{key}` {described}"
    for other, keys in alike.items():
        yield f"- as {'above' if other == heading else f'in `{other}`'}: {', '.join(keys)}"
    yield ""


def _keys(table: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys of a table and of the tables in it."""
    for name, field in table.model_fields.items():
        yield prefix + name, field
        inner = table_in(field.annotation)
        if inner is not None:
            yield from _keys(inner, f"{prefix}{name}.")


def _value(field: FieldInfo) -> str:
    """Return the default, which shows the type, or the type; of choices, the default first."""
    type_, default = _type(field.annotation), _default(field)
    if not default or default == "required":
        return ", ".join(filter(None, (type_, default)))
    shown = default.replace('"', "")
    if shown not in type_ or field.annotation is bool:
        return default
    others = [choice for choice in type_.split(", ") if choice != shown]
    return f"{shown}, else {', '.join(others)}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    match field.get_default(call_default_factory=True):
        case None | BaseModel():
            return ""
        case dict() | tuple() | frozenset() | "":
            return ""
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case str() as text:
            return f'`"{text}"`'
        case value:
            return f"`{value}`"


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in parts)
    if origin is frozenset:
        return f"list of {_type(parts[0])}"
    if origin is tuple:
        return f"list of {_type(parts[0])}" if table_in(annotation) is None else "tables"
    if origin is dict or table_in(annotation) is not None:
        return "table"
    if len(parts) > 1 and type(None) in parts:
        return _type(next(part for part in parts if part is not type(None)))
    return _TYPES[annotation]


def main() -> None:
    """Update the pages."""
    for page in (DOCS / name for name in PAGES):
        page.write_text(update_page(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
