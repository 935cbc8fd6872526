"""The request to a worker, its reply, and what that used.

Vendors' wire formats are translated into these types at the edge and out of them again. Usage is
what the provider reported. Unknown is not zero: a count that was not reported is None, and so is a
sum with an unknown part. Nothing is estimated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar, final

from podium.core.frozen import fast_init

Number = TypeVar("Number", int, float)


def add(one: Number | None, other: Number | None) -> Number | None:
    """Add; None if a part is None."""
    return None if one is None or other is None else one + other


def subtract(one: Number | None, other: Number | None) -> Number | None:
    """Subtract; None if a part is None."""
    return None if one is None or other is None else one - other


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, or the sum over several.

    `input_tokens` counts everything that was read, so `cached_input_tokens` (read from the
    provider's cache) and `cache_write_tokens` (written to it) are parts of it; those written for an
    hour, which Anthropic prices apart, are `cache_write_1h_tokens`, a part of the latter.
    `reasoning_tokens` are a part of `output_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _counts(self), _counts(other)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*map(subtract, _counts(self), _counts(other)))

    @property
    def total_tokens(self) -> int | None:
        """Input and output together."""
        read, written = self.input_tokens, self.output_tokens
        return None if read is None or written is None else read + written

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the input that came from prompt caches; None if unknown."""
        if not self.input_tokens or self.cached_input_tokens is None:
            return None
        return self.cached_input_tokens / self.input_tokens


_counts: Final = attrgetter(*(count.name for count in fields(Usage)))


NO_USAGE: Final = Usage(0, 0, 0, 0, 0)
"""Known to be zero: the sum over no calls, or a call refused unbilled."""

UNKNOWN_USAGE: Final = Usage()
"""The provider did not report."""

MAX_TOKENS: Final = 10**9
"""No call uses more; a higher report is a mistake."""


def plausible_usage(usage: Usage) -> Usage:
    """Return the usage with impossible counts made unknown.

    Impossible are negative, fractional or huge counts, and parts larger than their whole, which
    would make a cost negative.
    """
    read, written = usage.input_tokens, usage.output_tokens
    cached, reasoned = usage.cached_input_tokens, usage.reasoning_tokens
    kept, hour = usage.cache_write_tokens, usage.cache_write_1h_tokens
    if (
        type(read) is type(written) is type(cached) is type(reasoned) is type(kept) is int
        and type(hour) is int
        and 0 <= reasoned <= written <= MAX_TOKENS
        and cached >= 0
        and 0 <= hour <= kept
        and cached + kept <= read <= MAX_TOKENS
    ):
        return usage
    counts = Usage(*map(_count, (read, written, cached, reasoned, kept, hour)))
    if (counts.cache_write_1h_tokens or 0) > (counts.cache_write_tokens or 0):
        counts = replace(counts, cache_write_1h_tokens=None)
    parts = (counts.cached_input_tokens or 0) + (counts.cache_write_tokens or 0)
    if counts.input_tokens is not None and parts > counts.input_tokens:
        counts = replace(counts, cached_input_tokens=None, cache_write_tokens=None)
    if counts.output_tokens is not None and (counts.reasoning_tokens or 0) > counts.output_tokens:
        counts = replace(counts, reasoning_tokens=None)
    return usage if counts == usage else counts


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens.

    Args:
        input: The price of input.
        output: The price of output.
        cached: That of input read from a cache; by default `input`.
        cache_write: That of input written to a cache; by default `input`.
        cache_write_1h: That of input cached for an hour; by default `cache_write`.
        above_tokens: For a price that is the `long_input` of another: it applies to calls with
            more input tokens than that.
        long_input: Replaces this price for the whole call where its input is that long.

    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    above_tokens: int = 0
    long_input: Price | None = None

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in US dollars; None if a count that matters is unknown."""
        if self.is_free:
            return 0.0
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        if self.long_input is not None and usage.input_tokens > self.long_input.above_tokens:
            return self.long_input.cost(usage)
        cached, written = usage.cached_input_tokens, usage.cache_write_tokens
        hour = usage.cache_write_1h_tokens
        if (
            (cached is None and self.cached is not None)
            or (written is None and self.cache_write is not None)
            or (hour is None and self.cache_write_1h is not None)
        ):
            return None
        cached, written, hour = cached or 0, written or 0, hour or 0
        write_price = self.input if self.cache_write is None else self.cache_write
        dollars = (
            (usage.input_tokens - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + (written - hour) * write_price
            + hour * (write_price if self.cache_write_1h is None else self.cache_write_1h)
            + usage.output_tokens * self.output
        )
        return dollars / 1_000_000

    @property
    def is_free(self) -> bool:
        """True if every price is zero."""
        return not (self.highest_input or self.highest_output)

    @property
    def highest_input(self) -> float:
        """The most that one input token can cost, for reserving money before a call."""
        prices = [self.input, self.cached or 0, self.cache_write or 0, self.cache_write_1h or 0]
        return max(prices + ([self.long_input.highest_input] if self.long_input else []))

    @property
    def highest_output(self) -> float:
        """The most that one output token can cost, for reserving money before a call."""
        return max(self.output, self.long_input.highest_output if self.long_input else 0)


FREE: Final = Price(input=0, output=0)
"""The price of a model on one's own machine."""


Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Finish = Literal["stop", "length", "tool", "refused", "error"]
"""`error`: the reply of a tool worker says why its program failed."""

