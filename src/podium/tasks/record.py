"""A task as it stands in a file: the question, the answer, and the grader by its name.

    {"id": "capital", "question": "What is the capital of Japan?", "answer": "Tokyo",
     "grader": "exact"}
    {"question": "How long is it?", "answer": "12.5",
     "grader": {"name": "number", "tolerance": 0.01}, "kind": "lengths", "difficulty": "easy"}

A record is data, and can be written down; the `Task` that it becomes can grade.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from podium._util.files import write_whole
from podium.core.errors import ConfigError, StoreError
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.graders import GRADERS, make_grader
from podium.tasks.judge import JUDGE

KEYS: Final = ("id", "kind", "difficulty", "question", "answer", "grader")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """What a task is made from. `parameters` are the grader's own."""

    id: str
    question: str
    answer: str
    grader: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    difficulty: str | None = None

    def to_task(self, judge: Worker | None = None) -> Task:
        """The task itself; an error says what is missing for grading it. `judge` is who decides
        where the grader is a model."""
        if not self.question.strip():
            raise ConfigError("the question is missing")
        deciding = judge if self.grader == JUDGE else None
        return Task(
            id=self.id,
            question=self.question,
            grader=make_grader(
                self.grader, self.answer, self.parameters, question=self.question, judge=deciding
            ),
            kind=self.kind,
            difficulty=self.difficulty,
            answer=self.answer,
            judge=None if deciding is None else deciding.profile.name,
        )

    def to_json(self) -> dict[str, Any]:
        """As it is written down."""
        return {
            "id": self.id,
            "kind": self.kind,
            **({"difficulty": self.difficulty} if self.difficulty is not None else {}),
            "question": self.question,
            "answer": self.answer,
            "grader": {"name": self.grader, **self.parameters} if self.parameters else self.grader,
        }

    @classmethod
    def from_json(cls, data: object, unnamed: str) -> TaskRecord:
        """As it was written down; `unnamed` is its id where it has none of its own."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"expected an object with {', '.join(KEYS)}")
        for key in data:
            if key not in KEYS:
                near = difflib.get_close_matches(str(key), KEYS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(KEYS)}"
                raise ConfigError(f"unknown key {key!r}{hint}")
        name, parameters = _grader_in(data)
        return cls(
            id=_text(data, "id").strip() or unnamed,
            question=_text(data, "question"),
            answer=_text(data, "answer"),
            grader=name,
            parameters=parameters,
            kind=_text(data, "kind"),
            difficulty=_text(data, "difficulty").strip() or None,
        )


def _grader_in(data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    described = data.get("grader")
    if isinstance(described, str) and described.lstrip().startswith("{"):
        described = _object(described)  # in a cell of a table
    if isinstance(described, str) and described.strip():
        return described.strip(), {}
    if isinstance(described, Mapping) and isinstance(described.get("name"), str):
        return described["name"], {key: value for key, value in described.items() if key != "name"}
    raise ConfigError(
        'the grader is missing: expected its name, or an object with its "name" and parameters; '
        f"there are {', '.join(GRADERS)}"
    )


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the grader begins as an object, and is no JSON: {error}") from error


def _text(data: Mapping[str, Any], key: str) -> str:
    """The text under the key, empty where there is none. A number is taken as it is written:
    answers are often numbers."""
    value = data.get(key)
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected a text, not {type(value).__name__}")
    return value


def save_suite(path: Path, records: Iterable[TaskRecord]) -> None:
    """Write a suite as JSON lines, all of it or none of it."""
    lines = [json.dumps(record.to_json(), ensure_ascii=False) for record in records]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
