"""Structured output: whether a schema is one, and whether a text is JSON that fits it.

The form of a schema is checked in `schemas` first. The rules of JSON Schema are the package
jsonschema's, imported when a schema is first met. Nothing is looked up outside a schema. Its
patterns are anybody's, so they are searched for as `patterns` does, in bounded time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from podium.core.errors import UsageError
from podium.core.json_schema import flaw
from podium.core.patterns import Patience, PatienceLost, compiled, nobody_warned

_REFERENCES: Final = ("$ref", "$dynamicRef")
_WITH_PATTERNS: Final = ("pattern", "patternProperties")

LONGEST_REMEMBERED: Final = 50_000
"""Characters of a schema that is checked only once."""

MOST_STEPS: Final = 4_000_000
"""Of one check of a value, apart from its patterns: a second or two."""

_STEPS_OF_A_RULE: Final = 10
_STEPS_OF_A_REFERENCE: Final = 200
_STEPS_OF_AN_ENTRY: Final = 2
_STEPS_OF_AN_ALTERNATIVE: Final = 10
"""What a rule costs: one that looks something up costs more than others, and all cost more the more
entries there are in what they say and in what they are held against."""

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")

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
        with nobody_warned():
            _form(schema).check_schema(schema)
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
    """Whether a value fits the sound schema; one that takes too long to be checked does not."""
    try:
        with _patiently():
            return bool(_checking_validator(schema).is_valid(value))
    except PatienceLost:
        return False


def misfit(text: str, schema: Mapping[str, Any]) -> str | None:
    """What keeps the text from being JSON that fits the sound schema; None where nothing does. It
    may quote the text."""
    found = _misfit(text, schema)
    return found.said if found is not None else None


def misfit_unquoted(text: str, schema: Mapping[str, Any]) -> str | None:
    """As `misfit`, for readers who must not have the text: it names the place and the rule, and
    repeats nothing."""
    found = _misfit(text, schema)
    return found.unquoted if found is not None else None


class _Misfit(NamedTuple):
    said: str
    unquoted: str


def _misfit(text: str, schema: Mapping[str, Any]) -> _Misfit | None:
    from jsonschema.exceptions import best_match

    try:
        value = json.loads(text, parse_constant=_no_json)
        with _patiently():
            error = best_match(_checking_validator(schema).iter_errors(value))
    except ValueError as problem:
        return _in_both(f"it is not JSON: {problem}")  # which tells where, and no more
    except RecursionError:
        return _in_both("it is nested too deep, or its schema refers to itself without end")
    except PatienceLost:
        return _in_both(
            "it takes too long to be held against the schema and its patterns; say it shorter"
        )
    if error is None:
        return None
    of_schema = set(error.absolute_schema_path)
    known = [
        part if isinstance(part, int) or part in of_schema else "…" for part in error.absolute_path
    ]
    return _Misfit(
        f"{_place(error.absolute_path)} {_cut(error.message)}",
        f"{_place(known)} it breaks the rule {error.validator or 'false'!r} of the schema",
    )


def _in_both(problem: str) -> _Misfit:
    return _Misfit(problem, problem)


class _Allowance(NamedTuple):
    """What one check of a value may take: steps of patterns, and of everything else."""

    patterns: Patience
    keywords: Patience


_ALLOWED: Final = ContextVar[_Allowance]("_ALLOWED")


@contextmanager
def _patiently() -> Iterator[None]:
    """A block in which one value is checked. A schema that refers to itself twice in each of thirty
    places is short, and would be gone through a thousand million times."""
    before = _ALLOWED.set(_Allowance(Patience(), Patience(MOST_STEPS)))
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def _form(schema: Mapping[str, Any]) -> Any:
    """The dialect of JSON Schema that the schema is written in."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, Draft202012Validator)


def _checking_validator(schema: Mapping[str, Any]) -> Any:
    """A validator that looks nothing up outside the schema, and loses its patience."""
    from referencing import Registry

    has_patterns = any(keyword in _WITH_PATTERNS for keyword, _ in _keywords(schema))
    return _checking(_form(schema), has_patterns)(schema, registry=Registry())


@cache
def _checking(form: Any, has_patterns: bool) -> Any:
    """The dialect with every rule counted, and with our own for patterns where there are any."""
    from jsonschema.validators import extend

    rules = {**form.VALIDATORS, **(_pattern_rules() if has_patterns else {})}
    return extend(form, {keyword: _counted(keyword, rule) for keyword, rule in rules.items()})


def _counted(keyword: str, rule: Any) -> Any:
    usual = _STEPS_OF_A_REFERENCE if keyword in _REFERENCES else _STEPS_OF_A_RULE
    each = _STEPS_OF_AN_ALTERNATIVE if keyword in _ALTERNATIVES else _STEPS_OF_AN_ENTRY

    def counted(validator: Any, said: Any, value: Any, schema: Any) -> Any:
        steps = usual + each * _size(said) + _size(value)
        if keyword == "uniqueItems" and isinstance(value, list) and not _can_be_sorted(value):
            steps += 3 * len(value) ** 2  # each is compared with all before it
        _ALLOWED.get().keywords.take(steps)
        return rule(validator, said, value, schema)

    return counted


def _can_be_sorted(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values) or all(
        isinstance(each, int | float) for each in values
    )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _require_checkable(patterns: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    for pattern in patterns:
        compiled(pattern)
    if any(keyword == "unevaluatedProperties" for keyword, _ in _keywords(schema)):
        raise UsageError(
            "the schema has both patternProperties and unevaluatedProperties, which are not "
            "checked together; use additionalProperties"
        )


def _pattern_rules() -> dict[str, Any]:
    """The rules of JSON Schema that search for patterns, as jsonschema takes them. What they do
    together is within the patience of the check."""
    from jsonschema import ValidationError

    def is_in(sought: str, text: str) -> bool:
        return compiled(sought).search(text, _ALLOWED.get().patterns)

    def pattern(validator: Any, sought: str, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not is_in(sought, value):
            yield ValidationError(f"{value!r} does not match {sought!r}")

    def named(validator: Any, rules: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for sought, rule in rules.items():
                for name, inner in value.items():
                    if is_in(sought, name):
                        yield from validator.descend(inner, rule, path=name, schema_path=sought)

    def additional(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            return
        known = schema.get("properties", {})
        patterns = list(schema.get("patternProperties", {}))
        for name, inner in value.items():
            if name in known or any(is_in(sought, name) for sought in patterns):
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
