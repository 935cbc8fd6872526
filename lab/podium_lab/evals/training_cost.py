"""The cost of a training, from the files that it wrote.

    summary.json     `seconds`, the wall time of all its sessions together, and the number of
                     `rollouts`
    metrics.jsonl    a line for each step, with its `seconds` and `rollouts`; without a summary,
                     the time is the sum of the steps

A conductor may result from several trainings, each continuing the one before: their times and
rollouts are added up, and the parameters are those of the last.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.core.errors import UsageError
from podium.evals.results import round_figure
from podium.workers.local.sources import WEIGHTS_FILE

SUMMARY: Final = "summary.json"
METRICS: Final = "metrics.jsonl"
CONDUCTOR: Final = "conductor"
"""The directory of a conductor's adapter."""

LONGEST_HEADER: Final = 100_000_000
"""In bytes, as the format has it: a damaged file may name any length."""


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Minutes and rollouts of a training, rollouts a second in its steps, and the number of trained
    parameters; None is not measured."""

    minutes: float | None = None
    rollouts_per_second: float | None = None
    rollouts: int | None = None
    parameters: int | None = None

    def document(self) -> dict[str, Any]:
        return {
            "train_minutes": None if self.minutes is None else round_figure(self.minutes),
            "parameters_trained": self.parameters,
            "evaluations": self.rollouts,
        }


NOT_MEASURED: Final = TrainingCost()


def require_distinct(trainings: Sequence[Path]) -> list[Path]:
    """Return the resolved paths; refuse one that is named twice."""
    resolved = [training.resolve() for training in trainings]
    for path, often in Counter(resolved).items():
        if often > 1:
            raise UsageError(f"{path} is named {often} times; name each training once")
    return resolved


def read_training_cost(trainings: Sequence[Path]) -> TrainingCost:
    """Return the figures of these trainings together, by their directories or files of metrics;
    unknown where one's are."""
    require_distinct(trainings)
    summaries = [_summary(training) for training in trainings]
    seconds = _sum(_number(summary, "seconds") for summary in summaries)
    rollouts = _sum(_number(summary, "rollouts") for summary in summaries)
    steps = [step for training in trainings for step in _steps(training)]
    in_steps = sum(step["seconds"] for step in steps)
    return TrainingCost(
        minutes=None if seconds is None else seconds / 60,
        rollouts_per_second=sum(s["rollouts"] for s in steps) / in_steps if in_steps else None,
        rollouts=None if rollouts is None else int(rollouts),
        parameters=adapter_parameters(trainings[-1] / CONDUCTOR) if trainings else None,
    )


def adapter_parameters(directory: Path) -> int | None:
    """Count the parameters of the adapter in that directory by the header of its file; None where
    there is no such file, or it is damaged."""
    try:
        with (directory / WEIGHTS_FILE).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= LONGEST_HEADER else b""
    except OSError:
        return None
    matrices = [entry for entry in _object(header).values() if isinstance(entry, dict)]
    shapes = [matrix["shape"] for matrix in matrices if "shape" in matrix]
    return sum(map(math.prod, shapes)) if shapes and all(map(_is_shape, shapes)) else None


def _is_shape(found: object) -> bool:
    return isinstance(found, list) and all(type(count) is int and count >= 0 for count in found)


def _summary(training: Path) -> dict[str, Any]:
    """Return a training's summary; of metrics alone, the sums of its steps."""
    if training.is_file():
        steps = _steps(training)
        return {name: sum(s[name] for s in steps) for name in ("rollouts", "seconds") if steps}
    try:
        return _object((training / SUMMARY).read_bytes())
    except OSError as error:
        raise UsageError(
            f"{training}: there is no {SUMMARY} in it that could be read; "
            f"name the directory of a training, or its file of metrics"
        ) from error


def _steps(training: Path) -> list[dict[str, float]]:
    """Return the rollouts and seconds of every step that made rollouts."""
    metrics = training if training.is_file() else training / METRICS
    found = []
    for line in metrics.read_bytes().splitlines() if metrics.is_file() else ():
        step = _object(line)
        numbers = {name: _number(step, name) for name in ("rollouts", "seconds")}
        if known := {name: value for name, value in numbers.items() if value}:
            found.append(known)
    return [step for step in found if len(step) == 2]


def _sum(numbers: Iterable[float | None]) -> float | None:
    """Add up; None if there is nothing to add, or a part is unknown."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if known and len(known) == len(found) else None


def _object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the text is truncated."""
    try:
        found = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(document: dict[str, Any], name: str) -> float | None:
    """Return that number; None if it is missing, infinite or no number."""
    value = document.get(name)
    if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    return None
