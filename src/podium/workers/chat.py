"""The Chat Completions API: OpenAI and every compatible server, Ollama, vLLM or your own.

Differences between servers are fields of `ChatVariant`, never branches on a vendor's name. A
streamed chunk and a whole reply have the same shape, with `delta` or `message`, so
`ChatReplyParser` reads both. It accepts what real servers send: usage in the last chunk, in each or
nowhere, thinking under several names, tool calls without an index or an id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from podium.core.pool import WorkerProfile
from podium.core.request import (
    ANY_OBJECT,
    TOOL_CHOICES,
    Delta,
    Finish,
    Image,
    Message,
    Part,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    speaker_prefix,
)
from podium.workers import errors, fields, translation
from podium.workers.fields import Document, MalformedReply
from podium.workers.hosted import HostedWorker, ReplyParser, Wire
from podium.workers.http import HttpCall
from podium.workers.translation import is_strict

SCHEMA_NAME: Final = "reply"

IMAGES_ONLY: Final = "The tool showed pictures, which follow."
"""The text of a tool result that has only images."""

UNREAD_PDF: Final = "[a PDF that you cannot read]"

RESERVED_FIELDS: Final = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "best_of",
        "max_tokens",
        "max_completion_tokens",
        "n_predict",
    }
)
"""Body fields that no option may change, under all servers' names."""


@dataclass(frozen=True, slots=True)
class ChatVariant:
    """The differences of one server's Chat Completions.

    `max_tokens`, `seed` and `grammar` are the names of those fields; without `grammar` the server
    takes none. `accepts_stream_options`: a stream must be asked for its usage; without it the
    server reports usage unasked. A prefill is sent as a last assistant message, with
    `prefill_message` added to the message and `prefill_body` to the body; `echoes_prefill`: the
    server repeats it. `thinking` is the field that returns a model's own thinking to it.
    `supports_names`: messages may name their speaker. `supports_cache_writes`: the server counts
    cache writes; `supports_cache_key`: it takes a prompt cache key. `supports_parallel_tools`: it
    can be limited to one tool call at a time. `supports_image_detail`: it takes an image detail.
    """

    max_tokens: str = "max_tokens"
    seed: str = "seed"
    grammar: str = ""
    accepts_stream_options: bool = True
    prefill_message: Mapping[str, Any] = field(default_factory=dict)
    prefill_body: Mapping[str, Any] = field(default_factory=dict)
    echoes_prefill: bool = False
    thinking: Literal["", "reasoning_content", "reasoning_details"] = ""
    supports_names: bool = True
    supports_cache_writes: bool = False
    supports_cache_key: bool = False
    supports_parallel_tools: bool = False
    supports_image_detail: bool = False


def build_body(
    request: Request, profile: WorkerProfile, variant: ChatVariant, *, stream: bool
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": profile.model,
        "messages": list(_messages(request, profile, variant)),
    }
    if request.max_tokens is not None:
        body[variant.max_tokens] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    body |= translation.sampling_fields(
        request, profile, temperature="temperature", top_p="top_p", seed=variant.seed
    )
    if request.effort is not None and "reasoning" in profile.capabilities:
        body["reasoning_effort"] = request.effort
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if not request.parallel_tools and variant.supports_parallel_tools:
            body["parallel_tool_calls"] = False
    if request.schema is not None:
        body["response_format"] = _response_format(request.schema)
    if request.grammar and variant.grammar:
        body[variant.grammar] = request.grammar
    else:
        translation.refuse_grammar(request, profile)
    if request.cache_key and variant.supports_cache_key:
        body["prompt_cache_key"] = request.cache_key
    if translation.has_prefill(request, profile):
        body |= variant.prefill_body
    if stream:
        body["stream"] = True
        if variant.accepts_stream_options:
            body["stream_options"] = {"include_usage": True}
    return body


def _messages(
    request: Request, profile: WorkerProfile, variant: ChatVariant
) -> Iterator[dict[str, Any]]:
    for message in request.messages:
        named: dict[str, Any] = {}
        if message.name and variant.supports_names:
            message, named = _take_name(message)
        if message.role == "assistant":
            yield _assistant(message, profile, variant) | named
        else:
            yield from _input_messages(message, profile, variant, named)
    if translation.has_prefill(request, profile):
        yield {"role": "assistant", "content": request.prefill, **variant.prefill_message}


