"""Benchmarks that come as archives of their own form: MMLU's tables, and GPQA behind a password."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from podium.errors import ConfigError
from podium.tasks.own import reading
from podium.tasks.sources import Row

MMLU_COLUMNS: Final = ("question", "A", "B", "C", "D", "answer")

GPQA_PASSWORD: Final = b"deserted-untie-orchid"
"""As its authors print it beside the archive: it keeps the questions out of what crawlers read,
and from nobody else."""

GPQA_TABLE: Final = "gpqa_diamond.csv"


def mmlu_rows(path: Path) -> Iterator[Row]:
    """MMLU's own tables, zipped or not: one CSV for each subject, without a header."""
    if path.is_dir():
        tables = ((file.relative_to(path).as_posix(), file) for file in sorted(path.rglob("*.csv")))
        for name, file in tables:
            with reading(file) as opened:
                yield from _mmlu_table(name, csv.reader(opened))
        return
    with _opened(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".csv"):
                with archive.open(name) as raw:
                    text = io.TextIOWrapper(raw, "utf-8", newline="")
                    yield from _mmlu_table(name, csv.reader(text))


def _mmlu_table(name: str, rows: Iterable[Sequence[str]]) -> Iterator[Row]:
    place = PurePosixPath(name)
    split = place.parent.name
    subject = place.stem.removesuffix(f"_{split}")
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(MMLU_COLUMNS):
            raise ConfigError(
                f"{name}, row {number}: expected {', '.join(MMLU_COLUMNS)}, and found "
                f"{len(cells)} cells"
            )
        question, *choices, answer = cells
        data = {
            "question": question,
            "choices": choices,
            "answer": answer,
            "subject": subject,
            "split": split,
        }
        yield Row(f"{name}, row {number}", number, data)


def gpqa_rows(path: Path) -> Iterator[Row]:
    """GPQA-Diamond, zipped with the authors' password: their own archive of tables, or one file
    of JSON lines."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file, and it is a directory")
    with _opened(path) as archive:
        names = archive.namelist()
        table = next((name for name in names if name.endswith(GPQA_TABLE)), None)
        if table is None and len(names) != 1:
            raise ConfigError(f"{path}: expected {GPQA_TABLE} in it, or one file of JSON lines")
        name = table or names[0]
        try:
            text = archive.read(name, GPQA_PASSWORD).decode("utf-8")
        except (RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot open {name!r} in it: {error}") from error
    found = csv.DictReader(io.StringIO(text)) if table else _json_objects(path, text)
    for number, data in enumerate(found, start=1):
        yield Row(f"{path}, row {number}", number, data)


def _json_objects(path: Path, text: str) -> Iterator[Mapping[str, Any]]:
    # Split by hand: the questions hold other characters that count as ends of lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, row {number}: not valid JSON: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise ConfigError(f"{path}: not a zip file: {error}") from error
