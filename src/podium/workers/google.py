"""Google's Gemini API: generateContent and its stream, whose chunks have the same shape.

Setting in the endpoint's options:

    thinking_style   "level":  the thinking effort is a word
                     "budget": older models (Gemini 2.5), which take a number of tokens

All other options go into the body, such as `safetySettings`; `generationConfig` is merged with
Podium's own.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from podium.core.errors import BadReply, RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import (
    ANY_OBJECT,
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
    Usage,
)
from podium.workers import errors, fields, translation
from podium.workers.fields import Document, MalformedReply
from podium.workers.hosted import HostedWorker, ReplyParser
from podium.workers.http import HttpCall

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

_MALFORMED_CALL_REASONS: Final = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"}
)
"""Finish reasons of output that the API itself could not read."""


class GeminiReplyParser(ReplyParser):
    """Parses one reply, whose chunks have the shape of the whole."""

    def __init__(self, profile: WorkerProfile, label: str) -> None:
        super().__init__(profile, label)
        self._calls: list[ToolCall] = []
        self._signatures: dict[str, str] = {}  # by call id, "" for the text's
        self._finish: Finish = "stop"

    def feed(self, document: Document) -> Iterator[Delta]:
        if document.get("error"):
            raise errors.error_from_stream(self.label, document["error"])
        self.model = fields.get_text(document, "modelVersion") or self.model
        if usage := fields.get_object(document, "usageMetadata"):
            self.usage = usage_of(usage)
        if blocked := fields.get_text(fields.get_object(document, "promptFeedback"), "blockReason"):
            self._finish, self.is_complete = "refused", True
            self.text.append(f"The prompt was blocked: {blocked}.")
            yield Delta(self.text[-1])
        for candidate in fields.get_objects(document, "candidates")[:1]:
            for part in fields.get_objects(fields.get_object(candidate, "content"), "parts"):
                yield from self._take(part)
            self._take_end(candidate)

    def to_reply(self) -> Reply:
        if not self.is_complete:
            raise MalformedReply("expected a candidate with a finishReason, got none")
        return Reply(
            text="".join(self.text),
            usage=self.usage,
            finish="tool" if self._calls and self._finish == "stop" else self._finish,
            tool_calls=tuple(self._calls),
            thinking=self.one_thinking(json.dumps(self._signatures) if self._signatures else ""),
            model=self.model,
        )

    def _take(self, part: Document) -> Iterator[Delta]:
        text = fields.get_text(part, "text")
        position = ""
        if part.get("thought") is True:
            if text:
                self.thinking.append(text)
                yield Delta(text, "thinking")
        elif call := fields.get_object(part, "functionCall"):
            position = fields.get_text(call, "id") or translation.new_call_id()
            arguments = json.dumps(fields.get_object(call, "args"))
            self._calls.append(ToolCall(position, fields.get_text(call, "name"), arguments))
        elif text:
            self.text.append(text)
            yield Delta(text)
        if signature := fields.get_text(part, "thoughtSignature"):
            self._signatures[position] = signature

    def _take_end(self, candidate: Document) -> None:
        reason = fields.get_text(candidate, "finishReason")
        if reason in _MALFORMED_CALL_REASONS:
            said = fields.get_text(candidate, "finishMessage") or reason
            raise BadReply(f"{self.label} wrote invalid output: {said}")
        if reason:
            self._finish, self.is_complete = _FINISH.get(reason, "stop"), True


@fields.lenient_usage
def usage_of(document: Document) -> Usage:
    """Convert the usage.

    The API omits zeros, so a missing count is zero; thoughts are counted beside the candidates.
    """

    def count(name: str) -> int:
        return fields.get_count(document, name) or 0

    return Usage(
        input_tokens=count("promptTokenCount") + count("toolUsePromptTokenCount"),
        output_tokens=count("candidatesTokenCount") + count("thoughtsTokenCount"),
        cached_input_tokens=count("cachedContentTokenCount"),
        reasoning_tokens=count("thoughtsTokenCount"),
        cache_write_tokens=0,
    )


FOREIGN_CALL_SIGNATURE: Final = "skip_thought_signature_validator"
"""The signature that newer models require on the first of another model's calls."""

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

    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "thinking_style": ("level", "budget")
    }
    # The API also takes its fields in snake_case, which would be a second generationConfig.
    reserved_fields: ClassVar[frozenset[str]] = frozenset({"contents", "generation_config"})
    reserved_in_merged_fields: ClassVar[Mapping[str, frozenset[str]]] = {
        "generationConfig": frozenset(
            {"maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"}
        )
    }

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        """Build a POST to generateContent; the key goes into a header, never the URL."""
        model = self.profile.model
        path = quote(model if "/" in model else f"models/{model}")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        headers = self.key_headers("x-goog-api-key")
        return self.post_call(f"/{path}:{method}", self._body(request), headers)

    def reply_parser(self, request: Request) -> ReplyParser:
        return GeminiReplyParser(self.profile, self.label)

    def _body(self, request: Request) -> dict[str, Any]:
        translation.refuse_grammar(request, self.profile)
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
                body["toolConfig"] = {"functionCallingConfig": _calling_config(request.tool_choice)}
        if generation := self._generation(request):
            body["generationConfig"] = generation
        return body

    def _generation(self, request: Request) -> dict[str, Any]:
        generation = translation.sampling_fields(
            request, self.profile, temperature="temperature", top_p="topP", seed="seed"
        )
        if request.max_tokens is not None:
            generation["maxOutputTokens"] = request.max_tokens
        if request.stop:
            generation["stopSequences"] = list(request.stop)
        if request.schema is not None:
            generation["responseMimeType"] = "application/json"
            if request.schema != ANY_OBJECT:
                generation["responseJsonSchema"] = request.schema
        if request.effort is not None and "reasoning" in self.profile.capabilities:
            tokens = request.thinking_tokens
            generation["thinkingConfig"] = self._thinking_config(request.effort, tokens)
        return generation

    def _thinking_config(self, effort: Effort, tokens: int | None) -> dict[str, Any]:
        shown = {"includeThoughts": effort != "none"}
        if self.setting("thinking_style") == "budget":
            own = tokens is None or effort == "none"
            return shown | {"thinkingBudget": _THINKING_BUDGET[effort] if own else tokens}
        return shown | {"thinkingLevel": _THINKING_LEVEL[effort]}

    def _contents(self, request: Request) -> list[dict[str, Any]]:
        """Build alternating turns; messages of one role in a row become one turn."""
        names = {
            call.id: call.name
            for message in request.messages
            for call in translation.parts_of_type(message, ToolCall)
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
        for result in translation.parts_of_type(
            message, ToolResult
        ):  # all results come before any picture
            yield from map(_image, result.images)

    def _signatures(self, message: Message) -> dict[str, str]:
        """Return the signatures by call id; "" is the text's."""
        signatures: dict[str, str] = {}
        for thinking in translation.own_thinking(message, self.profile):
            if thinking.opaque:
                signatures |= translation.load_opaque(thinking, dict, self.profile)
        calls = [call.id for call in translation.parts_of_type(message, ToolCall)]
        newer = self.setting("thinking_style") == "level"
        if newer and calls and not signatures.keys() & set(calls):
            signatures[calls[0]] = FOREIGN_CALL_SIGNATURE
        return signatures

    def _part(self, part: Part, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"text": part.text}
        if isinstance(part, Image) and message.role not in ("assistant", "system"):
            return _image(part)
        if isinstance(part, ToolCall) and message.role == "assistant":
            arguments = translation.parse_arguments(part, self.profile)
            return {"functionCall": {"id": part.id, "name": part.name, "args": arguments}}
        if isinstance(part, ToolResult) and message.role not in ("assistant", "system"):
            return {"functionResponse": self._response(part, names)}
        raise translation.unsupported_part(part, message, self.profile)

    def _response(self, result: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
        if result.call_id not in names:
            raise RequestRefused(
                f"worker {self.profile.name!r} was sent the result of call {result.call_id!r}, "
                f"but not the call; keep the message that made it"
            )
        said = {"error" if result.is_error else "output": result.text}
        return {"id": result.call_id, "name": names[result.call_id], "response": said}


def _image(image: Image) -> dict[str, Any]:
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


def _calling_config(choice: str) -> dict[str, Any]:
    if choice in _CALLING_MODE:
        return {"mode": _CALLING_MODE[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}
