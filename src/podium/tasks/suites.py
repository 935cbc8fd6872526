"""The front door: a suite by its name, or by the path of its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from podium.errors import ConfigError
from podium.task import Task
from podium.tasks.etude import etude_suite
from podium.tasks.everyday import EVERYDAY, everyday_suite
from podium.tasks.loaders import BENCHMARKS
from podium.tasks.mix import load_source, rank
from podium.tasks.own import ENDINGS, load_suite

ETUDES: Final = "etudes"
USUAL_ETUDES: Final = 1000
NAMES: Final = (ETUDES, EVERYDAY, *BENCHMARKS)
"""Every suite that has a name; most have splits, as in `mmlu:val` and `etudes:train`."""


def suite(
    name: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Task]:
    """The tasks of a suite: `etudes`, `everyday`, a benchmark, or a user's own `.jsonl` or
    `.csv` file.

    A benchmark comes from the file or directory `data` or, without one, from the hub. With a
    `limit` as many tasks are drawn by the seed; of études the seed makes them.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"the limit of a suite must be at least 1, not {limit}")
    text = os.fspath(name)
    kind, _, split = text.partition(":")
    if kind == ETUDES:
        return etude_suite(limit or USUAL_ETUDES, seed, split or "test")
    if kind == EVERYDAY:
        return _drawn(everyday_suite(split or "test"), limit, seed)
    if kind in BENCHMARKS:
        records = load_source(text, None if data is None else Path(data))
        return _drawn([record.to_task() for record in records], limit, seed)
    if Path(text).suffix in ENDINGS:
        return _drawn(load_suite(Path(text)), limit, seed)
    raise ConfigError(
        f"there is no suite {text!r}: expected one of {', '.join(NAMES)}, or the path of a "
        f"{' or '.join(ENDINGS)} file"
    )


def _drawn(tasks: Sequence[Task], limit: int | None, seed: int) -> list[Task]:
    if limit is None or limit >= len(tasks):
        return list(tasks)
    return sorted(tasks, key=lambda task: rank(task.id, seed))[:limit]
