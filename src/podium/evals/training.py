"""What training took, from what it wrote down.

A training leaves two files in its directory that matter here:

    summary.json     how it ended: `seconds`, the wall time of all its stretches together
    metrics.jsonl    a line for each step, with its `seconds` and how many `rollouts` it made

A directory may hold several trainings, such as a first one and what built on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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


def read_training(directory: Path | None) -> TrainingFigures:
    """The figures of every training under the directory, taken together."""
    if directory is None:
        return NOT_MEASURED
    summaries = sorted(directory.rglob(SUMMARY))
    if not summaries:
        raise UsageError(
            f"{directory}: there is no {SUMMARY} in it; name the directory of a training"
        )
    took = [
        _number(line, "seconds") for file in summaries for line in _objects(file.read_text("utf-8"))
    ]
    steps = [
        (rollouts, seconds)
        for file in sorted(directory.rglob(METRICS))
        for line in file.read_text("utf-8").splitlines()
        for step in _objects(line)
        if (rollouts := _number(step, "rollouts")) and (seconds := _number(step, "seconds"))
    ]
    minutes = sum(seconds for seconds in took if seconds is not None) / 60
    return TrainingFigures(
        minutes=minutes or None,
        rollouts_per_second=_rate(steps),
    )


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
