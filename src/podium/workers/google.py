"""Google's Gemini API: generateContent and its stream, whose chunks have the same shape.

Setting in the endpoint's options:

    thinking_style   "level":  how hard to think is a word
                     "budget": older models (Gemini 2.5), which take a number of tokens

Everything else in the options goes into the body, such as `safetySettings`; what is in
`generationConfig` is added to Podium's own.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from podium.core.errors import BadReply, RequestRefused
from podium.core.request import (
    Delta,
    Effort,
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
)
from podium.core.usage import UNKNOWN_USAGE, Usage
from podium.workers import errors as faults
from podium.workers import fields
from podium.workers import translation as parts
from podium.workers.fields import Document, Malformed
from podium.workers.hosted import HostedWorker
from podium.workers.http import Call

_FINISH: Final[Mapping[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "LANGUAGE": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "OTHER": "refused",
}

_BOTCHED: Final = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"}
)
"""The model wrote something that the API itself could not read."""


class ContentAssembly:
    """Puts one reply together. `called` is how error messages name the worker."""

    def __init__(self, model: str, called: str) -> None:
        self._asked_model = model
        self._called = called
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._signatures: dict[str, str] = {}
        self._usage = UNKNOWN_USAGE
        self._finish: Finish | None = None
        self._model = model

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next chunk, or the whole reply; the pieces of the answer that it brings."""
        if document.get("error"):
            raise faults.from_stream(self._called, document["error"])
        self._model = fields.text(document, "modelVersion") or self._model
        if usage := fields.member(document, "usageMetadata"):
            self._usage = usage_of(usage)
        if blocked := fields.text(fields.member(document, "promptFeedback"), "blockReason"):
            self._finish = "refused"
            self._text.append(f"The prompt was blocked: {blocked}.")
            yield Delta(self._text[-1])
        for candidate in fields.members(document, "candidates")[:1]:
            for part in fields.members(fields.member(candidate, "content"), "parts"):
                yield from self._take(part)
            self._take_end(candidate)

    @property
    def finished(self) -> bool:
        """Whether a chunk has said why the reply ends."""
        return self._finish is not None

    def finish(self) -> Reply:
        """The whole reply; a stream that never said why it ended was broken off."""
        if self._finish is None:
            raise faults.broken_off(self._called)
        return self.whole()

    def whole(self) -> Reply:
        """What has arrived so far, as a reply."""
        if self._finish is None:
            raise Malformed("expected a candidate with a finishReason, got none")
        return Reply(
            text="".join(self._text),
            usage=self._usage,
            finish="tool" if self._calls and self._finish == "stop" else self._finish,
            tool_calls=tuple(self._calls),
            thinking=self._whole_thinking(),
            model=self._model,
        )

    def _take(self, part: Document) -> Iterator[Delta]:
        text = fields.text(part, "text")
        place = ""
        if part.get("thought") is True:
            if text:
                self._thinking.append(text)
                yield Delta(text, "thinking")
        elif call := fields.member(part, "functionCall"):
            place = fields.text(call, "id") or parts.new_call_id()
            arguments = json.dumps(fields.member(call, "args"))
            self._calls.append(ToolCall(place, fields.text(call, "name"), arguments))
        elif text:
            self._text.append(text)
            yield Delta(text)
        if signature := fields.text(part, "thoughtSignature"):
            self._signatures[place] = signature

    def _take_end(self, candidate: Document) -> None:
        reason = fields.text(candidate, "finishReason")
        if reason in _BOTCHED:
            said = fields.text(candidate, "finishMessage") or reason
            raise BadReply(f"{self._called} botched its reply: {said}")
        if reason:
            self._finish = _FINISH.get(reason, "stop")

    def _whole_thinking(self) -> tuple[Thinking, ...]:
        """The signatures by the id of the call that each came with; "" is the words'."""
        opaque = json.dumps(self._signatures) if self._signatures else ""
        if not self._thinking and not opaque:
            return ()
        return (Thinking("".join(self._thinking), opaque, self._asked_model),)


@fields.counted
def usage_of(document: Document) -> Usage:
    """The usage as Podium counts. A zero is left out on this wire, so a missing count is one;
    thoughts are counted beside the candidates, not in them."""

    def count(name: str) -> int:
        return fields.count(document, name) or 0

    return Usage(
        input_tokens=count("promptTokenCount") + count("toolUsePromptTokenCount"),
        output_tokens=count("candidatesTokenCount") + count("thoughtsTokenCount"),
        cached_input_tokens=count("cachedContentTokenCount"),
        reasoning_tokens=count("thoughtsTokenCount"),
        cache_write_tokens=0,
    )


FOREIGN_CALL: Final = "skip_thought_signature_validator"
"""What newer models want in place of a signature on the first of another model's calls."""

_THINKING_LEVEL: Final[Mapping[Effort, str]] = {
    "none": "minimal",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
}

_THINKING_BUDGET: Final[Mapping[Effort, int]] = {
    "none": 0,
    "minimal": 128,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
}

