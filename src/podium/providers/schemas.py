"""JSON Schemas, fitted to what the vendors' structured output can enforce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

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
