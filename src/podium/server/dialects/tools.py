"""The client's tools in a body, and the JSON Schemas of their parameters and of answers.

How a tool is written down, and how one is named, is each dialect's own.
"""

from __future__ import annotations

import re
from typing import Any, Final

from podium.errors import UsageError
from podium.request import TOOL_CHOICES, Tool
from podium.schemas import flaw
from podium.server.dialects.fields import document, joined, shown, text, wrong
from podium.server.refusal import invalid
from podium.structure import UnsoundSchema, require_sound

MOST_TOOLS: Final = 128
LONGEST_TOOL_NAME: Final = 128

_TOOL_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")


def schema(value: object, path: str) -> dict[str, Any]:
    """The JSON Schema of an answer, which must be one that replies can be held against."""
    read = document(value, path)
    try:
        require_sound(read)
    except UnsoundSchema as error:
        at = joined(path, error.path) if error.path else path
        raise invalid(at, f"{at}: {error.reason}") from error
    except UsageError as error:
        raise invalid(path, f"{path}: {error}") from error
    return read


def _parameters(value: object, path: str) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters. Nothing is held against it here, so it need only
    have the form of one: what more it asks is for the provider and the client."""
    read = document(value, path)
    if found := flaw(read):
        at = joined(path, found.path) if found.path else path
        raise invalid(at, f"{at}: {found.reason}")
    return read


def tool(
    name: object,
    description: str | None,
    parameters: object,
    path: str,
    called: str = "parameters",
) -> Tool:
    """A client's tool; without parameters, one that takes none. `path` is that of the tool, and
    `called` what the dialect calls the parameters."""
    words = text(name, joined(path, "name"))
    if not _TOOL_NAME.fullmatch(words):
        expected = f"1 to {LONGEST_TOOL_NAME} letters, digits, '_' or '-'"
        raise wrong(joined(path, "name"), expected, name)
    none = {"type": "object", "properties": {}}
    form = none if parameters is None else _parameters(parameters, joined(path, called))
    return Tool(words, description or "", form)


def distinct(tools: tuple[Tool, ...], path: str) -> tuple[Tool, ...]:
    """The tools, refused if two have one name."""
    seen: set[str] = set()
    for index, one in enumerate(tools):
        if one.name in seen:
            raise invalid(joined(path, index), f"{path}: two tools are named {one.name!r}")
        seen.add(one.name)
    return tools


def demanded(tools: tuple[Tool, ...], name: str, path: str) -> Tool:
    """The tool of that name, which is to be called. A name that is a word for a choice among tools
    would be taken for that choice."""
    if name in TOOL_CHOICES:
        raise invalid(path, f"{path}: a tool named {name!r} cannot be demanded; rename the tool")
    for one in tools:
        if one.name == name:
            return one
    raise invalid(path, f"{path}: {shown(name)} is not among the tools of this request")