_CALLING_MODE: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GoogleWorker(HostedWorker):
    """A worker behind the Gemini API."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {"thinking_style": ("level", "budget")}
    # The API also takes its fields in snake_case, which would be a second generationConfig.
    owned: ClassVar[frozenset[str]] = frozenset({"contents", "generation_config"})
    merged: ClassVar[Mapping[str, frozenset[str]]] = {
        "generationConfig": frozenset(
            {"maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"}
        )
    }

    def call(self, request: Request, *, stream: bool) -> Call:
        """A POST to the model's generateContent. The key goes into a header, never the URL."""
        model = self.profile.model
        path = quote(model if "/" in model else f"models/{model}")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        key = self.endpoint.api_key
        headers = {"x-goog-api-key": key} if key else {}
        return self.sent(f"/{path}:{method}", self._body(request), headers)

    def read(self, document: Document, request: Request) -> Reply:
        """The whole reply: a stream of one chunk."""
        assembly = self.assembly(request)
        for _ in assembly.feed("", document):
            pass
        return assembly.whole()

    def assembly(self, request: Request) -> ContentAssembly:
        """Where the chunks of a streamed reply are put together."""
        return ContentAssembly(self.profile.model, self.called)

    def _body(self, request: Request) -> dict[str, Any]:
        parts.refuse_grammar(request, self.profile)
        body: dict[str, Any] = {"contents": self._contents(request)}
        system = [
            self._part(part, message, {})
            for message in request.messages
            if message.role == "system"
            for part in message.parts
        ]
        if system:
            body["systemInstruction"] = {"parts": system}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_declaration(t) for t in request.tools]}]
            if request.tool_choice:
                body["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice)}
        if generation := self._generation(request):
            body["generationConfig"] = generation
        return body

    def _generation(self, request: Request) -> dict[str, Any]:
        generation = parts.sampling_of(
            request, self.profile, temperature="temperature", top_p="topP", seed="seed"
        )
        if request.max_tokens is not None:
            generation["maxOutputTokens"] = request.max_tokens
        if request.stop:
            generation["stopSequences"] = list(request.stop)
        if request.schema is not None:
            generation["responseMimeType"] = "application/json"
            generation["responseJsonSchema"] = request.schema
        if request.effort is not None and "reasoning" in self.profile.capabilities:
            tokens = request.thinking_tokens
            generation["thinkingConfig"] = self._thinking(request.effort, tokens)
        return generation

    def _thinking(self, effort: Effort, tokens: int | None) -> dict[str, Any]:
        shown = {"includeThoughts": effort != "none"}
        if self.setting("thinking_style") == "budget":
            own = tokens is None or effort == "none"
            return shown | {"thinkingBudget": _THINKING_BUDGET[effort] if own else tokens}
        return shown | {"thinkingLevel": _THINKING_LEVEL[effort]}

    def _contents(self, request: Request) -> list[dict[str, Any]]:
        """The turns, alternating: what follows each other in one role is one turn."""
        names = {
            call.id: call.name
            for message in request.messages
            for call in parts.of_kind(message, ToolCall)
        }
        turns: list[dict[str, Any]] = []
        for message in request.messages:
            if message.role == "system":
                continue
            role = "model" if message.role == "assistant" else "user"
            content = list(self._turn(message, names))
            if turns and turns[-1]["role"] == role:
                turns[-1]["parts"] += content
            elif content:
                turns.append({"role": role, "parts": content})
        return turns

    def _turn(self, message: Message, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        ours = message.role == "assistant"
        signatures = self._signatures(message) if ours else {}
        for part in message.parts:
            if (ours and isinstance(part, Thinking)) or part == Text(""):
                continue
            sent = self._part(part, message, names)
            if signature := signatures.pop(part.id if isinstance(part, ToolCall) else "", ""):
                sent["thoughtSignature"] = signature
            yield sent
        for result in parts.of_kind(message, ToolResult):  # all results come before any picture
            yield from map(_picture, result.images)

    def _signatures(self, message: Message) -> dict[str, str]:
        """The signatures by the id of the call that each came with; "" is the words'."""
        signatures: dict[str, str] = {}
        for thinking in parts.own_thinking(message, self.profile):
            if thinking.opaque:
                signatures |= parts.opaque_of(thinking, dict, self.profile)
        calls = [call.id for call in parts.of_kind(message, ToolCall)]
        newer = self.setting("thinking_style") == "level"
        if newer and calls and not signatures.keys() & set(calls):
            signatures[calls[0]] = FOREIGN_CALL
        return signatures

    def _part(self, part: Part, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"text": part.text}
        if isinstance(part, Image) and message.role not in ("assistant", "system"):
            return _picture(part)
        if isinstance(part, ToolCall) and message.role == "assistant":
            arguments = parts.arguments_of(part, self.profile)
            return {"functionCall": {"id": part.id, "name": part.name, "args": arguments}}
        if isinstance(part, ToolResult) and message.role not in ("assistant", "system"):
            return {"functionResponse": self._response(part, names)}
        raise parts.unsupported(part, message, self.profile)

    def _response(self, result: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
        if result.call_id not in names:
            raise RequestRefused(
                f"worker {self.profile.name!r} was sent the result of call {result.call_id!r}, "
                f"but not the call; keep the message that made it"
            )
        said = {"error" if result.is_error else "output": result.text}
        return {"id": result.call_id, "name": names[result.call_id], "response": said}


def _picture(image: Image) -> dict[str, Any]:
    if not image.url:
        return {"inlineData": {"mimeType": image.media_type, "data": image.data}}
    media_type = image.media_type or mimetypes.guess_type(image.url)[0]
    data = {"fileUri": image.url}
    return {"fileData": data | ({"mimeType": media_type} if media_type else {})}


def _declaration(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }


def _calling(choice: str) -> dict[str, Any]:
    if choice in _CALLING_MODE:
        return {"mode": _CALLING_MODE[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}
