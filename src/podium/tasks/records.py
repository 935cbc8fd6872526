"""Files of tasks: JSON lines or CSV with a question, an answer and a grader by name.

    {"id": "capital", "question": "What is the capital of Japan?", "answer": "Tokyo",
     "grader": "exact"}
    {"question": "How long is it?", "answer": "12.5",
     "grader": {"name": "number", "tolerance": 0.01}, "kind": "lengths", "difficulty": "easy"}

An evaluation skips lines that are no tasks and reports them; training stops.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from podium._util.files import write_atomically
from podium.core.errors import ConfigError, PodiumError, StoreError
from podium.core.request import assistant, user
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.answers import nearest
from podium.tasks.graders import GRADERS, JUDGE, make_grader

KEYS: Final = ("id", "kind", "difficulty", "history", "question", "answer", "grader")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task as data; `parameters` are the grader's own.

    `history` is the conversation before it: the user's and the assistant's turns in alternation.
    """

    id: str
    question: str
    answer: str
    grader: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    difficulty: str | None = None
    history: tuple[str, ...] = ()

    def to_task(self, judge: Worker | None = None) -> Task:
        """Make the task; `judge` is the worker of a model grader."""
        if not self.question.strip():
            raise ConfigError("the question is missing")
        deciding = judge if self.grader == JUDGE else None
        return Task(
            id=self.id,
            question=self.question,
            grader=make_grader(
                self.grader, self.answer, self.parameters, question=self.question, judge=deciding
            ),
            history=tuple(
                (assistant if turn % 2 else user)(text) for turn, text in enumerate(self.history)
            ),
            kind=self.kind,
            difficulty=self.difficulty,
            answer=self.answer,
            judge=None if deciding is None else deciding.profile.name,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            **({"difficulty": self.difficulty} if self.difficulty is not None else {}),
            **({"history": list(self.history)} if self.history else {}),
            "question": self.question,
            "answer": self.answer,
            "grader": {"name": self.grader, **self.parameters} if self.parameters else self.grader,
        }

    @classmethod
    def from_json(cls, data: object, unnamed: str) -> TaskRecord:
        """Read a record from JSON; `unnamed` is its default id."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"expected an object with {', '.join(KEYS)}")
        for key in data:
            if key not in KEYS:
                raise ConfigError(f"unknown key {key!r}; {nearest(str(key), KEYS)}")
        name, parameters = _grader_in(data)
        return cls(
            id=_text(data, "id").strip() or unnamed,
            question=_text(data, "question"),
            answer=_text(data, "answer"),
            grader=name,
            parameters=parameters,
            kind=_text(data, "kind"),
            difficulty=_text(data, "difficulty").strip() or None,
            history=_history_in(data),
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


def _history_in(data: Mapping[str, Any]) -> tuple[str, ...]:
    history = data.get("history") or []
    if not isinstance(history, list) or not all(isinstance(turn, str) for turn in history):
        raise ConfigError("history: expected a list of texts, the user's turn first")
    if len(history) % 2:
        raise ConfigError("history: expected an assistant's turn after each of the user's")
    return tuple(history)


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the grader begins as an object, and is no JSON: {error}") from error


def _text(data: Mapping[str, Any], key: str) -> str:
    """Return the text of a key, also of a number; empty if it is missing."""
    value = data.get(key)
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected a text, not {type(value).__name__}")
    return value


def save_suite(path: Path, records: Iterable[TaskRecord]) -> None:
    lines = [json.dumps(record.to_json(), ensure_ascii=False) for record in records]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


class TaskEntry(NamedTuple):
    """The place of a record, and a function that makes it; None is not part of the suite."""

    where: str
    make: Callable[[], TaskRecord | None]


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that is no task, and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LoadedTasks:
    """Tasks, the skipped lines, and the records that the tasks were made of, if any."""

    tasks: tuple[Task, ...]
    skipped: tuple[SkippedLine, ...] = ()
    records: tuple[TaskRecord, ...] = ()

    def require_complete(self) -> LoadedTasks:
        """Return itself; ConfigError if a line was skipped."""
        if self.skipped:
            raise ConfigError(str(self.skipped[0]))
        return self


def build_tasks(
    entries: Iterable[TaskEntry], source: str, judge: Worker | None = None
) -> LoadedTasks:
    """Make a task of every entry; ConfigError if there is none."""
    records: dict[str, TaskRecord] = {}
    tasks = []
    skipped = []
    for where, make in entries:
        try:
            record = make()
            if record is None:
                continue
            if record.id in records:
                raise ConfigError(f"the id {record.id!r} was already used; give each task its own")
            tasks.append(record.to_task(judge))
            records[record.id] = record
        except PodiumError as error:
            skipped.append(SkippedLine(where, str(error)))
    if skipped and not records:
        raise ConfigError(f"{skipped[0]}; none of the {len(skipped)} in {source} is a task")
    if not records:
        raise ConfigError(f"{source}: there are no tasks in it")
    return LoadedTasks(tuple(tasks), tuple(skipped), tuple(records.values()))


ENDINGS: Final = (".jsonl", ".csv")
_LONGEST_CELL: Final = 2**24


class FileLine(NamedTuple):
    """A line of a file."""

    number: int
    data: object


def read_records(path: Path) -> list[TaskRecord]:
    """Read the tasks of a file as records."""
    return list(read_task_file(path).require_complete().records)


def read_task_file(path: Path, judge: Worker | None = None) -> LoadedTasks:
    """Read the tasks of a file, and the lines that are no tasks."""
    return build_tasks(_entries(path), str(path), judge)


def _entries(path: Path) -> Iterator[TaskEntry]:
    for number, data in _lines(path):
        make = partial(TaskRecord.from_json, data, f"{path.stem}/{number}")
        yield TaskEntry(f"{path}, line {number}", make)


def _lines(path: Path) -> Iterator[FileLine]:
    if path.suffix not in ENDINGS:
        raise ConfigError(f"{path}: tasks are read from {' or '.join(ENDINGS)} files")
    with open_text(path) as file:
        yield from _csv_lines(path, file) if path.suffix == ".csv" else json_lines(path, file)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file; ConfigError explains a failure."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason}") from error


def json_lines(path: Path, file: Iterator[str]) -> Iterator[FileLine]:
    """Yield the JSON of each line that is not blank."""
    for number, text in enumerate(file, start=1):
        if text.strip():
            try:
                yield FileLine(number, json.loads(text))
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: not valid JSON: {error}") from error


def _csv_lines(path: Path, file: Iterator[str]) -> Iterator[FileLine]:
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(file, strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        for cells in filter(None, reader):
            if len(cells) > len(columns):
                raise ConfigError(f"{path}, line {reader.line_num}: more cells than columns")
            yield FileLine(reader.line_num, dict(zip(columns, cells, strict=False)))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: not valid CSV: {error}") from error
