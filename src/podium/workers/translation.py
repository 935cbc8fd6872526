"""What the vendors' translations share about messages and their parts."""

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
"""The keywords that OpenAI's strict mode knows."""

_ENFORCED: Final = _COMMON | {"allOf", "default"}
"""The keywords that Anthropic's structured output knows."""


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI can enforce a schema to the letter: every object names all its members,
    requires them all and allows no others."""
    if not _STRICT.issuperset(schema):
        return False
    if _is_object(schema):
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("properties", ())) != set(schema.get("required", ())):
            return False
    return all(is_strict(part) for part in _subschemas(schema))


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as Anthropic can enforce it: objects allow no members but their own, and what
    cannot be enforced is said in the description instead. What fits this fits the original
    too, as far as it is enforced."""
    kept: dict[str, Any] = {}
    only_said: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED:
            kept[keyword] = {name: _closed(part) for name, part in value.items()}
        elif keyword in _LISTED:
            kept["allOf" if keyword == "allOf" else "anyOf"] = [_closed(part) for part in value]
        elif keyword == "items":
            kept[keyword] = _closed(value)
        elif keyword in _ENFORCED or (keyword == "minItems" and value in (0, 1)):
            kept[keyword] = value
        elif keyword != "additionalProperties":
            only_said[keyword] = value
    if _is_object(kept):
        kept["additionalProperties"] = False
    if only_said:
        said = ", ".join(f"{keyword}: {value}" for keyword, value in only_said.items())
        kept["description"] = f"{kept.get('description', '')}\n({said})".strip()
    return kept


def _closed(part: Any) -> Any:
    return closed(part) if isinstance(part, Mapping) else part


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


def of_kind(message: Message, kind: type[Kind]) -> list[Kind]:
    """The message's parts of that kind, in order."""
    return [part for part in message.parts if isinstance(part, kind)]


def with_system(words: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages with a worker's own system prompt before theirs, as one message."""
    if not words:
        return messages
    if messages and messages[0].role == "system":
        first = Message("system", (Text(f"{words}\n\n"), *messages[0].parts))
        return (first, *messages[1:])
    return (system(words), *messages)


def own_thinking(message: Message, profile: WorkerProfile) -> list[Thinking]:
    """The thinking that this very model did. What another model thought is nobody else's, and
    its opaque state would be refused."""
    return [part for part in of_kind(message, Thinking) if part.model == profile.model]


def opaque_of(thinking: Thinking, form: type[Form], profile: WorkerProfile) -> Form:
    """What a provider's opaque state holds. It has been in a client's hands, so it may be
    anything."""
    try:
        kept = json.loads(thinking.opaque)
    except (ValueError, RecursionError):
        raise changed_thinking(profile) from None
    if not isinstance(kept, form):
        raise changed_thinking(profile)
    return kept


def changed_thinking(profile: WorkerProfile) -> RequestRefused:
    """The refusal of opaque state that the provider cannot have given."""
    return RequestRefused(
        f"worker {profile.name!r} was handed back thinking that is not as it gave it; hand it back "
        f"unchanged, or leave it out"
    )


def arguments_of(call: ToolCall, profile: WorkerProfile) -> dict[str, Any]:
    """A tool call's arguments as an object, for vendors that do not take them as text."""
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


def data_url(image: Image) -> str:
    """The picture's address, or the picture itself written as one."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def prefills(request: Request, profile: WorkerProfile) -> bool:
    """Whether Podium begins this reply itself."""
    return bool(request.prefill) and "prefill" in profile.capabilities


def sampling_of(request: Request, profile: WorkerProfile, **names: str) -> dict[str, Any]:
    """The request's sampling parameters under the vendor's names, where the model takes any."""
    if "sampling" not in profile.capabilities:
        return {}
    values = {vendors: getattr(request, ours) for ours, vendors in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def refuse_grammar(request: Request, profile: WorkerProfile) -> None:
    """Only local models can follow a grammar."""
    if request.grammar:
        raise RequestRefused(
            f"worker {profile.name!r} cannot follow a grammar; use a local model, or a schema"
        )


def refuse_seed(request: Request, profile: WorkerProfile) -> None:
    """For the protocols that have no seed: one who asks for it must not believe in it."""
    if request.seed is not None:
        raise RequestRefused(
            f"worker {profile.name!r} takes no seed; leave it out, or ask another worker"
        )


def unsupported(part: Part, message: Message, profile: WorkerProfile) -> RequestRefused:
    """The refusal of a part that the vendor has no place for."""
    what = part.kind.replace("_", " ")
    return RequestRefused(
        f"worker {profile.name!r} takes no {what} in {message.role} messages; "
        f"leave it out, or ask another worker"
    )


def new_call_id() -> str:
    """An id for a tool call that came without one. Never the same twice, so that the calls of
    two turns cannot be mistaken for each other."""
    return f"call_{secrets.token_hex(8)}"
