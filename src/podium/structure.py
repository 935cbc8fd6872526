"""Structured output: whether a schema is one, and whether a text is JSON that fits it.

The form of a schema is checked in `schemas` first. The rules of JSON Schema are the package
jsonschema's, imported when a schema is first met. Nothing is looked up outside a schema. Its
patterns are anybody's, so they are searched for as `patterns` does, in bounded time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from podium.errors import UsageError
from podium.patterns import Patience, PatienceLost, compiled, nobody_warned
from podium.schemas import flaw

_REFERENCES: Final = ("$ref", "$dynamicRef")
_WITH_PATTERNS: Final = ("pattern", "patternProperties")

LONGEST_REMEMBERED: Final = 50_000
"""Characters of a schema that is checked only once."""

LONGEST_PROBLEM: Final = 300
"""Characters of what is wrong with a text; the value at fault may be of any length."""


class UnsoundSchema(UsageError):
    """A schema that is none. `path` is where in it the fault is, with dots, and empty at the top;
    `reason` says what it is."""

    def __init__(self, path: str, reason: str) -> None:
        where = f"at {path}:" if path else "at the top:"
        super().__init__(f"expected a JSON Schema, but {where} {reason}")
        self.path = path
        self.reason = reason


def require_sound(schema: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a schema that is no schema, that refers to what is not in it, or that
    no reply can be held against in bounded time."""
    try:
        text = json.dumps(schema, default=dict, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON Schema, but it is not JSON: {error}") from error
    if len(text) <= LONGEST_REMEMBERED:
        _require_sound(text)
    else:
        _require_sound.__wrapped__(text)


@lru_cache(maxsize=256)
def _require_sound(text: str) -> None:
    """Check a schema. That takes far longer than to hold a reply against it, and programs send
    the same few schemas over and over: those that were sound are remembered."""
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        schema = json.loads(text)
        if found := flaw(schema):
            raise UnsoundSchema(found.path, found.reason)
        form, _ = _validator(schema)
        with nobody_warned():
            form.check_schema(schema)
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
        for keyword, value in _keywords(schema):
            if keyword in _REFERENCES and isinstance(value, str):
                resolver.lookup(value)
            elif keyword == "pattern" and isinstance(value, str):
                compiled(value)
            elif keyword == "patternProperties" and isinstance(value, Mapping):
                _require_checkable(value, schema)
    except SchemaError as error:
        path = ".".join(str(part) for part in error.absolute_path)
        raise UnsoundSchema(path, _cut(error.message)) from error
    except Unresolvable as error:
        raise UsageError(
            f"the schema refers to {error.ref!r}, which is not in it; put it into $defs: nothing "
            f"is fetched"
        ) from error
    except RecursionError as error:
        raise UsageError("the schema is nested too deep to be read; flatten it") from error


def fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits the sound schema; one whose patterns take too long does not."""
    try:
        return bool(_validator(schema)[1].is_valid(value))
    except PatienceLost:
        return False


def misfit(text: str, schema: Mapping[str, Any]) -> str | None:
    """What keeps the text from being JSON that fits the sound schema; None where nothing does."""
    from jsonschema.exceptions import best_match

    try:
        value = json.loads(text, parse_constant=_no_json)
        error = best_match(_validator(schema)[1].iter_errors(value))
    except ValueError as problem:
        return f"it is not JSON: {problem}"
    except RecursionError:
        return "it is nested too deep, or its schema refers to itself without end"
    except PatienceLost:
        return "it is too long for the patterns of the schema to be checked; say it shorter"
    if error is None:
        return None
    return f"{_place(error.absolute_path)} {_cut(error.message)}"


def _validator(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """The schema's dialect, and a validator that looks nothing up outside the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    form = validator_for(schema, Draft202012Validator)
    checking = form
    if any(keyword in _WITH_PATTERNS for keyword, _ in _keywords(schema)):
        checking = extend(form, _pattern_rules(Patience()))
    return form, checking(schema, registry=Registry())


def _require_checkable(patterns: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    for pattern in patterns:
        compiled(pattern)
    if any(keyword == "unevaluatedProperties" for keyword, _ in _keywords(schema)):
        raise UsageError(
            "the schema has both patternProperties and unevaluatedProperties, which are not "
            "checked together; use additionalProperties"
        )


def _pattern_rules(patience: Patience) -> dict[str, Any]:
    """The rules of JSON Schema that search for patterns, as jsonschema takes them. What they do
    together is within the patience."""
    from jsonschema import ValidationError

    def pattern(validator: Any, sought: str, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not compiled(sought).search(value, patience):
            yield ValidationError(f"{value!r} does not match {sought!r}")

    def named(validator: Any, rules: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for sought, rule in rules.items():
                for name, inner in value.items():
                    if compiled(sought).search(name, patience):
                        yield from validator.descend(inner, rule, path=name, schema_path=sought)

    def additional(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            return
        known = schema.get("properties", {})
        patterns = [compiled(sought) for sought in schema.get("patternProperties", {})]
        for name, inner in value.items():
            if name in known or any(sought.search(name, patience) for sought in patterns):
                continue
            if rule is False:
                yield ValidationError(f"Additional properties are not allowed ({name!r} is one)")
            else:
                yield from validator.descend(inner, rule, path=name)

    return {"pattern": pattern, "patternProperties": named, "additionalProperties": additional}


def _keywords(schema: object) -> Iterator[tuple[str, object]]:
    """Every keyword anywhere in the schema, and what it says. What only looks like one, in an
    example say, is among them."""
    if isinstance(schema, Mapping):
        for keyword, value in schema.items():
            yield keyword, value
            yield from _keywords(value)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _keywords(inner)


def _place(path: Any) -> str:
    """Where in a document something is, in words."""
    return f"at {'.'.join(str(part) for part in path)}:" if path else "at the top:"


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_PROBLEM else f"{message[:LONGEST_PROBLEM]}…"


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
