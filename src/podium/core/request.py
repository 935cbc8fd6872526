"""The request to a worker and its reply.

Vendors' wire formats are translated into these types at the edge and out of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

from podium.core.frozen import fast_init
from podium.core.usage import UNKNOWN_USAGE, Usage

Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Finish = Literal["stop", "length", "tool", "refused", "error"]
"""`error`: the reply of a tool worker says why its program failed."""

Detail = Literal["", "auto", "low", "high", "original"]
CacheTime = Literal["", "5m", "1h"]
"""How long a provider shall cache the prompt; empty to not ask for it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text. `kind` tells the parts of a message apart in JSON."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: base64 data with its media type, or a URL. `detail` is OpenAI's resolution."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: Detail = ""
    kind: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A worker's call of a tool; `arguments` is JSON as the worker wrote it."""

    id: str
    name: str
    arguments: str
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result for the call with that id."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    kind: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A worker's reasoning.

    `opaque` is the provider's state (a signature, an encrypted block); it goes back only to the
    model that made it.
    """

    text: str
    opaque: str = ""
    model: str = ""
    kind: Literal["thinking"] = "thinking"


Part = Text | Image | ToolCall | ToolResult | Thinking


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    `name` tells speakers of one role apart; a text of `speaker_prefix` repeats it, for workers
    whose API has no names.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """The text of the turn, without images, tools and thinking."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def speaker_prefix(name: str) -> str:
    """Return the text that names a speaker."""
    return f"{name}: "


def system(text: str) -> Message:
    """Make a system message."""
    return Message("system", (Text(text),))


def user(text: str) -> Message:
    """Make a user message."""
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    """Make an assistant message."""
    return Message("assistant", (Text(text),))


def images_in(messages: Sequence[Message]) -> tuple[Image, ...]:
    """Return every image of a conversation, those in tool results included."""
    parts = [part for message in messages for part in message.parts]
    shown = (image for part in parts if isinstance(part, ToolResult) for image in part.images)
    return (*(part for part in parts if isinstance(part, Image)), *shown)


def unanswered_calls(turns: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last assistant turn that have no result."""
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
    """A request. A field left at its default is not sent to the provider.

    `prefill` is the start of the reply, for providers that can continue one; the reply's text
    includes it. `schema` is a JSON Schema for the reply; `grammar` is GBNF, for local models.
    `effort` and `thinking_tokens` bound the reasoning. Without `parallel_tools` a reply calls one
    tool at most. `cache_key` and `cache_time` are hints for the provider's prompt cache.
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
        """All text of the request, for measuring its length."""
        return "".join(message.text for message in self.messages)


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's reply and its usage. `stop_sequence` ended it, where the provider reports one."""

    text: str
    usage: Usage = UNKNOWN_USAGE
    finish: Finish = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    model: str = ""
    stop_sequence: str = ""

    def with_first_call(self) -> Reply:
        """Return the reply with only its first tool call."""
        return replace(self, tool_calls=self.tool_calls[:1]) if self.tool_calls[1:] else self


@dataclass(frozen=True, slots=True)
class Delta:
    """A streamed piece of a reply: text, thinking, or the arguments of a tool call.

    Each piece of a tool call has its number in the reply, its id and name. A worker may leave out
    pieces of calls: the reply has them whole.
    """

    text: str
    kind: Literal["text", "thinking", "tool_call"] = "text"
    call: int = 0
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """What the client demands of the answer: format, length, sampling and tools.

    Fields mean what they mean in a `Request`. The tools belong to the final step. Without
    `parallel_tools`, only the first of several tool calls of a reply is made.
    """

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

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
"""The schema of OpenAI's JSON mode, `json_object`: any JSON object."""

TOOL_CHOICES: Final = ("", "auto", "none", "required")
"""The values of `Request.tool_choice` that are not a tool's name."""