def _take_name(message: Message) -> tuple[Message, dict[str, Any]]:
    """Move the speaker's name from the text to a field; a changed text keeps it."""
    prefix = Text(speaker_prefix(message.name))
    if prefix not in message.parts:
        return message, {}
    at = message.parts.index(prefix)
    parts = (*message.parts[:at], *message.parts[at + 1 :])
    return replace(message, parts=parts), {"name": message.name}


def _input_messages(
    message: Message, profile: WorkerProfile, variant: ChatVariant, named: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield one message per tool result, then one for the rest.

    Tool results hold text only here, so their images follow as the user's.
    """
    content = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = part.text or (IMAGES_ONLY if part.images else "")
            text = f"Error: {text}" if part.is_error else text
            yield {"role": "tool", "tool_call_id": part.call_id, "content": text}
            if part.images:
                caption = Text(f"Pictures that the tool showed for the call {part.call_id}:")
                content.append(_content(caption, message, profile, variant))
                content += [_content(image, message, profile, variant) for image in part.images]
        else:
            content.append(_content(part, message, profile, variant))
    if content or message.role != "tool":
        role = "user" if message.role == "tool" else message.role
        yield {"role": role, "content": _flatten(content), **named}


def _content(
    part: Part, message: Message, profile: WorkerProfile, variant: ChatVariant
) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image) and part.is_pdf:
        return _pdf(part, message, profile)
    if isinstance(part, Image) and message.role != "system":
        shown = {"url": translation.data_url(part)}
        if part.detail and variant.supports_image_detail:
            shown["detail"] = part.detail
        return {"type": "image_url", "image_url": shown}
    raise translation.unsupported_part(part, message, profile)


def _pdf(part: Image, message: Message, profile: WorkerProfile) -> dict[str, Any]:
    """Send a PDF as a file; one that a tool read must not end a conversation."""
    if "pdf" in profile.capabilities and part.data and message.role != "system":
        file = {"filename": translation.PDF_NAME, "file_data": translation.data_url(part)}
        return {"type": "file", "file": file}
    if message.role == "tool":
        return {"type": "text", "text": UNREAD_PDF}
    raise translation.unsupported_part(part, message, profile)


def _flatten(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Send text-only content as a plain string, which every server accepts."""
    if all(part["type"] == "text" for part in content):
        return "".join(part["text"] for part in content)
    return content


def _assistant(message: Message, profile: WorkerProfile, variant: ChatVariant) -> dict[str, Any]:
    for part in message.parts:
        if not isinstance(part, Text | ToolCall | Thinking):
            raise translation.unsupported_part(part, message, profile)
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls := translation.parts_of_type(message, ToolCall):
        sent["content"] = message.text or None
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    own = translation.own_thinking(message, profile)
    if variant.thinking == "reasoning_content" and own:
        sent["reasoning_content"] = "".join(part.text for part in own)
    if variant.thinking == "reasoning_details":
        kept = [translation.load_opaque(part, list, profile) for part in own if part.opaque]
        details = [detail for details in kept for detail in details]
        if details:
            sent["reasoning_details"] = details
    return sent


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _tool_choice(choice: str) -> str | dict[str, Any]:
    if choice in TOOL_CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)},
    }


_FINISH: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
    "content_filter": "refused",
}

_THINKING_FIELDS: Final = ("reasoning_content", "reasoning")

_CONCATENATED_FIELDS: Final = ("text", "summary", "data")
"""Fields of a reasoning detail that arrive in fragments."""


@dataclass(slots=True)
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    number: int = 0
    streams: bool = False