Detail = Literal["", "auto", "low", "high", "original"]
PDF: Final = "application/pdf"
LOGPROBS: Final = "message.output_text.logprobs"
"""A value of `include` in OpenAI's Responses: texts carry log probabilities."""

CacheTtl = Literal["", "5m", "1h"]
"""The lifetime of a cached prompt at the provider; empty for none."""


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Text:
    """A text. `kind` tells the parts of a message apart in JSON.

    A text with a `title` is a document that begins with `document_heading`.
    """

    text: str
    title: str = ""
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Image:
    """An image or a PDF: `data` or a `url`.

    Args:
        media_type: Such as `"image/png"`.
        data: The content in base64.
        url: An address instead.
        detail: OpenAI's resolution.
        kind: Tells parts apart in JSON.

    """

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: Detail = ""
    kind: Literal["image"] = "image"

    @property
    def is_pdf(self) -> bool:
        """True for a PDF."""
        return self.media_type == PDF


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A worker's call of a tool.

    Args:
        id: The id that the result repeats.
        name: The tool's name.
        arguments: JSON as the worker wrote it.
        kind: Tells parts apart in JSON.

    """

    id: str
    name: str
    arguments: str
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Args:
        call_id: The id of the call.
        text: What the tool returned.
        is_error: True if the tool failed.
        images: What it returned besides text.
        kind: Tells parts apart in JSON.

    """

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


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Args:
        role: `"system"`, `"user"`, `"assistant"` or `"tool"`.
        parts: Texts, images, tool calls and results, thinking.
        name: Tells speakers of one role apart; a text of `speaker_prefix` repeats it, for workers
            whose API has no names.

    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """The text of the turn, without images, tools and thinking."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def document_heading(title: str) -> str:
    """Return the line that names a document."""
    return f"[document: {title}]\n"


def speaker_prefix(name: str) -> str:
    """Return the text that names a speaker."""
    return f"{name}: "


def system(text: str) -> Message:
    """Make a system message of `text`."""
    return Message("system", (Text(text),))


def user(text: str) -> Message:
    """Make a user message of `text`."""
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    """Make an assistant message of `text`."""
    return Message("assistant", (Text(text),))


def images_in(messages: Iterable[Message]) -> tuple[Image, ...]:
    """Return every image of a conversation, those in tool results included."""
    messages = tuple(messages)
    parts = (part for message in messages for part in message.parts)
    shown = (image for part in parts if isinstance(part, ToolResult) for image in part.images)
    return (*message_images(messages), *shown)


def message_images(messages: Iterable[Message]) -> tuple[Image, ...]:
    """Return the images of a conversation, except those in tool results."""
    return tuple(part for m in messages for part in m.parts if isinstance(part, Image))


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
    """A tool that a worker may call.

    Args:
        name: Its name.
        description: What it does, for the model.
        parameters: The JSON Schema of its arguments.

    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Request:
    """A request. A field left at its default is not sent to the provider.

    Args:
        messages: The conversation.
        max_tokens: The most tokens of the reply.
        temperature: Sampling temperature.
        top_p: Nucleus sampling.
        seed: Makes sampling repeatable, where the provider can.
        stop: Texts that end the reply.
        tools: The tools that it may call.
        tool_choice: `"auto"`, `"none"`, `"required"` or a tool's name.
        schema: A JSON Schema for the reply.
        grammar: GBNF, for local models.
        effort: How much to reason.
        prefill: The start of the reply, for providers that can continue one; the reply's text
            includes it.
        parallel_tools: If False, a reply calls one tool at most.
        cache_key: A hint for the provider's prompt cache, as is `cache_ttl`.
        cache_ttl: How long it shall keep the prompt.
        thinking_tokens: The most tokens of reasoning.
        extra: Further fields of the body, for a worker of the format that they are written in; what
            Podium decides itself, such as the output limit, is never taken from them.

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
    cache_ttl: CacheTtl = field(default="", repr=False)
    thinking_tokens: int | None = field(default=None, repr=False)
    extra: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def output_count(self) -> int:
        """The number of requested answers; the output of each is paid for."""
        return 1 if self.extra is None else int(self.extra.get("n", 1))

    @property
    def wants_choices(self) -> bool:
        """True if the reply is to hold `choices`."""
        extra = self.extra
        if extra is None:
            return False
        include = extra.get("include")
        has_logprobs = isinstance(include, list) and LOGPROBS in include
        return self.output_count > 1 or bool(extra.get("logprobs")) or has_logprobs

    @property
    def text(self) -> str:
        """All text of the request, for measuring its length."""
        return "".join(message.text for message in self.messages)


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's reply.

    Args:
        text: The answer.
        usage: Its tokens; by default unknown.
        finish: Why it ended: `"stop"`, `"length"`, `"tool"`, `"refused"` or `"error"`.
        tool_calls: The tools that it calls.
        thinking: Its reasoning.
        model: The model that answered, as the provider names it.
        stop_sequence: The stop text that ended it, where the provider reports one.
        choices: All answers as the provider wrote them, if the request wanted more than a text.

    """

    text: str
    usage: Usage = UNKNOWN_USAGE
    finish: Finish = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    model: str = ""
    stop_sequence: str = ""
    choices: tuple[Mapping[str, Any], ...] = ()

    def with_first_call(self) -> Reply:
        """Return the reply with only its first tool call."""
        return replace(self, tool_calls=self.tool_calls[:1]) if self.tool_calls[1:] else self


