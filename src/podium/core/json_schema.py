"""Whether a JSON Schema of anybody's has the form of one, so that nothing stumbles over it.

The keywords that providers and validators look into are checked for their form, references must
point into the schema itself, and none may lead back to where it stands without a value between,
for a validator would follow it for ever. A keyword that is unknown here is left as it is, as JSON
Schema has it. Runs in time linear in the schema. Whether replies can be held against it is asked
in `structure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

_ONE: Final = frozenset(
    {"additionalProperties", "additionalItems", "not", "if", "then", "else", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems", "items"}
)
_LISTED: Final = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_IN_PLACE: Final = frozenset({"anyOf", "allOf", "oneOf", "not", "if", "then", "else"})
"""What these hold is asked of the same value, and not of a part of it."""

_REFERENCES: Final = ("$ref", "$dynamicRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")


class Flaw(NamedTuple):
    """What is wrong, and where in the schema."""

    path: str
    reason: str


class _Part(NamedTuple):
    """A schema within the schema. `beside` says that it is asked of the same value as the schema
    that holds it."""

    path: str
    value: Any
    beside: bool = False


def flaw(schema: Mapping[str, Any]) -> Flaw | None:
    """The first thing that keeps it from being a schema, if any does."""
    beside: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    anchors = _anchors(schema)
    refers, inner_id = False, ""
    parts = [_Part("", schema)]
    while parts:
        path, here, _ = parts.pop()
        if isinstance(here, bool):
            continue
        if not isinstance(here, Mapping):
            return Flaw(path, "expected a schema: an object, true or false")
        if id(here) in names:
            continue
        names[id(here)] = path
        leads_to = beside.setdefault(id(here), [])
        for keyword, value in here.items():
            if expected := _misfit(keyword, value):
                return Flaw(_within(path, keyword), f"expected {expected}")
            for part in _parts(path, keyword, value):
                parts.append(part)
                if part.beside:
                    leads_to.append(id(part.value))
            if keyword == "$id" and here is not schema:
                inner_id = _within(path, keyword)
            if keyword in _REFERENCES:
                refers = True
                target = _target(schema, anchors, value)
                if not isinstance(target, Mapping | bool):
                    return Flaw(_within(path, keyword), _not_in_it(value))
                parts.append(_Part(path, target))
                leads_to.append(id(target))
    if refers and inner_id:
        return Flaw(inner_id, "an $id changes what references lead to; leave it out below the top")
    return _circle(beside, names)


def _not_in_it(reference: str) -> str:
    return (
        f"the schema refers to {_shortened(reference)!r}, which is not in it; put it into $defs: "
        f"nothing is fetched"
    )


def _anchors(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that have a name to refer to."""
    named: dict[str, Any] = {}
    parts: list[Any] = [schema]
    while parts:
        here = parts.pop()
        if isinstance(here, Mapping):
            for keyword in _ANCHORS:
                if isinstance(name := here.get(keyword), str):
                    named[name] = here
            parts += here.values()
        elif isinstance(here, list):
            parts += here
    return named


def _misfit(keyword: str, value: Any) -> str | None:
    """What the keyword expects, where the value is not that."""
    rule = _RULES.get(keyword)
    return rule.expected if rule is not None and not rule.fits(value) else None


def _parts(path: str, keyword: str, value: Any) -> Iterator[_Part]:
    here = _within(path, keyword)
    beside = keyword in _IN_PLACE
    if keyword in _NAMED:
        yield from (_Part(_within(here, name), part) for name, part in value.items())
    elif keyword in _LISTED or (keyword == "items" and isinstance(value, list)):
        yield from (_Part(f"{here}.{place}", part, beside) for place, part in enumerate(value))
    elif keyword in _ONE:
        yield _Part(here, value, beside)


def _within(path: str, name: str) -> str:
    return f"{path}.{_shortened(name)}" if path else _shortened(name)


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:40]}…"


def _target(schema: Mapping[str, Any], anchors: Mapping[str, Any], reference: str) -> Any:
    """What the reference points at, or None."""
    if reference == "#":
        return schema
    if not reference.startswith("#/"):
        return anchors.get(reference[1:]) if reference.startswith("#") else None
    found: Any = schema
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and len(name) < 6:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def _circle(beside: Mapping[int, list[int]], names: Mapping[int, str]) -> Flaw | None:
    """Take away, again and again, what leads nowhere else; what stays leads back to itself."""
    before: dict[int, list[int]] = {}
    open_ways: dict[int, int] = {}
    for here, targets in beside.items():
        inner = [target for target in targets if target in beside]
        open_ways[here] = len(inner)
        for target in inner:
            before.setdefault(target, []).append(here)
    ended = [here for here, count in open_ways.items() if not count]
    while ended:
        here = ended.pop()
        del open_ways[here]
        for origin in before.get(here, ()):
            open_ways[origin] -= 1
            if not open_ways[origin]:
                ended.append(origin)
    if not open_ways:
        return None
    return Flaw(names[next(iter(open_ways))], "the schema leads back to itself without an end")


class _Rule(NamedTuple):
    fits: Callable[[Any], bool]
    expected: str


def _is_type(value: Any) -> bool:
    words = value if isinstance(value, list) else [value]
    return bool(words) and all(isinstance(word, str) and word in TYPES for word in words)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_address(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(urlsplit(value))
    except ValueError:
        return False


def _is_schema(value: Any) -> bool:
    return isinstance(value, Mapping | bool)


_OBJECT: Final = _Rule(lambda value: isinstance(value, Mapping), "an object of schemas")
_SCHEMA: Final = _Rule(_is_schema, "a schema: an object, true or false")
_SCHEMAS: Final = _Rule(
    lambda value: isinstance(value, list) and bool(value), "a list of one schema or more"
)
_COUNT: Final = _Rule(_is_count, "a whole number from 0 up")
_NUMBER: Final = _Rule(_is_number, "a number")
_TEXT: Final = _Rule(lambda value: isinstance(value, str), "a text")

_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_ONE, _SCHEMA),
    **dict.fromkeys(_LISTED, _SCHEMAS),
    **dict.fromkeys(_NAMED, _OBJECT),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("$ref", "$dynamicRef", "pattern", "format", "title", "description"), _TEXT),
    **dict.fromkeys(("$schema", "$comment", *_ANCHORS), _TEXT),
    "$id": _Rule(_is_address, "an address"),
    "items": _Rule(lambda value: isinstance(value, list) or _is_schema(value), "a schema"),
    "type": _Rule(_is_type, f"one or more of {', '.join(sorted(TYPES))}"),
    "required": _Rule(_is_texts, "a list of texts"),
    "enum": _Rule(lambda value: isinstance(value, list) and bool(value), "a list of values"),
    "multipleOf": _Rule(lambda value: _is_number(value) and value > 0, "a number over 0"),
}
