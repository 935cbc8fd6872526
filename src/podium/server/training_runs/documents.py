"""How a training went, or goes: the numbers that it writes down, and plans to look at.

`podium train` writes a line for every step into `metrics.jsonl`, samples of every step into
`samples.jsonl`, and how far it came into `summary.json`; docs/training.md has the formats.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from podium.server.training_runs.artifacts import (
    MANIFEST,
    MOST_BYTES,
    SUMMARY,
    Artifact,
    count_lines,
    read_json,
    read_tail,
)

SAMPLES: Final = "samples.jsonl"

MOST_POINTS: Final = 400
"""A series that is read as a whole has no more; of several that fall together, it has the mean."""

SPREADS: Final = ("steps/", "shape/")
"""How series begin that say how plans are spread: a length or a shape that no plan of a step had is
not written down there, and its share was nothing."""

MOST_SERIES: Final = 500
LARGEST: Final = 1e15
"""No number that means anything here is larger."""

MOST_SAMPLES: Final = 50
LONGEST_WORDS: Final = 8_000

_STEP: Final = re.compile(rb'(?=\{"step")')
"""Where an entry begins: also behind one that a crash left half written."""

_STEP_OF: Final = re.compile(rb'\s*\{"step":\s*([0-9]{1,12})')

Series = dict[str, dict[int, float]]


def training_document(
    exhibit: Artifact, cursor: str | None, most: int = MOST_BYTES
) -> dict[str, Any]:
    """The training with its series; with a cursor, those points that came since. Without a
    summary nobody knows whether it is finished."""
    tail = read_tail(exhibit.metrics, cursor, most=most)
    series, left_out = read_series(tail.lines)
    summary = _summary(exhibit)
    return {
        "object": "training",
        "name": exhibit.name,
        "title": exhibit.title,
        "summary": summary,
        "is_finished": summary.get("finished") is True if summary else None,
        "updated_at": format_timestamp(tail.modified),
        "series": _thinned(series),
        "cursor": tail.cursor,
        "is_anew": tail.is_anew,
        "left_out": left_out,
        "skipped_bytes": tail.skipped,
    }


def samples_document(exhibit: Artifact, step: int | None) -> dict[str, Any]:
    """The samples of that step, or of the last one before it that has any; of the last of all
    where no step is said. `steps` are all that have some."""
    lines: dict[int, list[bytes]] = {}
    if exhibit.path != exhibit.metrics:
        for line in read_tail(exhibit.path / SAMPLES).lines:
            match = _STEP_OF.match(line)
            if match is not None:
                lines.setdefault(int(match[1]), []).append(line)
    steps = sorted(lines)
    chosen = max((item for item in steps if step is None or item <= step), default=None)
    chosen = steps[0] if chosen is None and steps else chosen
    found = lines.get(chosen, []) if chosen is not None else []
    return {
        "object": "samples",
        "name": exhibit.name,
        "steps": steps,
        "step": chosen,
        "samples": [sample for line in found[:MOST_SAMPLES] if (sample := _sample(line))],
        "more": max(0, len(found) - MOST_SAMPLES),
    }


def read_series(lines: Iterable[bytes]) -> tuple[Series, int]:
    """Every number by its name and step, and how many lines were none. A step that comes again
    was repeated after a break: all that came after it then is lost."""
    series: Series = {}
    left_out = 0
    for line in lines:
        for piece in _STEP.split(line):
            if piece.strip():
                entry = _entry(piece)
                if entry is None:
                    left_out += 1
                else:
                    _take(series, *entry)
    return series, left_out


def format_timestamp(seconds: float | None) -> str | None:
    """A moment as JSON has it."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _entry(piece: bytes) -> tuple[int, dict[str, float]] | None:
    try:
        entry = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    step = entry.pop("step", None)
    if not _is_number(step):
        return None
    numbers = {name: float(value) for name, value in entry.items() if _is_number(value)}
    if "rollouts" not in numbers:
        numbers.pop("seconds", None)  # of the whole training, where they are not of a step
    return int(step), numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _take(series: Series, step: int, numbers: Mapping[str, float]) -> None:
    if any(step in series.get(name, ()) for name in numbers):
        for values in series.values():
            for lost in [at for at in values if at >= step]:
                del values[lost]
    for name, value in numbers.items():
        if name in series or len(series) < MOST_SERIES:
            series.setdefault(name, {})[step] = value


