"""What the dialects ask of a conversation alike: calls and results that match, results that answer
one turn in one message, the system's words before the turn, and a last turn that says something.

Messages are ours by now. How they are written down is each dialect's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from podium.request import Message, Text, Thinking, ToolCall, ToolResult, system
from podium.server.refusal import invalid

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
