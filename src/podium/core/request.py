"""One request and one reply: what passes between Podium and any worker.

Every vendor's dialect is translated into these types at the edge and out of them again, so that
nothing inside Podium knows a wire format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

from podium.core.frozen import fast_init
from podium.core.usage import UNKNOWN_USAGE, Usage

Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Finish = Literal["stop", "length", "tool", "refused"]

Detail = Literal["", "auto", "low", "high", "original"]
CacheTime = Literal["", "5m", "1h"]
"""How long a provider is asked to keep a prompt; empty where it is not asked to."""


@dataclass(frozen=True, slots=True)
class Text:
    """Words. `kind` tells the parts of a message apart in JSON."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: either its bytes in base64 with their media type, or an address. `detail` says how
    closely OpenAI's models are to look; other vendors have nothing of the kind."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: Detail = ""
    kind: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A worker asks for a tool; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered to the call with that id, in words and pictures."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    kind: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A worker's reasoning. `opaque` is the provider's own state (a signature, an encrypted
    block): it is handed back only to the model that made it, and to nobody else."""

    text: str
    opaque: str = ""
    model: str = ""
    kind: Literal["thinking"] = "thinking"


Part = Text | Image | ToolCall | ToolResult | Thinking


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The words of the turn, without pictures, tools and thinking."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def system(text: str) -> Message:
    """A system message of plain words."""
    return Message("system", (Text(text),))


def user(text: str) -> Message:
    """A user message of plain words."""
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    """An assistant message of plain words."""
    return Message("assistant", (Text(text),))


def images_in(messages: Sequence[Message]) -> tuple[Image, ...]:
    """Every picture of a conversation, those that tools showed included."""
    parts = [part for message in messages for part in message.parts]
    shown = (image for part in parts if isinstance(part, ToolResult) for image in part.images)
    return (*(part for part in parts if isinstance(part, Image)), *shown)


def unanswered_calls(turns: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of the last assistant turn that no result after it answers."""
    answered: set[str] = set()
    for message in reversed(turns):
        if message.role == "assistant":
            calls = (part for part in message.parts if isinstance(part, ToolCall))
            return tuple(call for call in calls if call.id not in answered)
        answered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    return ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a worker may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Request:
    """Everything a worker is asked. A field left at its default is not sent to the provider.

    `prefill` is how the reply must begin (only sent where the provider can continue a reply;
    the reply's text then starts with it). `schema` is a JSON Schema that the reply must fit;
    `grammar` is a GBNF grammar, which only local models can follow. `effort` is how hard to think,
    and `thinking_tokens` the most to spend on that, for providers that take a number. Without
    `parallel_tools`, a reply is to call one tool at most, of which providers are told that can be.
    `cache_key` and `cache_time` are hints at the provider's cache of prompts: by which key those
    that begin alike are found, and how long this one is worth keeping. They go to providers that
    know them, and no reply depends on them.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = ""
    schema: Mapping[str, Any] | None = None
    grammar: str = ""
    effort: Effort | None = None
    prefill: str = ""
    parallel_tools: bool = field(default=True, repr=False)
    cache_key: str = field(default="", repr=False)
    cache_time: CacheTime = field(default="", repr=False)
    thinking_tokens: int | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """All words of the request, for measuring its length."""
        return "".join(message.text for message in self.messages)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered, and what the provider says it used. `stop_sequence` is the one that
    ended it, where the provider tells; the text is without it."""

    text: str
    usage: Usage = UNKNOWN_USAGE
    finish: Finish = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    model: str = ""
    stop_sequence: str = ""

    def with_first_call(self) -> Reply:
        """The reply with the first of its tool calls alone."""
        return replace(self, tool_calls=self.tool_calls[:1]) if self.tool_calls[1:] else self


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply as it is produced: words of the answer, or words of thinking."""

    text: str
    kind: Literal["text", "thinking"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """What the client demands of the answer, whoever gives it: its form and length, how it is
    sampled, and the tools that may be used on the way. A field left at its default demands
    nothing. Each means what it means in a `Request`.

    Without `parallel_tools`, every reply calls one tool at a time: of several calls, the first
    goes on and the others are as if they had not been made, so that the worker may make them when
    it has the first result. Steps that run at once may still call one each."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = ""
    schema: Mapping[str, Any] | None = None
    effort: Effort | None = None
    parallel_tools: bool = True
    cache_key: str = ""
    cache_time: CacheTime = ""
    thinking_tokens: int | None = None


DEFAULT_RESPONSE_OPTIONS: Final = ResponseOptions()

TOOL_CHOICES: Final = ("", "auto", "none", "required")
"""The values of `Request.tool_choice` that are not a tool's name."""
