"""What training took, from the metrics that it left behind.

A training run writes one JSON object a line into files named `metrics.jsonl`. Two of its keys
matter here: `seconds`, the wall time that the line's step took, and `rollouts`, how many
complete rollouts it made, where it made any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.errors import UsageError

METRICS: Final = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """How long training took, and how many rollouts a second it made; None is not measured."""

    minutes: float | None = None
    rollouts_per_second: float | None = None


NOT_MEASURED: Final = TrainingFigures()


def read_training(directory: Path | None) -> TrainingFigures:
    """The figures of every metrics file under the directory, checkpointed stretches together."""
    if directory is None:
        return NOT_MEASURED
    files = sorted(directory.rglob(METRICS))
    if not files:
        raise UsageError(
            f"{directory}: there is no {METRICS} in it; name the directory of a training run"
        )
    lines = [line for file in files for line in _lines(file)]
    seconds = sum(line["seconds"] for line in lines)
    rollouts = sum(line.get("rollouts") or 0 for line in lines)
    busy = sum(line["seconds"] for line in lines if line.get("rollouts"))
    return TrainingFigures(
        minutes=seconds / 60 if lines else None,
        rollouts_per_second=rollouts / busy if busy else None,
    )


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines that say how long they took; one that a crash has cut off is left out."""
    for text in file.read_text("utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("seconds"), int | float):
            yield line
