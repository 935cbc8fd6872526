"""The grader of structured answers: JSON that fits a schema and, where one is given, a value."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from podium.errors import ConfigError, installing
from podium.tasks.answers import final_answer, without_fence

JSON_SCHEMA: Final = "json-schema"
"""The name of the grader."""

LONGEST_JSON: Final = 200_000
"""Characters of an answer that is still read."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that fits the schema and, where there is an answer, is the same value."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    schema: Mapping[str, Any]
    answer: str = ""
    tagged: bool = False

    def __post_init__(self) -> None:
        if importlib.util.find_spec("jsonschema") is None:
            raise ConfigError(
                f"the grader `{JSON_SCHEMA}` needs the package jsonschema, which is not "
                f"installed: {installing('eval')}"
            )
        _require_sound(self.schema)
        if self.answer.strip():
            self._require_fitting_answer()

    def _require_fitting_answer(self) -> None:
        try:
            wanted = json.loads(self.answer)
        except ValueError as error:
            raise ConfigError(f"the answer must be JSON: {error}") from error
        if not self._fits(wanted):
            raise ConfigError("the answer does not fit its own schema")

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives such JSON, in its tags, in a code fence or by itself."""
        text = final_answer(answer, tagged=self.tagged)
        if not text or len(text) > LONGEST_JSON:
            return False
        try:
            given = json.loads(without_fence(text))
            return self._fits(given) and (
                not self.answer.strip() or bool(given == json.loads(self.answer))
            )
        except (ValueError, RecursionError):
            return False

    def _fits(self, value: object) -> bool:
        return bool(_validator_of(self.schema).is_valid(value))


def _require_sound(schema: Mapping[str, Any]) -> None:
    """A schema is valid, and refers to nothing that is not in it."""
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        _validator_of(schema)
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            resolver.lookup(reference)
    except SchemaError as error:
        raise ConfigError(f"the schema is not valid: {error.message}") from error
    except Unresolvable as error:
        raise ConfigError(
            f"the schema refers to {error.ref!r}, which is not in it; nothing is fetched"
        ) from error


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _validator_of(schema: Mapping[str, Any]) -> Any:
    """A validator that looks nothing up outside the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    form = validator_for(schema, Draft202012Validator)
    form.check_schema(schema)
    return form(schema, registry=Registry())