def _thinned(series: Series) -> dict[str, list[list[float]]]:
    """The series as lists of points, no more than so many each. Steps fall together in the same
    way in all of them, so that what belongs together stays so."""
    steps = sorted({step for values in series.values() for step in values})
    together = math.ceil(len(steps) / MOST_POINTS)
    if together < 2:
        return {name: [[*point] for point in sorted(v.items())] for name, v in series.items()}
    last = {
        step: steps[min(position - position % together + together, len(steps)) - 1]
        for position, step in enumerate(steps)
    }
    planned = dict.fromkeys(series.get("mean_steps", ()), 0.0)
    return {
        name: _means(planned | values if name.startswith(SPREADS) else values, last)
        for name, values in series.items()
    }


def _means(values: Mapping[int, float], last: Mapping[int, int]) -> list[list[float]]:
    """The mean of the values that fall together, at the last step of each."""
    found: dict[int, list[float]] = {}
    for step, value in sorted(values.items()):
        found.setdefault(last[step], []).append(value)
    return [[step, sum(some) / len(some)] for step, some in found.items()]


def _summary(exhibit: Artifact) -> dict[str, float | bool]:
    """The numbers of the summary."""
    if exhibit.path == exhibit.metrics:
        return {}
    summary = read_json(exhibit.path / SUMMARY)
    return {
        name: value
        for name, value in summary.items()
        if _is_number(value) or isinstance(value, bool)
    }


def _sample(line: bytes) -> dict[str, Any] | None:
    """Return a sample with long texts truncated."""
    try:
        sample = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return {
        name: value[:LONGEST_WORDS] if isinstance(value, str) else value
        for name, value in sample.items()
        if isinstance(value, str | bool) or _is_number(value)
    }


MOST_ROWS: Final = 200
MOST_FILES: Final = 200
MOST_COUNTED: Final = 256_000_000
"""Bytes of a file of samples in which these are counted."""

FIGURES: Final = (
    "strategy",
    "n",
    "samples",
    "accuracy",
    "interval",
    "accuracy_given_valid",
    "interval_given_valid",
    "valid_rate",
    "against_best_single",
    "regret",
    "cost_usd",
    "calls",
    "steps",
    "worker_tokens",
    "orchestration_tokens",
    "seconds",
    "entropy_bits",
    "worker_shares",
    "role_shares",
    "faults",
    "note",
)
"""What is told of a strategy, where the table has it."""


def evaluation_document(exhibit: Artifact) -> dict[str, Any]:
    """The table as far as there is one, and how many samples of each strategy are there."""
    summary = read_json(exhibit.path / SUMMARY)
    told = summary or read_json(exhibit.path / MANIFEST)
    rows = summary.get("rows")
    return {
        "object": "evaluation",
        "name": exhibit.name,
        "title": exhibit.title,
        "is_finished": bool(summary) and "stopped" not in summary,
        "updated_at": format_timestamp(_latest(exhibit.path)),
        "has_report": exhibit.report is not None,
        **{name: told.get(name) for name in ("suite", "n", "repeats", "seed", "variant", "limit")},
        "rows": [_row(row) for row in (rows if isinstance(rows, list) else [])[:MOST_ROWS]],
        "problems": _objects(summary.get("problems")),
        "stopped": summary.get("stopped"),
        "samples": _samples(exhibit.path),
    }


def _row(row: Any) -> dict[str, Any]:
    return {name: row[name] for name in FIGURES if name in row} if isinstance(row, dict) else {}


def _objects(found: Any) -> list[dict[str, Any]]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _samples(directory: Path) -> dict[str, int]:
    """Count the samples by strategy file."""
    files = sorted(directory.glob("*.jsonl"))[:MOST_FILES] if directory.is_dir() else []
    return {file.stem: count_lines(file, MOST_COUNTED) for file in files}


def _latest(directory: Path) -> float | None:
    """Return the time of the last write."""
    times = []
    for file in (*directory.glob("*.jsonl"), directory / SUMMARY, directory / MANIFEST):
        try:
            times.append(file.lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)