class ChatReplyParser(ReplyParser):
    """Parses one completion.

    It is never complete before the stream ends: usage may follow the finish reason.
    """

    def __init__(
        self, request: Request, profile: WorkerProfile, variant: ChatVariant, label: str
    ) -> None:
        super().__init__(profile, label)
        self._variant = variant
        self._unsent_prefill = (
            request.prefill
            if translation.has_prefill(request, profile) and not variant.echoes_prefill
            else ""
        )
        self._details: list[Document] = []
        self._calls: list[_PartialCall] = []
        self._call_at: dict[int | str, _PartialCall] = {}
        self._finish: Finish | None = None
        self._stops = request.stop
        self._stop_sequence = ""
        self._refused = False

    def feed(self, document: Document) -> Iterator[Delta]:
        if document.get("error"):
            raise errors.error_from_stream(self.label, document["error"])
        self.model = fields.get_text(document, "model") or self.model
        self._note_usage(document)
        for choice in fields.get_objects(document, "choices")[:1]:
            self._note_usage(choice)
            yield from self._take(
                fields.get_object(choice, "delta") or fields.get_object(choice, "message")
            )
            if reason := fields.get_text(choice, "finish_reason"):
                if reason == "error":
                    raise errors.error_from_stream(self.label, choice.get("error"))
                # A server's own word for a normal end ("eos", "end_turn") is a stop.
                self._finish = _FINISH.get(reason, "stop")
                if choice.get("stop_reason") in self._stops:  # vLLM's; it may also be a token
                    self._stop_sequence = fields.get_text(choice, "stop_reason")

    def finish(self) -> Reply:
        """Return the reply; raise if the stream ended without a finish reason."""
        if self._finish is None:
            raise errors.truncated_stream(self.label)
        return self.to_reply()

    def to_reply(self) -> Reply:
        calls = tuple(
            ToolCall(
                call.id or translation.new_call_id(), call.name, "".join(call.arguments) or "{}"
            )
            for call in self._calls
        )
        if self._finish is None and not (self.text or calls or self.thinking):
            raise MalformedReply("expected choices with a message, got none")
        finish = "refused" if self._refused else self._finish or "stop"
        opaque = json.dumps(merge_details(self._details)) if self._details else ""
        return Reply(
            text=self._unsent_prefill + "".join(self.text),
            usage=self.usage,
            finish="tool" if calls and finish == "stop" else finish,
            tool_calls=calls,
            thinking=self.one_thinking(opaque),
            model=self.model,
            stop_sequence=self._stop_sequence,
        )

    def _take(self, delta: Document) -> Iterator[Delta]:
        thinking = next(
            (found for name in _THINKING_FIELDS if (found := fields.get_text(delta, name))), ""
        )
        text, more_thinking = _split_content(delta)
        if refusal := fields.get_text(delta, "refusal"):
            text, self._refused = text + refusal, True
        if thinking := thinking + more_thinking:
            self.thinking.append(thinking)
            yield Delta(thinking, "thinking")
        self._details.extend(fields.get_objects(delta, "reasoning_details"))
        if text:
            text, self._unsent_prefill = self._unsent_prefill + text, ""
            self.text.append(text)
            yield Delta(text)
        for fragment in fields.get_objects(delta, "tool_calls"):
            yield from self._take_call(fragment)

    def _take_call(self, fragment: Document) -> Iterator[Delta]:
        function = fields.get_object(fragment, "function")
        id_, name = fields.get_text(fragment, "id"), fields.get_text(function, "name")
        call = self._call_of(fields.get_count(fragment, "index"), id_, name)
        call.id = call.id or id_
        call.name = call.name or name
        whole = function.get("arguments")
        piece = (
            json.dumps(whole)
            if isinstance(whole, Mapping)
            else fields.get_text(function, "arguments")
        )
        call.arguments.append(piece)
        if call.streams:
            yield Delta(piece, "tool_call", call.number, call.id, call.name)

    def _call_of(self, index: int | None, id_: str, name: str) -> _PartialCall:
        """Return the tool call that a fragment belongs to.

        Some servers send no index, or the same one for every call; then a new id or a name starts a
        new call.
        """
        position = id_ if index is None else index
        if position != "":
            call = self._call_at.get(position)
        else:
            call = self._calls[-1] if self._calls and not name else None
        if call is None or (id_ and call.id and id_ != call.id):
            call = _PartialCall(number=len(self._calls), streams=bool(id_ and name))
            self._calls.append(call)
            self._call_at[position] = call
        return call

    def _note_usage(self, document: Document) -> None:
        """Keep the latest counts: they are cumulative."""
        found = fields.get_object(document, "usage") or fields.get_object(
            fields.get_object(document, "x_groq"), "usage"
        )
        if found:
            self.usage = usage_of(found, self._variant)


class ChoicesReplyParser(ChatReplyParser):
    """Parses a completion of several answers, or with log probabilities, which are passed on as
    they are; the first answer is also the reply."""

    _choices: tuple[Document, ...] = ()

    def feed(self, document: Document) -> Iterator[Delta]:
        choices = fields.get_objects(document, "choices")
        if choices and "message" in choices[0]:
            self._choices = tuple(choices)
        elif choices:
            yield Delta("", "choices", choices=tuple(choices))
        first = [choice for choice in choices if not choice.get("index")]
        for _ in super().feed({**document, "choices": first}):
            pass

    def to_reply(self) -> Reply:
        return replace(super().to_reply(), choices=self._choices)


