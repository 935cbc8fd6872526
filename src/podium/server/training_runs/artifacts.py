"""Files that others write meanwhile: read within bounds, whole lines only, and on from where one
was.

A cursor says how far a file was read, and what stood just before that place. Where something else
stands there now, the file was written anew, and is read anew.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

MOST_BYTES: Final = 32_000_000
"""The most that is read of a file at once; of a larger one, the end."""

MOST_JSON_BYTES: Final = 8_000_000
WITNESS: Final = 64
"""How many bytes before a place are remembered, to know it by."""

_CURSOR: Final = re.compile(r"([0-9]{1,15})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class FileTail:
    """What was read. `is_anew` says that it is not a continuation, and `skipped` how many bytes
    before it were not read. `modified` is when the file was last written, None where there is no
    such file."""

    lines: tuple[bytes, ...]
    cursor: str
    is_anew: bool
    skipped: int
    modified: float | None


NO_FILE: Final = FileTail((), "", True, 0, None)


def read_tail(path: Path, cursor: str | None = None, *, most: int = MOST_BYTES) -> FileTail:
    """The whole lines after the cursor; without one, or where it does not fit any more, all of
    them; but never more than fit into `most` bytes, the last ones. A line that is still being
    written is left for the next time."""
    file = open_regular_file(path)
    if file is None:
        return NO_FILE
    with file:
        status = os.fstat(file.fileno())
        position = _position(file, cursor, status.st_size)
        start = position or 0
        if status.st_size - start > most:
            start = _next_line(file, status.st_size - most)
        file.seek(start)
        data = file.read(most)
        end = data.rfind(b"\n") + 1
        after = start + (len(data) if len(data) == most and not end else end)
        return FileTail(
            tuple(line for line in data[:end].split(b"\n") if line.strip()),
            _cursor(file, after),
            position is None,
            start - (position or 0),
            status.st_mtime,
        )


def count_lines(path: Path, most: int) -> int:
    """Count the whole lines in the first `most` bytes."""
    file = open_regular_file(path)
    if file is None:
        return 0
    with file:
        return sum(file.read(1_000_000).count(b"\n") for _ in range(0, most, 1_000_000))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none, or none that can be read: whoever
    writes it may not be done."""
    file = open_regular_file(path)
    if file is None:
        return {}
    with file:
        data = file.read(MOST_JSON_BYTES + 1)
    try:
        document = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def open_regular_file(path: Path) -> BinaryIO | None:
    """The file, open for reading; None where it is not there, may not be read, or is no plain
    file: a link could lead anywhere, and a pipe would be waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def _position(file: BinaryIO, cursor: str | None, size: int) -> int | None:
    """Return the cursor's position; None if the file was replaced."""
    match = _CURSOR.fullmatch(cursor or "")
    if match is None:
        return None
    position = int(match[1])
    return position if position <= size and cursor == _cursor(file, position) else None


def _cursor(file: BinaryIO, position: int) -> str:
    start = max(0, position - WITNESS)
    file.seek(start)
    return f"{position}-{zlib.crc32(file.read(position - start)):08x}"


def _next_line(file: BinaryIO, position: int) -> int:
    file.seek(position)
    file.readline(MOST_BYTES)
    return file.tell()


METRICS: Final = "metrics.jsonl"
METRICS_SUFFIX: Final = ".jsonl"
BEGINNING: Final = b'{"step"'
"""How a file of metrics begins."""

SUMMARY: Final = "summary.json"
MANIFEST: Final = "evaluation.json"
REPORT: Final = "report.html"

DEEPEST: Final = 3
MOST_FOUND: Final = 500
MOST_ENTRIES: Final = 5_000
"""How far below a directory is looked, how much is shown, and how many files of one directory are
looked at; a directory named by mistake must not keep the server busy."""

MOST_GLANCES: Final = 200
"""Files of one directory that are opened to see whether they are metrics."""

