"""A user's own tasks: JSON lines or CSV with the columns question, answer, grader and, where
wanted, id, kind and difficulty. The suites that Podium writes are files of the same form.

Every line is checked before the first is used; what is wrong is told with the file and the line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.reading import Entry, Reading, read
from podium.tasks.record import TaskRecord

ENDINGS: Final = (".jsonl", ".csv")
_LONGEST_CELL: Final = 2**24


class Line(NamedTuple):
    """What stands in one line of a file."""

    number: int
    data: object


def load_suite(path: Path, judge: Worker | None = None) -> list[Task]:
    """The tasks in the file; a line that is none is an error."""
    return list(read_own(path, judge).whole().tasks)


def read_records(path: Path) -> list[TaskRecord]:
    """The tasks in the file as data; each is known to become a task."""
    return list(read_own(path).whole().records)


def read_own(path: Path, judge: Worker | None = None) -> Reading:
    """The tasks in the file, and the lines of it that are none."""
    return read(_entries(path), str(path), judge)


def _entries(path: Path) -> Iterator[Entry]:
    for number, data in _lines(path):
        make = partial(TaskRecord.from_json, data, f"{path.stem}/{number}")
        yield Entry(f"{path}, line {number}", make)


def _lines(path: Path) -> Iterator[Line]:
    if path.suffix not in ENDINGS:
        raise ConfigError(f"{path}: tasks are read from {' or '.join(ENDINGS)} files")
    with reading(path) as file:
        yield from _csv_lines(path, file) if path.suffix == ".csv" else json_lines(path, file)


@contextmanager
def reading(path: Path) -> Iterator[TextIO]:
    """The file, opened as text; what goes wrong with it is told as a person would."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason}") from error


def json_lines(path: Path, file: Iterator[str]) -> Iterator[Line]:
    """Each line that is not blank, as what it says."""
    for number, text in enumerate(file, start=1):
        if text.strip():
            try:
                yield Line(number, json.loads(text))
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: not valid JSON: {error}") from error


def _csv_lines(path: Path, file: Iterator[str]) -> Iterator[Line]:
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(file, strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        for cells in filter(None, reader):
            if len(cells) > len(columns):
                raise ConfigError(f"{path}, line {reader.line_num}: more cells than columns")
            yield Line(reader.line_num, dict(zip(columns, cells, strict=False)))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: not valid CSV: {error}") from error
