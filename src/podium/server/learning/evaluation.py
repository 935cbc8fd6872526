"""What an evaluation found, or has found so far.

`podium eval run --output DIR` writes what is measured into `evaluation.json`, a line for each task
into the file of its strategy, and at the end the table into `summary.json`; docs/evaluation.md has
the formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from podium.server.learning.places import MANIFEST, SUMMARY, Exhibit
from podium.server.learning.tail import count_lines, read_json
from podium.server.learning.training import moment

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


def evaluation_document(exhibit: Exhibit) -> dict[str, Any]:
    """The table as far as there is one, and how many samples of each strategy are there."""
    summary = read_json(exhibit.path / SUMMARY)
    told = summary or read_json(exhibit.path / MANIFEST)
    rows = summary.get("rows")
    return {
        "object": "evaluation",
        "name": exhibit.name,
        "title": exhibit.title,
        "is_finished": bool(summary) and "stopped" not in summary,
        "updated_at": moment(_latest(exhibit.path)),
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
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _samples(directory: Path) -> dict[str, int]:
    """How many samples there are, by the files of the strategies."""
    files = sorted(directory.glob("*.jsonl"))[:MOST_FILES] if directory.is_dir() else []
    return {file.stem: count_lines(file, MOST_COUNTED) for file in files}


def _latest(directory: Path) -> float | None:
    """When anything of it was last written."""
    times = []
    for file in (*directory.glob("*.jsonl"), directory / SUMMARY, directory / MANIFEST):
        try:
            times.append(file.lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)