Kind = Literal["training", "evaluation", "report"]

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something to show. `path` is its directory, or its file of metrics; `report` the page that
    was written of it, if one was."""

    name: str
    title: str
    kind: Kind
    path: Path
    report: Path | None = None

    @property
    def metrics(self) -> Path:
        """The metrics of a training."""
        return self.path if self.path.suffix == METRICS_SUFFIX else self.path / METRICS


@dataclass(frozen=True, slots=True)
class ArtifactDirectory:
    """A directory that the configuration names, what was found there, and what is wrong with it."""

    path: Path
    exhibits: tuple[Artifact, ...]
    problem: str = ""


def find_directories(directories: Sequence[str]) -> list[ArtifactDirectory]:
    """All that there is to show, each under a name of its own."""
    taken: set[str] = set()
    return [_looked(Path(directory), taken) for directory in directories]


def find_artifact(directories: Sequence[str], name: str) -> Artifact | None:
    """Return the artifact of that name."""
    exhibits = (exhibit for named in find_directories(directories) for exhibit in named.exhibits)
    return next((exhibit for exhibit in exhibits if exhibit.name == name), None)


def _looked(root: Path, taken: set[str]) -> ArtifactDirectory:
    try:
        if root.is_dir():
            found = list(_within(root, root.name, DEEPEST))[:MOST_FOUND]
        elif root.is_file():
            found = list(_of_file(root, root.stem))
        else:
            return ArtifactDirectory(root, (), "there is no such directory")
    except OSError as error:
        return ArtifactDirectory(root, (), f"it cannot be read: {error.strerror}")
    return ArtifactDirectory(root, tuple(_under_own_name(item, taken) for item in found))


def _under_own_name(exhibit: Artifact, taken: set[str]) -> Artifact:
    plain = ".".join(_ODD.sub("-", part).strip("-") or "-" for part in exhibit.title.split("/"))
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return replace(exhibit, name=name)


def _within(directory: Path, title: str, depth: int) -> Iterator[Artifact]:
    files, directories = _listed(directory)
    kind = _kind(directory, files)
    if kind is not None:
        yield Artifact("", title, kind, directory, _report(directory, files, directories))
        return
    lines = [name for name in files if name.endswith(METRICS_SUFFIX)]
    for name in lines[:MOST_GLANCES]:
        yield from _of_file(directory / name, f"{title}/{Path(name).stem}")
    if depth:
        for name in directories:
            yield from _within_readable(directory / name, f"{title}/{name}", depth - 1)


def _within_readable(directory: Path, title: str, depth: int) -> Iterator[Artifact]:
    try:
        yield from _within(directory, title, depth)
    except OSError:  # what cannot be read, or has just gone, must not hide the rest
        return


def _listed(directory: Path) -> tuple[list[str], list[str]]:
    """The names of the files and of the directories there, in order; links are neither."""
    files, directories = [], []
    with os.scandir(directory) as entries:
        for _, entry in zip(range(MOST_ENTRIES), entries, strict=False):
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                directories.append(entry.name)
    return sorted(files), sorted(directories)


def _kind(directory: Path, files: Sequence[str]) -> Kind | None:
    if MANIFEST in files:
        return "evaluation"
    if METRICS in files:
        return "training"
    if SUMMARY in files:
        summary = read_json(directory / SUMMARY)
        if "rows" in summary:
            return "evaluation"
        if "train_minutes" in summary:
            return "training"
    return "report" if REPORT in files else None


def _report(directory: Path, files: Sequence[str], directories: Sequence[str]) -> Path | None:
    if REPORT in files:
        return directory / REPORT
    beside = directory / "report"
    if beside.name in directories and REPORT in _listed(beside)[0]:
        return beside / REPORT
    return None


def _of_file(path: Path, title: str) -> Iterator[Artifact]:
    """A file of metrics that lies by itself."""
    file = open_regular_file(path) if path.suffix == METRICS_SUFFIX else None
    if file is None:
        return
    with file:
        is_metrics = file.read(len(BEGINNING)) == BEGINNING
    if is_metrics:
        yield Artifact("", title, "training", path)
