"""Google's Gemini API: generateContent and its stream, whose chunks have the same shape.

Setting in the endpoint's options:

    thinking_style   "level":  how hard to think is a word
                     "budget": older models (Gemini 2.5), which take a number of tokens

Everything else in the options goes into the body, such as `safetySettings`; what is in
`generationConfig` is added to Podium's own.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from podium.errors import RequestRefused
from podium.providers import parts
from podium.providers.google_reply import ContentAssembly
from podium.providers.hosted import HostedWorker
from podium.providers.http import Call
from podium.providers.wire import Document
from podium.request import (
    Effort,
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