@fields.lenient_usage
def usage_of(document: Document, variant: ChatVariant) -> Usage:
    """Convert the usage object; counts that were not sent stay unknown."""
    prompt = fields.get_object(document, "prompt_tokens_details")
    completion = fields.get_object(document, "completion_tokens_details")
    inputs = fields.get_count(document, "prompt_tokens")
    outputs = fields.get_count(document, "completion_tokens")
    reasoning = fields.get_count(completion, "reasoning_tokens")
    cached = fields.get_count(prompt, "cached_tokens")
    if cached is None:
        cached = fields.get_count(document, "prompt_cache_hit_tokens")
    if (
        reasoning
        and inputs is not None
        and outputs is not None
        and fields.get_count(document, "total_tokens") == inputs + outputs + reasoning
    ):
        outputs += reasoning  # this server counts thinking beside the completion, not in it
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
        cache_write_tokens=fields.get_count(prompt, "cache_write_tokens")
        if variant.supports_cache_writes
        else 0,
    )


def merge_details(details: list[Document]) -> list[dict[str, Any]]:
    """Join the fragments of streamed reasoning details."""
    blocks: list[list[Document]] = []
    for detail in details:
        last = blocks[-1][-1] if blocks else {}
        numbered = detail.get("index") is not None
        if numbered and all(last.get(key) == detail.get(key) for key in ("index", "type")):
            blocks[-1].append(detail)
        else:
            blocks.append([detail])
    return [_merge_detail(block) for block in blocks]


def _merge_detail(fragments: list[Document]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key in dict.fromkeys(key for fragment in fragments for key in fragment):
        values = [fragment[key] for fragment in fragments if fragment.get(key) is not None]
        if key in _CONCATENATED_FIELDS and all(isinstance(value, str) for value in values):
            whole[key] = "".join(values)
        else:
            whole[key] = values[-1] if values else None
    return whole


def _split_content(delta: Document) -> tuple[str, str]:
    """Split content, a text or a list of parts, into text and thinking."""
    if not isinstance(delta.get("content"), list):
        return fields.get_text(delta, "content"), ""
    text, thinking = "", ""
    for part in fields.get_objects(delta, "content"):
        if part.get("type") == "thinking":
            thinking += "".join(
                fields.get_text(item, "text") for item in fields.get_objects(part, "thinking")
            )
        else:
            text += fields.get_text(part, "text")
    return text, thinking


PLAIN: Final = ChatVariant()

_OPENAI: Final = ChatVariant(
    max_tokens="max_completion_tokens",
    supports_cache_writes=True,
    supports_cache_key=True,
    supports_parallel_tools=True,
    supports_image_detail=True,
)

VARIANTS: Final[Mapping[str, ChatVariant]] = MappingProxyType(
    {
        "openai": _OPENAI,
        "azure": _OPENAI,
        "openrouter": ChatVariant(
            thinking="reasoning_details", supports_cache_writes=True, supports_parallel_tools=True
        ),
        "deepseek": ChatVariant(prefill_message={"prefix": True}, thinking="reasoning_content"),
        "mistral": ChatVariant(
            seed="random_seed",
            accepts_stream_options=False,  # it refuses them, and always reports usage
            prefill_message={"prefix": True},
            echoes_prefill=True,
            supports_names=False,
            supports_parallel_tools=True,
        ),
        "vllm": ChatVariant(
            prefill_body={"continue_final_message": True, "add_generation_prompt": False},
            supports_parallel_tools=True,
        ),
    }
)


class CompatibleWorker(HostedWorker):
    """A worker behind an OpenAI-compatible endpoint."""

    wire: ClassVar[Wire | None] = "chat"
    reserved_fields: ClassVar[frozenset[str]] = RESERVED_FIELDS

    @property
    def variant(self) -> ChatVariant:
        return VARIANTS.get(self.profile.provider, PLAIN)

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        body = build_body(request, self.profile, self.variant, stream=stream)
        return self.post_call(
            "/chat/completions", self.add_extra(body, request), self.key_headers()
        )

    def reply_parser(self, request: Request) -> ReplyParser:
        parser = ChoicesReplyParser if request.wants_choices else ChatReplyParser
        return parser(request, self.profile, self.variant, self.label)