EMPTY_REPLY: Final = Reply("")


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Delta:
    """A streamed piece of a reply.

    A worker may leave out pieces of calls: the reply has them whole.

    Args:
        text: The piece.
        kind: Of what it is a piece: `"text"`, `"thinking"`, `"tool_call"` (of its arguments) or
            `"choices"`. A `"start"` says that the provider accepted the request.
        call: The number of the tool call in the reply.
        id: The id of that call.
        name: The tool's name.
        choices: Pieces of several answers as the provider wrote them, in place of all others.
        usage: Of a start, the usage that the provider reports by then.

    """

    text: str
    kind: Literal["text", "thinking", "tool_call", "choices", "start"] = "text"
    call: int = 0
    id: str = ""
    name: str = ""
    choices: tuple[Mapping[str, Any], ...] = ()
    usage: Usage = UNKNOWN_USAGE


@final
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """Requirements of the client on the answer; by default the worker's own.

    Args:
        max_tokens: The most tokens of the answer.
        temperature: Sampling temperature.
        top_p: Nucleus sampling.
        seed: Makes sampling repeatable, where the provider can.
        stop: Texts that end the answer.
        tools: The client's tools; they belong to the final step.
        tool_choice: `"auto"`, `"none"`, `"required"` or a tool's name.
        schema: A JSON Schema for the answer.
        effort: How much every step reasons.
        parallel_tools: If False, only the first of several tool calls of a reply is made.
        cache_key: A hint for the provider's prompt cache, as is `cache_ttl`.
        cache_ttl: How long it shall keep the prompt.
        thinking_tokens: The most tokens of reasoning.
        is_prefilled: The conversation ends with the start of the answer.

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
    cache_ttl: CacheTtl = ""
    thinking_tokens: int | None = None
    is_prefilled: bool = False


DEFAULT_RESPONSE_OPTIONS: Final = ResponseOptions()

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
"""The schema of OpenAI's JSON mode, `json_object`: any JSON object."""

TOOL_CHOICES: Final = ("", "auto", "none", "required")
"""The values of `Request.tool_choice` that are not a tool's name."""
