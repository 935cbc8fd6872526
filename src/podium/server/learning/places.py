"""Where trainings and evaluations are: found below the directories that the configuration names.

Each gets a name, and by that name alone it is asked for: what a client sends is looked up among
what was found, and never becomes part of a path. Links are not followed.

    trained/etudes/metrics.jsonl         a training, "trained.etudes"
    results/trials/grpo-1.jsonl          one of which only the metrics are left, "trials.grpo-1"
    measured/mine/evaluation.json        an evaluation, "measured.mine"
    report/report.html                   a page that podium eval report wrote, "report"
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from podium.server.learning.tail import opened, read_json

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
class Exhibit:
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
class Named:
    """A directory that the configuration names, what was found there, and what is wrong with it."""

    path: Path
    exhibits: tuple[Exhibit, ...]
    problem: str = ""


def look(directories: Sequence[str]) -> list[Named]:
    """All that there is to show, each under a name of its own."""
    taken: set[str] = set()
    return [_looked(Path(directory), taken) for directory in directories]


def find(directories: Sequence[str], name: str) -> Exhibit | None:
    """What goes by that name."""
    exhibits = (exhibit for named in look(directories) for exhibit in named.exhibits)
    return next((exhibit for exhibit in exhibits if exhibit.name == name), None)


def _looked(root: Path, taken: set[str]) -> Named:
    try:
        if root.is_dir():
            found = list(_within(root, root.name, DEEPEST))[:MOST_FOUND]
        elif root.is_file():
            found = list(_of_file(root, root.stem))
        else:
            return Named(root, (), "there is no such directory")
    except OSError as error:
        return Named(root, (), f"it cannot be read: {error.strerror}")
    return Named(root, tuple(_under_own_name(each, taken) for each in found))


def _under_own_name(exhibit: Exhibit, taken: set[str]) -> Exhibit:
    plain = ".".join(_ODD.sub("-", part).strip("-") or "-" for part in exhibit.title.split("/"))
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return replace(exhibit, name=name)


def _within(directory: Path, title: str, depth: int) -> Iterator[Exhibit]:
    files, directories = _listed(directory)
    kind = _kind(directory, files)
    if kind is not None:
        yield Exhibit("", title, kind, directory, _report(directory, files, directories))
        return
    lines = [name for name in files if name.endswith(METRICS_SUFFIX)]
    for name in lines[:MOST_GLANCES]:
        yield from _of_file(directory / name, f"{title}/{Path(name).stem}")
    if depth:
        for name in directories:
            yield from _within_readable(directory / name, f"{title}/{name}", depth - 1)


def _within_readable(directory: Path, title: str, depth: int) -> Iterator[Exhibit]:
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


def _of_file(path: Path, title: str) -> Iterator[Exhibit]:
    """A file of metrics that lies by itself."""
    file = opened(path) if path.suffix == METRICS_SUFFIX else None
    if file is None:
        return
    with file:
        is_metrics = file.read(len(BEGINNING)) == BEGINNING
    if is_metrics:
        yield Exhibit("", title, "training", path)
