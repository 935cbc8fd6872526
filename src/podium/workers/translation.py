"""Shared translation of messages, parts and schemas for the vendors."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from podium.core.errors import RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import Image, Message, Part, Request, Text, Thinking, ToolCall, system

_NAMED: Final = ("properties", "$defs")
_LISTED: Final = ("anyOf", "oneOf", "allOf")

_COMMON: Final = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "$defs"}
    | {"title", "description", "format"}
)

_STRICT: Final = _COMMON | {
    "additionalProperties",
    "pattern",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
}
"""Keywords of OpenAI's strict mode."""

_ENFORCED: Final = _COMMON | {"allOf", "default"}
"""Keywords of Anthropic's structured output."""


def is_strict(schema: Mapping[str, Any]) -> bool:
    """True if OpenAI can enforce the schema: objects require all members and allow no others."""
    if not _STRICT.issuperset(schema):
        return False
    if _is_object(schema):
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("properties", ())) != set(schema.get("required", ())):
            return False
    return all(is_strict(part) for part in _subschemas(schema))


def to_strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema in the form that Anthropic can enforce.

    Objects allow only their own members; what cannot be enforced goes into the description.
    """
    kept: dict[str, Any] = {}
    unenforced: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED:
            kept[keyword] = {name: _to_strict_part(part) for name, part in value.items()}
        elif keyword in _LISTED:
            kept["allOf" if keyword == "allOf" else "anyOf"] = [
                _to_strict_part(part) for part in value
            ]
        elif keyword == "items":
            kept[keyword] = _to_strict_part(value)
        elif keyword in _ENFORCED or (keyword == "minItems" and value in (0, 1)):
            kept[keyword] = value
        elif keyword != "additionalProperties":
            unenforced[keyword] = value
    if _is_object(kept):
        kept["additionalProperties"] = False
    if unenforced:
        described = ", ".join(f"{keyword}: {value}" for keyword, value in unenforced.items())
        kept["description"] = f"{kept.get('description', '')}\n({described})".strip()
    return kept


def _to_strict_part(part: Any) -> Any:
    return to_strict_schema(part) if isinstance(part, Mapping) else part


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = [
        *(part for keyword in _NAMED for part in schema.get(keyword, {}).values()),
        *(part for keyword in _LISTED for part in schema.get(keyword, ())),
        schema.get("items"),
    ]
    return (part for part in parts if isinstance(part, Mapping))


Kind = TypeVar("Kind", bound=Part)
Form = TypeVar("Form", dict[str, Any], list[Any])


def parts_of_type(message: Message, kind: type[Kind]) -> list[Kind]:
    """Return the message's parts of that type, in order."""
    return [part for part in message.parts if isinstance(part, kind)]


def with_system(prompt: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put a worker's own system prompt before the messages, as one message."""
    if not prompt:
        return messages
    if messages and messages[0].role == "system":
        first = Message("system", (Text(f"{prompt}\n\n"), *messages[0].parts))
        return (first, *messages[1:])
    return (system(prompt), *messages)


def own_thinking(message: Message, profile: WorkerProfile) -> list[Thinking]:
    """Return the thinking of this very model; another model's would be refused."""
    return [part for part in parts_of_type(message, Thinking) if part.model == profile.model]


def load_opaque(thinking: Thinking, form: type[Form], profile: WorkerProfile) -> Form:
    """Decode a provider's opaque state, which the client may have changed."""
    try:
        kept = json.loads(thinking.opaque)
    except (ValueError, RecursionError):
        raise thinking_changed_error(profile) from None
    if not isinstance(kept, form):
        raise thinking_changed_error(profile)
    return kept


def thinking_changed_error(profile: WorkerProfile) -> RequestRefused:
    """Return the error for opaque state that the provider cannot have sent."""
    return RequestRefused(
        f"worker {profile.name!r} received thinking that it did not produce; send it back "
        f"unchanged, or leave it out"
    )


def parse_arguments(call: ToolCall, profile: WorkerProfile) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise RequestRefused(
            f"worker {profile.name!r} needs the arguments of tool {call.name!r} as a JSON object, "
            f"got {call.arguments[:80]!r}; leave that call out"
        )
    return arguments


PDF_NAME: Final = "document.pdf"
"""The name of a PDF, where the API wants one."""


def data_url(image: Image) -> str:
    return image.url or f"data:{image.media_type};base64,{image.data}"


def has_prefill(request: Request, profile: WorkerProfile) -> bool:
    """True if Podium begins this reply itself."""
    return bool(request.prefill) and "prefill" in profile.capabilities


def sampling_fields(request: Request, profile: WorkerProfile, **names: str) -> dict[str, Any]:
    """Return sampling parameters under the vendor's names, if the model takes any."""
    if "sampling" not in profile.capabilities:
        return {}
    values = {vendors: getattr(request, ours) for ours, vendors in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def refuse_grammar(request: Request, profile: WorkerProfile) -> None:
    if request.grammar:
        raise RequestRefused(
            f"worker {profile.name!r} cannot follow a grammar; use a local model, or a schema"
        )


def refuse_seed(request: Request, profile: WorkerProfile) -> None:
    if request.seed is not None:
        raise RequestRefused(
            f"worker {profile.name!r} takes no seed; leave it out, or ask another worker"
        )


def unsupported_part(part: Part, message: Message, profile: WorkerProfile) -> RequestRefused:
    is_pdf = isinstance(part, Image) and part.is_pdf
    what = "PDF" if is_pdf else part.kind.replace("_", " ")
    return RequestRefused(
        f"worker {profile.name!r} takes no {what} in {message.role} messages; "
        f"leave it out, or ask another worker"
    )


def new_call_id() -> str:
    """Return a unique id for a tool call that came without one."""
    return f"call_{secrets.token_hex(8)}"
