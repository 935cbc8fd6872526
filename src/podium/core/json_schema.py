"""Check JSON Schemas that clients send, and replies against them, in bounded time.

The package `jsonschema` applies the rules; nothing is fetched from outside a schema. Three guards
stand around it, because schemas are untrusted: references must not loop without consuming a value,
every rule is charged to an allowance of steps, and patterns run on RE2, which does not backtrack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from podium.core.errors import UsageError

_REFERENCES: Final = ("$ref", "$dynamicRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")

MAX_CACHED_CHARS: Final = 50_000
"""Longer schemas are checked on every use."""

MAX_STEPS: Final = 4_000_000
"""Allowance of one validation: one to two seconds."""

MAX_PATTERN_CHARS: Final = 2000
MAX_PATTERN_BYTES: Final = 1 << 19
"""Memory of one compiled pattern."""

MAX_MESSAGE_CHARS: Final = 300

_RULE_STEPS: Final = 10
_REFERENCE_STEPS: Final = 200
_ENTRY_STEPS: Final = 2
_ALTERNATIVE_STEPS: Final = 10
_SEARCH_STEPS: Final = 5
_STATES_PER_STEP: Final = 20
"""States of a pattern that RE2 visits in the time of one step, at its slowest."""

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


class InvalidSchema(UsageError):
    """Not a JSON Schema. `path` is the dotted location of the fault, empty at the top level."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"expected a JSON Schema, but {_locate(filter(None, [path]))} {reason}")
        self.path = path
        self.reason = reason


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `UsageError` unless replies can be validated against the schema in bounded time."""
    try:
        text = json.dumps(schema, default=dict, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON Schema, but it is not JSON: {error}") from error
    if len(text) <= MAX_CACHED_CHARS:
        _check_schema(text)
    else:
        _check_schema.__wrapped__(text)


@lru_cache(maxsize=256)
def _check_schema(text: str) -> None:
    """Check a schema; cached, because it costs far more than validating a reply."""
    from jsonschema.exceptions import SchemaError

    try:
        schema = json.loads(text)
        if problem := find_schema_error(schema):
            raise InvalidSchema(problem.path, problem.reason)
        _dialect(schema).check_schema(schema, format_checker=None)
        keywords = list(_keywords(schema))
        for keyword, value in keywords:
            if keyword == "pattern" and isinstance(value, str):
                compile_pattern(value)
            elif keyword == "patternProperties" and isinstance(value, Mapping):
                for pattern in value:
                    compile_pattern(pattern)
        names = {keyword for keyword, _ in keywords}
    except SchemaError as error:
        path = ".".join(str(part) for part in error.absolute_path)
        raise InvalidSchema(path, _shorten(error.message, MAX_MESSAGE_CHARS)) from error
    except RecursionError as error:
        raise UsageError("the schema is nested too deep to be read; flatten it") from error
    if {"patternProperties", "unevaluatedProperties"} <= names:
        raise UsageError(
            "the schema has both patternProperties and unevaluatedProperties, which are not "
            "checked together; use additionalProperties"
        )


def is_valid(value: object, schema: Mapping[str, Any]) -> bool:
    """True if the value fits the checked schema; False also where validation takes too long."""
    try:
        with _allowance():
            return bool(_validator(schema).is_valid(value))
    except StepsExceeded:
        return False


def find_mismatch(text: str, schema: Mapping[str, Any], *, quotes: bool = True) -> str | None:
    """Return why the text is not JSON that fits the checked schema, or None.

    Without `quotes` it is the location and the rule alone, and nothing of the text.
    """
    from jsonschema.exceptions import best_match

    try:
        value = json.loads(text, parse_constant=_reject_constant)
        with _allowance():
            error = best_match(_validator(schema).iter_errors(value))
    except ValueError as problem:
        return f"it is not JSON: {problem}"  # names the position, quotes nothing
    except RecursionError:
        return "it is nested too deep, or its schema refers to itself without end"
    except StepsExceeded:
        return "it takes too long to validate against the schema; make it shorter"
    if error is None:
        return None
    path, in_schema = list(error.absolute_path), set(error.absolute_schema_path)
    if quotes:
        return f"{_locate(path)} {_shorten(error.message, MAX_MESSAGE_CHARS)}"
    known = [part if isinstance(part, int) or part in in_schema else "…" for part in path]
    return f"{_locate(known)} it breaks the rule {error.validator or 'false'!r} of the schema"


# Validation within an allowance of steps


class StepsExceeded(Exception):
    """A validation used up its allowance of steps."""


class _Steps:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise StepsExceeded


_STEPS: Final = ContextVar[_Steps]("_STEPS")


@contextmanager
def _allowance() -> Iterator[None]:
    """Bound one validation.

    A short schema that refers to itself twice on each of thirty levels takes a billion steps.
    """
    before = _STEPS.set(_Steps(MAX_STEPS))
    try:
        yield
    finally:
        _STEPS.reset(before)


def _dialect(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, Draft202012Validator)


def _validator(schema: Mapping[str, Any]) -> Any:
    """Return a validator that fetches nothing and counts its steps."""
    from referencing import Registry

    return _counting_dialect(_dialect(schema))(schema, registry=Registry())


@cache
def _counting_dialect(dialect: Any) -> Any:
    """Return the dialect with every rule counted, and with patterns on RE2."""
    from jsonschema.validators import extend

    rules = {**dialect.VALIDATORS, **_pattern_rules()}
    return extend(
        dialect, {keyword: _count_steps(keyword, rule) for keyword, rule in rules.items()}
    )


def _count_steps(keyword: str, rule: Any) -> Any:
    base = _REFERENCE_STEPS if keyword in _REFERENCES else _RULE_STEPS
    per_entry = _ALTERNATIVE_STEPS if keyword in _ALTERNATIVES else _ENTRY_STEPS

    def apply_rule(validator: Any, argument: Any, value: Any, schema: Any) -> Any:
        steps = base + per_entry * _size(argument) + _size(value)
        if keyword == "uniqueItems" and isinstance(value, list) and not _is_sortable(value):
            steps += 3 * len(value) ** 2  # each is compared with all before it
        _STEPS.get().take(steps)
        return rule(validator, argument, value, schema)

    return apply_rule


def _is_sortable(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values) or all(
        isinstance(value, int | float) for value in values
    )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern with RE2; raise `UsageError` where RE2 cannot."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise re2.error(f"it is longer than {MAX_PATTERN_CHARS} characters")
        # JSON Schema patterns are ECMA's, whose \u00e9 RE2 writes as \x{00e9}.
        return re2.compile(re.sub(r"\\u([0-9A-Fa-f]{4})", r"\\x{\1}", pattern), options=options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise UsageError(
            f"the pattern {pattern[:80]!r} is not supported: {said}; write it as RE2 takes it, "
            f"without lookaround and backreferences"
        ) from error


def matches(pattern: str, text: str) -> bool:
    """True if the pattern occurs in the text; charged to the current allowance."""
    compiled = compile_pattern(pattern)
    states = compiled.programsize * len(text)
    _STEPS.get().take(_SEARCH_STEPS + states // _STATES_PER_STEP)
    return compiled.search(text.encode("utf-8", "replace").decode()) is not None


def _pattern_rules() -> dict[str, Any]:
    """Return the rules of JSON Schema that search for patterns."""
    from jsonschema import ValidationError

    def pattern(validator: Any, sought: str, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not matches(sought, value):
            yield ValidationError(f"{value!r} does not match {sought!r}")

    def pattern_properties(validator: Any, rules: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for sought, rule in rules.items():
                for name, inner in value.items():
                    if matches(sought, name):
                        yield from validator.descend(inner, rule, path=name, schema_path=sought)

    def additional_properties(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            return
        known = schema.get("properties", {})
        patterns = list(schema.get("patternProperties", {}))
        for name, inner in value.items():
            if name in known or any(matches(sought, name) for sought in patterns):
                continue
            if rule is False:
                yield ValidationError(f"Additional properties are not allowed ({name!r} is one)")
            else:
                yield from validator.descend(inner, rule, path=name)

    return {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }


def _keywords(schema: object) -> Iterator[tuple[str, object]]:
    """Yield every key anywhere in the schema with its value, examples included."""
    if isinstance(schema, Mapping):
        for keyword, value in schema.items():
            yield keyword, value
            yield from _keywords(value)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _keywords(inner)


# The form of a schema

TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

_SINGLE: Final = frozenset(
    {"additionalProperties", "additionalItems", "not", "if", "then", "else", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems", "items"}
)
_LISTED: Final = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_IN_PLACE: Final = frozenset({"anyOf", "allOf", "oneOf", "not", "if", "then", "else"})
"""Keywords whose schemas apply to the same value, not to a part of it."""


class SchemaProblem(NamedTuple):
    """A fault in a schema, and its dotted location."""

    path: str
    reason: str


class _Subschema(NamedTuple):
    path: str
    value: Any
    in_place: bool = False


def find_schema_error(schema: Mapping[str, Any]) -> SchemaProblem | None:
    """Return the first fault in the schema's form, in linear time.

    Checks the keywords that providers and validators read, that references stay inside the schema,
    and that none leads back to itself without consuming a value. Unknown keywords are allowed.
    """
    leads_to: dict[int, list[int]] = {}
    paths: dict[int, str] = {}
    anchors = _anchors(schema)
    has_reference, inner_id = False, ""
    pending = [_Subschema("", schema)]
    while pending:
        path, here, _ = pending.pop()
        if isinstance(here, bool):
            continue
        if not isinstance(here, Mapping):
            return SchemaProblem(path, "expected a schema: an object, true or false")
        if id(here) in paths:
            continue
        paths[id(here)] = path
        targets = leads_to.setdefault(id(here), [])
        for keyword, value in here.items():
            rule = _RULES.get(keyword)
            if rule is not None and not rule.accepts(value):
                return SchemaProblem(_join(path, keyword), f"expected {rule.expected}")
            for inner in _subschemas(path, keyword, value):
                pending.append(inner)
                if inner.in_place:
                    targets.append(id(inner.value))
            if keyword == "$id" and here is not schema:
                inner_id = _join(path, keyword)
            if keyword in _REFERENCES:
                has_reference = True
                target = _resolve(schema, anchors, value)
                if not isinstance(target, Mapping | bool):
                    return SchemaProblem(
                        _join(path, keyword),
                        f"the schema refers to {_shorten(value, 40)!r}, which is not in it; put it "
                        f"into $defs: nothing is fetched",
                    )
                pending.append(_Subschema(path, target))
                targets.append(id(target))
    if has_reference and inner_id:
        return SchemaProblem(inner_id, "an $id below the top changes references; leave it out")
    return _find_loop(leads_to, paths)


def _anchors(schema: Mapping[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    pending: list[Any] = [schema]
    while pending:
        here = pending.pop()
        if isinstance(here, Mapping):
            for keyword in _ANCHORS:
                if isinstance(name := here.get(keyword), str):
                    named[name] = here
            pending += here.values()
        elif isinstance(here, list):
            pending += here
    return named


def _subschemas(path: str, keyword: str, value: Any) -> Iterator[_Subschema]:
    here = _join(path, keyword)
    in_place = keyword in _IN_PLACE
    if keyword in _NAMED:
        yield from (_Subschema(_join(here, name), inner) for name, inner in value.items())
    elif keyword in _LISTED or (keyword == "items" and isinstance(value, list)):
        for index, inner in enumerate(value):
            yield _Subschema(f"{here}.{index}", inner, in_place)
    elif keyword in _SINGLE:
        yield _Subschema(here, value, in_place)


def _resolve(schema: Mapping[str, Any], anchors: Mapping[str, Any], reference: str) -> Any:
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


def _find_loop(leads_to: Mapping[int, list[int]], paths: Mapping[int, str]) -> SchemaProblem | None:
    """Remove schemas that lead nowhere until none is left; what stays is a loop."""
    before: dict[int, list[int]] = {}
    open_count: dict[int, int] = {}
    for here, targets in leads_to.items():
        inner = [target for target in targets if target in leads_to]
        open_count[here] = len(inner)
        for target in inner:
            before.setdefault(target, []).append(here)
    ended = [here for here, count in open_count.items() if not count]
    while ended:
        here = ended.pop()
        del open_count[here]
        for origin in before.get(here, ()):
            open_count[origin] -= 1
            if not open_count[origin]:
                ended.append(origin)
    if not open_count:
        return None
    return SchemaProblem(paths[next(iter(open_count))], "the schema refers to itself without end")


class _Rule(NamedTuple):
    accepts: Callable[[Any], bool]
    expected: str


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_uri(value: Any) -> bool:
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
_STRING: Final = _Rule(lambda value: isinstance(value, str), "a string")

_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_SINGLE, _SCHEMA),
    **dict.fromkeys(_LISTED, _SCHEMAS),
    **dict.fromkeys(_NAMED, _OBJECT),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("$ref", "$dynamicRef", "pattern", "format", "title", "description"), _STRING),
    **dict.fromkeys(("$schema", "$comment", *_ANCHORS), _STRING),
    "$id": _Rule(_is_uri, "a URI"),
    "items": _Rule(lambda value: isinstance(value, list) or _is_schema(value), "a schema"),
    "type": _Rule(_is_type, f"one or more of {', '.join(sorted(TYPES))}"),
    "required": _Rule(_is_string_list, "a list of strings"),
    "enum": _Rule(lambda value: isinstance(value, list) and bool(value), "a list of values"),
    "multipleOf": _Rule(lambda value: _is_number(value) and value > 0, "a number over 0"),
}


def _join(path: str, name: str) -> str:
    return f"{path}.{_shorten(name, 40)}" if path else _shorten(name, 40)


def _locate(path: Iterable[object]) -> str:
    where = ".".join(map(str, path))
    return f"at {where}:" if where else "at the top:"


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
