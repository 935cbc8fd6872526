"""What training took, from what it wrote down.

A training leaves two files in its directory that matter here:

    summary.json     how it ended: `seconds`, the wall time of all its stretches together, and how
                     many `rollouts` it made
    metrics.jsonl    a line for each step, with its `seconds` and how many `rollouts` it made

Of a training whose metrics alone were kept, the time is that of its steps.

A conductor may come of several trainings, each of which went on from the one before: what it took
is what they all took together. How many parameters it has is what the last of them trained.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium.core.errors import UsageError
from podium.evals.statistics import round_figure
from podium.workers.local.sources import WEIGHTS_FILE

SUMMARY: Final = "summary.json"
METRICS: Final = "metrics.jsonl"
CONDUCTOR: Final = "conductor"
"""The directory below, in which the adapter of a conductor lies."""

LONGEST_HEADER: Final = 100_000_000
"""In bytes, as the format has it: a damaged file may name any length."""


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """How long training took, how many rollouts it made and how many a second in its steps, and
    how many parameters it trained; None is not measured."""

    minutes: float | None = None
    rollouts_per_second: float | None = None
    rollouts: int | None = None
    parameters: int | None = None

    def document(self) -> dict[str, Any]:
        """What learning took, as tables of learners have it."""
        return {
            "train_minutes": None if self.minutes is None else round_figure(self.minutes),
            "parameters_trained": self.parameters,
            "evaluations": self.rollouts,
        }


NOT_MEASURED: Final = TrainingCost()


def require_distinct(trainings: Sequence[Path]) -> list[Path]:
    """Where these really are; one that is named twice is refused."""
    places = [training.resolve() for training in trainings]
    for path, often in Counter(places).items():
        if often > 1:
            raise UsageError(f"{path} is named {often} times; name each training once")
    return places


def read_training_cost(trainings: Sequence[Path]) -> TrainingCost:
    """The figures of these trainings, by their directories or their files of metrics, taken
    together; unknown where one's are."""
    require_distinct(trainings)
    summaries = [_summary(training) for training in trainings]
    seconds = _sum(_number(summary, "seconds") for summary in summaries)
    rollouts = _sum(_number(summary, "rollouts") for summary in summaries)
    steps = [step for training in trainings for step in _steps(_metrics(training))]
    return TrainingCost(
        minutes=None if seconds is None else seconds / 60,
        rollouts_per_second=_rate(steps),
        rollouts=None if rollouts is None else int(rollouts),
        parameters=adapter_parameters(trainings[-1] / CONDUCTOR) if trainings else None,
    )


def adapter_parameters(directory: Path) -> int | None:
    """How many numbers the matrices of the adapter in that directory have, by the header of its
    file; None where there is no such file, or it is damaged."""
    try:
        with (directory / WEIGHTS_FILE).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= LONGEST_HEADER else b""
    except OSError:
        return None
    shapes = [
        matrix["shape"]
        for told in _objects(header.decode("utf-8", "replace"))
        for matrix in told.values()
        if isinstance(matrix, dict) and "shape" in matrix
    ]
    return sum(map(math.prod, shapes)) if shapes and all(map(_is_shape, shapes)) else None


def _is_shape(told: object) -> bool:
    """Whether it says how many numbers there are along each axis."""
    return isinstance(told, list) and all(type(count) is int and count >= 0 for count in told)


def _summary(training: Path) -> dict[str, Any]:
    """How a training ended."""
    if training.is_file():
        return _added_up(_steps(training))
    try:
        text = (training / SUMMARY).read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(
            f"{training}: there is no {SUMMARY} in it that could be read; "
            f"name the directory of a training, or its file of metrics"
        ) from error
    return next(_objects(text), {})


def _added_up(steps: Sequence[_Step]) -> dict[str, Any]:
    """What the steps come to, as a summary has it; nothing where there were none."""
    if not steps:
        return {}
    return {
        "rollouts": sum(step.rollouts for step in steps),
        "seconds": sum(step.seconds for step in steps),
    }


def _metrics(training: Path) -> Path:
    return training if training.is_file() else training / METRICS


def _sum(numbers: Iterable[float | None]) -> float | None:
    """The sum, where there is something to add up and all of it is known."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if known and len(known) == len(found) else None


class _Step(NamedTuple):
    """How many rollouts a step made, and how long it took."""

    rollouts: float
    seconds: float


def _steps(metrics: Path) -> list[_Step]:
    """Every step that made rollouts."""
    lines = metrics.read_text("utf-8", "replace").splitlines() if metrics.is_file() else []
    return [
        _Step(rollouts, seconds)
        for line in lines
        for step in _objects(line)
        if (rollouts := _number(step, "rollouts")) and (seconds := _number(step, "seconds"))
    ]


def _rate(steps: Sequence[_Step]) -> float | None:
    """How many rollouts a second."""
    seconds = sum(step.seconds for step in steps)
    return sum(step.rollouts for step in steps) / seconds if seconds else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON object that the text is, if it is one: a crash may have cut it off."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict):
        yield found


def _number(document: dict[str, Any], name: str) -> float | None:
    """That number, if it is one: JSON may name some that are infinite, or none at all."""
    value = document.get(name)
    if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    return None
