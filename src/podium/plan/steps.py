"""What the entries of a plan mean: workers, subtasks and access, and the steps they make.

Both forms of a plan end here, the three lists and the JSON form, so that an entry means the same
in either. Messages are written for whoever wrote the plan, a model included: they say which
entry is at fault, what came, and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from podium.errors import MalformedPlan
from podium.plan.literals import SHOWN, Word
from podium.pool import Pool
from podium.workflow import Access

Tolerate = Callable[[str, str, str], None]
"""Told of a quirk: the list, what is unusual there, and how it was understood. It either keeps
that as a warning or raises `MalformedPlan`."""

_ID: Final = re.compile(r"[0-9]{1,9}")
_NO_ACCESS: Final = ("none", "null")


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a plan: the list it belongs to, what to call it, and what stands there."""

    where: str
    name: str
    value: object

    def wrong(self, expected: str) -> MalformedPlan:
        """The error for an entry that is not what was expected."""
        return MalformedPlan(self.where, f"{self.name} is {self.shown}; {expected}")

    @property
    def shown(self) -> str:
        """The value, short enough for a message, and with escapes for what cannot be printed: a
        message is written down, where half of a surrogate pair could not be."""
        value = self.value
        shown = str(value) if isinstance(value, Word) and value.isprintable() else repr(value)
        return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def worker_name(entry: Entry, pool: Pool | None) -> str:
    """The worker that an id or a name stands for. Without a pool, any name is believed."""
    value = entry.value
    if pool is None:
        if isinstance(value, str) and value.strip():
            return value
        raise entry.wrong("without a pool there are no ids: name the worker")
    if isinstance(value, str) and value in pool.names:
        return value
    index = _whole_number(value)
    if index is None or not 0 <= index < len(pool):
        raise entry.wrong(f"write {_workers_of(pool, entry.where)}")
    return pool.names[index]


def _workers_of(pool: Pool, where: str) -> str:
    """The choice of workers, in words; masked names stay masked."""
    ids = f"the id of a worker, a whole number from 0 to {len(pool) - 1}"
    if where == "model_id" or pool.mask_names:
        return ids
    return f"{ids}, or a name: {', '.join(pool.names)}"


def subtask_text(entry: Entry) -> str:
    """The subtask, word for word."""
    value = entry.value
    if isinstance(value, Word) or not isinstance(value, str):
        raise entry.wrong("write every subtask as a text in double quotes")
    if not value.strip():
        raise entry.wrong("say in words what the worker must do")
    return value


def access_of(entry: Entry, index: int, tolerate: Tolerate) -> Access:
    """What step `index` may read: `all`, or earlier steps, each once and in ascending order."""
    value = entry.value
    if value is None or (isinstance(value, str) and value.strip().lower() in _NO_ACCESS):
        return ()
    if _is_all(value):
        return "all"
    if not isinstance(value, list | tuple):
        raise entry.wrong(_accesses_of(index))
    if any(_is_all(item) for item in value):
        if len(value) > 1:
            fact = f"{entry.name} is {entry.shown}, and 'all' already includes every earlier step"
            tolerate(entry.where, fact, "it was read as all")
        return "all"
    numbers = [_whole_number(item) for item in value]
    reads = [number for number in numbers if number is not None and 0 <= number < index]
    if len(reads) < len(numbers):
        raise entry.wrong(_accesses_of(index))
    access = tuple(sorted(set(reads)))
    if list(access) != reads:
        fact = f"{entry.name} is {entry.shown}, and steps belong there once, in ascending order"
        tolerate(entry.where, fact, f"it was read as {list(access)}")
    return access


def _accesses_of(index: int) -> str:
    """What a step may say about its access, in words."""
    if index == 0:
        return "the first step has no earlier ones to read: write []"
    earlier = "[0]" if index == 1 else f"numbers from 0 to {index - 1} as in [0, {index - 1}]"
    return (
        f"step {index} may read only earlier steps: write [] for none of them, "
        f'["all"] for all of them, or {earlier}'
    )


def _is_all(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == "all"


def _whole_number(value: object) -> int | None:
    """The number that an entry stands for, also where it is written as a string of digits."""
    if isinstance(value, str):
        digits = value.strip()  # of more than `int` itself would leave out
        return int(digits) if _ID.fullmatch(digits) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
