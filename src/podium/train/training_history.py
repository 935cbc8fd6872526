"""How a training went, read from its `metrics.jsonl`: every number that it wrote down, by step.

A file of metrics may be cut off anywhere: what is not a whole line is left out and counted.
Where a training was taken up again from a checkpoint, the steps it repeated replace those that
were lost. What is made of it is `podium.train.curves`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.core.errors import ConfigError
from podium.train.logbook import METRICS

HELD_OUT: Final = "held_out/"
"""What the name of a series begins with that was measured on held-out questions."""

LARGEST: Final = 1e15
"""No number that means anything here is larger; infinity is, and what is no number is not."""

_BEGINNING: Final = re.compile(r'\n|(?=\{"step")')
"""Where an entry begins: on a line of its own, or behind one that a crash left half written."""


@dataclass(frozen=True, slots=True)
class Course:
    """How one training went: its series by name, each by step. `left_out` counts lines that were
    no metrics."""

    name: str
    series: Mapping[str, Mapping[int, float]]
    left_out: int = 0


def read_courses(paths: Sequence[Path]) -> list[Course]:
    """Each training under a name of its own: its directory's, or the path where two are alike."""
    short = [_short_name(path) for path in paths]
    return [
        _read(path, name if short.count(name) == 1 else str(path))
        for path, name in zip(paths, short, strict=True)
    ]


def _short_name(path: Path) -> str:
    path = path.resolve()
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == METRICS else path.stem


def _read(path: Path, name: str) -> Course:
    file = path / METRICS if path.is_dir() else path
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{path} holds no metrics: {file}: {error.strerror}; name the directory of a training"
        ) from error
    series: dict[str, dict[int, float]] = {}
    entries = [_entry(piece) for piece in _BEGINNING.split(text) if piece.strip()]
    for entry in entries:
        if entry is not None:
            _take(series, *entry)
    if not series:
        raise ConfigError(
            f"{file} holds no step of a training yet; wait for the first, or name another training"
        )
    return Course(name, series, entries.count(None))


def _entry(piece: str) -> tuple[int, dict[str, float]] | None:
    """The step of an entry, and its numbers."""
    try:
        entry: Any = json.loads(piece)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(step := entry.pop("step", None), int):
        return None
    return step, {name: value for name, value in entry.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST


def _take(series: dict[str, dict[int, float]], step: int, numbers: dict[str, float]) -> None:
    """Put the numbers of a step to the others. One that was there before is a step repeated
    after a break, and everything that came after it then is lost."""
    if "rollouts" not in numbers:
        numbers.pop("seconds", None)  # of the whole training, where they are not of a step
    if any(step in series.get(name, ()) for name in numbers):
        for values in series.values():
            for lost in [at for at in values if at >= step]:
                del values[lost]
    for name, value in numbers.items():
        series.setdefault(name, {})[step] = value
