"""The grader of structured answers: JSON that fits a schema and, where one is given, a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from podium.errors import ConfigError, UsageError
from podium.structure import fits, require_sound
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
        try:
            require_sound(self.schema)
        except UsageError as error:
            raise ConfigError(str(error)) from error
        if self.answer.strip():
            self._require_fitting_answer()

    def _require_fitting_answer(self) -> None:
        try:
            wanted = json.loads(self.answer)
        except ValueError as error:
            raise ConfigError(f"the answer must be JSON: {error}") from error
        if not fits(wanted, self.schema):
            raise ConfigError("the answer does not fit its own schema")

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives such JSON, in its tags, in a code fence or by itself."""
        text = final_answer(answer, tagged=self.tagged)
        if not text or len(text) > LONGEST_JSON:
            return False
        try:
            given = json.loads(without_fence(text))
            return fits(given, self.schema) and (
                not self.answer.strip() or bool(given == json.loads(self.answer))
            )
        except (ValueError, RecursionError):
            return False
