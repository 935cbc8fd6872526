"""What came of reading tasks: those that can be asked, and what had to be left out and why.

Somebody's file may miss an answer or use an id twice. An evaluation goes on with the rest and
reports what was left out; a training stops, since it must be of all that was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from podium.core.errors import ConfigError, PodiumError
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.record import TaskRecord


class Entry(NamedTuple):
    """Where a record stands, in words, and what makes it: None is not of the suite at all."""

    where: str
    make: Callable[[], TaskRecord | None]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is no task, and the reason in words."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Reading:
    """The records that become tasks, these tasks in the same order, and what was left out."""

    records: tuple[TaskRecord, ...]
    tasks: tuple[Task, ...]
    left_out: tuple[LeftOut, ...]

    def whole(self) -> Reading:
        """Itself if nothing was left out, else the first reason as an error."""
        if self.left_out:
            raise ConfigError(str(self.left_out[0]))
        return self


def read(entries: Iterable[Entry], source: str, judge: Worker | None = None) -> Reading:
    """Make every entry a task that can be graded. An error says that none could be."""
    records: dict[str, TaskRecord] = {}
    tasks = []
    left_out = []
    for where, make in entries:
        try:
            record = make()
            if record is None:
                continue
            if record.id in records:
                raise ConfigError(f"the id {record.id!r} was already used; give each task its own")
            tasks.append(record.to_task(judge))
            records[record.id] = record
        except PodiumError as error:
            left_out.append(LeftOut(where, str(error)))
    if left_out and not records:
        raise ConfigError(f"{left_out[0]}; none of the {len(left_out)} in {source} is a task")
    if not records:
        raise ConfigError(f"{source}: there are no tasks in it")
    return Reading(tuple(records.values()), tuple(tasks), tuple(left_out))
