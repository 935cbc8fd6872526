"""The front door: a suite by its name, or by the path of its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium._util.lab import ETUDES, EVERYDAY, lab_extra
from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.benchmarks import BENCHMARKS
from podium.tasks.gym import GYM, gym_suite
from podium.tasks.loaders import benchmark_named, read_benchmark
from podium.tasks.mix import rank
from podium.tasks.own import ENDINGS, read_own
from podium.tasks.reading import LeftOut

USUAL_ETUDES: Final = 1000
"""How many tasks are made where none has to be found, and no limit was named."""

NAMES: Final = (ETUDES, EVERYDAY, *BENCHMARKS, GYM)
"""Every suite that has a name; most have splits, as in `mmlu:val` and `etudes:train`, and
reasoning-gym has generators, as in `reasoning-gym:countdown`."""


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """The tasks of a suite, and what is in its file without being a task."""

    tasks: tuple[Task, ...]
    left_out: tuple[LeftOut, ...] = ()


def suite(
    name: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    judge: Worker | None = None,
) -> list[Task]:
    """The tasks of a suite: `etudes`, `everyday`, a benchmark, a generator of reasoning-gym, or
    a user's own `.jsonl` or `.csv` file. A line of the file that is no task is an error.

    A benchmark comes from the file or directory `data` or, without one, from the hub. With a
    `limit` as many tasks are drawn by the seed; of what is generated the seed makes them.
    `judge` is the worker that decides where a task is graded by a model.
    """
    loaded = loaded_suite(name, data=data, limit=limit, seed=seed, judge=judge)
    if loaded.left_out:
        raise ConfigError(str(loaded.left_out[0]))
    return list(loaded.tasks)


def loaded_suite(
    name: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    judge: Worker | None = None,
) -> LoadedSuite:
    """As `suite`, but a line that is no task (it has no answer, or another's id) is left out and
    named, and the rest can be measured. Only where nothing is left is that an error."""
    if limit is not None and limit < 1:
        raise ConfigError(f"the limit of a suite must be at least 1, not {limit}")
    text = os.fspath(name)
    kind, _, split = text.partition(":")
    if kind == ETUDES:
        with lab_extra():
            from podium_lab.etudes.tasks import etude_suite
        return LoadedSuite(tuple(etude_suite(limit or USUAL_ETUDES, seed, split or "test")))
    if kind == EVERYDAY:
        with lab_extra():
            from podium_lab.etudes.tasks import everyday_suite
        return LoadedSuite(_drawn(everyday_suite(split or "test"), limit, seed))
    if kind == GYM:
        return LoadedSuite(tuple(gym_suite(split, limit or USUAL_ETUDES, seed)))
    if Path(text).suffix in ENDINGS:
        reading = read_own(Path(text), judge)
    elif benchmark_named(kind) is not None:
        reading = read_benchmark(kind, split or None, None if data is None else Path(data))
    else:
        raise ConfigError(
            f"there is no suite {text!r}: expected one of {', '.join(NAMES)}, or the path of a "
            f"{' or '.join(ENDINGS)} file"
        )
    return LoadedSuite(_drawn(reading.tasks, limit, seed), reading.left_out)


def _drawn(tasks: Sequence[Task], limit: int | None, seed: int) -> tuple[Task, ...]:
    if limit is None or limit >= len(tasks):
        return tuple(tasks)
    return tuple(sorted(tasks, key=lambda task: rank(task.id, seed))[:limit])
