"""The client's tools in a body, and the JSON Schemas of their parameters and of answers.

How a tool is written down, and how one is named, is each dialect's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from podium.core.errors import UsageError
from podium.core.json_schema import flaw
from podium.core.request import (
    TOOL_CHOICES,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    system,
)
from podium.core.structured_output import UnsoundSchema, require_sound
from podium.server.api_error import invalid
from podium.server.dialects.fields import document, joined, shown, text, wrong

LONGEST_ID_SHOWN: Final = 80
MOST_CALLS_SHOWN: Final = 5


@dataclass(slots=True)
class OpenCalls:
    """Takes calls and results in their order, each with its path in the body, and refuses what
    does not match. `instead` says in the dialect's words what to send, and `named` what it calls
    calls. `once` says that no two calls of the conversation may have one id; else an id is free
    again when its call is answered. `goes_on` says that calls may have been made before all that
    is told here."""

    instead: str
    named: str = "calls"
    once: bool = False
    goes_on: bool = False
    _waiting: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)

    def call(self, call: ToolCall, path: str) -> None:
        """The assistant calls a tool."""
        if call.id in self._waiting or (self.once and call.id in self._answered):
            raise invalid(path, f"{path}: two {self.named} have the id {_shown(call.id)}")
        self._waiting[call.id] = path

    def answer(self, result: ToolResult, path: str) -> None:
        """A tool has answered; `path` is that of the call's id beside the result."""
        called = self._waiting.pop(result.call_id, None) is not None
        if not called and not self.goes_on:
            came = "was answered before" if result.call_id in self._answered else "is not known"
            raise invalid(path, f"{path}: the call {_shown(result.call_id)} {came}; {self.instead}")
        self._answered.add(result.call_id)

    def settle(self, path: str | None = None) -> None:
        """Every call must have its result by now. `path` is where it is missed, if that is not
        where the call stands."""
        if not self._waiting:
            return
        at = path or next(iter(self._waiting.values()))
        calls = ", ".join(_shown(call) for call in list(self._waiting)[:MOST_CALLS_SHOWN])
        whose = f"the call {calls} has" if len(self._waiting) == 1 else f"the calls {calls} have"
        raise invalid(at, f"{at}: {whose} no result; {self.instead}")


def _shown(call_id: str) -> str:
    return repr(call_id if len(call_id) <= LONGEST_ID_SHOWN else f"{call_id[:LONGEST_ID_SHOWN]}…")


def results_together(messages: Iterable[Message]) -> list[Message]:
    """Results that follow each other as one message: they answer one turn."""
    together: list[Message] = []
    for role, run in groupby(messages, key=lambda message: message.role):
        if role == "tool":
            together.append(Message(role, tuple(part for result in run for part in result.parts)))
        else:
            together += run
    return together


def with_instructions(
    messages: tuple[Message, ...], *instructions: str | None
) -> tuple[Message, ...]:
    """The messages after what the system says first, if it says anything."""
    return (*(system(words) for words in instructions if words), *messages)


def end_of_turn(messages: Sequence[Message]) -> int:
    """Where the last turn ends: after it there are only words of the system."""
    end = len(messages)
    while end and messages[end - 1].role == "system":
        end -= 1
    return end


def with_turn_last(messages: Sequence[Message], begins: int) -> tuple[Message, ...]:
    """The messages with what the system says last put before the turn that begins there, so that
    this turn ends the conversation."""
    end = end_of_turn(messages)
    return (*messages[:begins], *messages[end:], *messages[begins:end])


def is_empty(message: Message) -> bool:
    """Whether it is without words, pictures and results of tools."""
    return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def without_thinking(message: Message) -> Message:
    """What was said and done alone."""
    return Message(message.role, tuple(p for p in message.parts if not isinstance(p, Thinking)))


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
