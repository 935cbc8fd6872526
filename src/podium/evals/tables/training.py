"""What training took, from what it wrote down.

A training leaves two files in its directory that matter here:

    summary.json     how it ended: `seconds`, the wall time of all its stretches together
    metrics.jsonl    a line for each step, with its `seconds` and how many `rollouts` it made

A conductor may come of several trainings, each of which went on from the one before: what it took
is what they all took together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.errors import UsageError

SUMMARY: Final = "summary.json"
METRICS: Final = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """How long training took, and how many rollouts a second its steps made; None is not
    measured."""

    minutes: float | None = None
    rollouts_per_second: float | None = None


NOT_MEASURED: Final = TrainingFigures()


def read_trainings(directories: Sequence[Path]) -> TrainingFigures:
    """The figures of these trainings, taken together; unknown where one's time is."""
    seconds = [_seconds(directory) for directory in directories]
    known = [number for number in seconds if number is not None]
    steps = [step for directory in directories for step in _steps(directory / METRICS)]
    return TrainingFigures(
        minutes=sum(known) / 60 if known and len(known) == len(seconds) else None,
        rollouts_per_second=_rate(steps),
    )


def _seconds(directory: Path) -> float | None:
    """How long the training of that directory took."""
    try:
        text = (directory / SUMMARY).read_text("utf-8")
    except OSError as error:
        raise UsageError(
            f"{directory}: there is no {SUMMARY} in it that could be read; "
            f"name the directory of a training"
        ) from error
    return next((_number(document, "seconds") for document in _objects(text)), None)


def _steps(metrics: Path) -> list[tuple[float, float]]:
    """The rollouts and the seconds of every step that made some."""
    lines = metrics.read_text("utf-8").splitlines() if metrics.is_file() else []
    return [
        (rollouts, seconds)
        for line in lines
        for step in _objects(line)
        if (rollouts := _number(step, "rollouts")) and (seconds := _number(step, "seconds"))
    ]


def _rate(steps: list[tuple[float, float]]) -> float | None:
    seconds = sum(seconds for _, seconds in steps)
    return sum(rollouts for rollouts, _ in steps) / seconds if seconds else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON object that the text is, if it is one: a crash may have cut it off."""
    try:
        found = json.loads(text)
    except ValueError:
        return
    if isinstance(found, dict):
        yield found


def _number(document: dict[str, Any], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) else None
