"""Read a plan while it is being written.

`parse` stays the authority: it reads the whole text, and takes the last complete plan of it. What
comes early here is of the first plan, and the caller compares it with the parsed one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Final

from podium.conductors.plan.literals import BrokenLiteral, Value, scan_value, skip_space
from podium.conductors.plan.parser import (
    ACCESS_LIST,
    LISTS,
    MARK,
    MODEL_ID,
    STEPS,
    SUBTASKS,
    THINK,
    THINK_END,
    read_list_step,
    read_step,
)
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool
from podium.core.workflow import DEFAULT_MAX_STEPS, Step

LONGEST_MARK: Final = 200
"""Characters kept of prose before a plan: a label is shorter."""


class PlanStream:
    """Yields each step of a plan as soon as its text is final and another step follows.

    The last step is never among them: only the end of the plan shows that it is the last. JSON
    steps come one by one; the three lists give theirs while `access_list` is written.
    """

    def __init__(
        self, pool: Pool, *, max_steps: int = DEFAULT_MAX_STEPS, may_accept: bool = False
    ) -> None:
        self._pool = pool
        self._max_steps = max_steps
        self._may_accept = may_accept
        self.restart()

    def restart(self) -> None:
        """Forget the text so far: the plan is written anew."""
        self._text = ""
        self._position = 0
        self._label: str | None = None
        """The list that is being written, if one is."""
        self._entries: list[Value] = []
        self._lists: dict[str, list[Value]] = {}
        self._ended = False

    def feed(self, piece: str) -> list[Step]:
        """Take the next piece of text; return the steps that it completed."""
        if self._ended:
            return []
        self._text += piece
        if self._label is None and len(self._text) < LONGEST_MARK and "[" not in piece:
            return []
        if self._label is not None and "," not in piece and "]" not in piece:
            return []
        try:
            return list(self._advance())
        except MalformedPlan:
            self._ended = True
            return []

    def _advance(self) -> Iterator[Step]:
        while not self._ended and (self._label is not None or self._find_list()):
            if not (yield from self._read_entries()):
                return

    def _find_list(self) -> bool:
        """Find the next list; drop what lies before it."""
        while (mark := MARK.search(self._text, self._position)) is not None:
            if mark.lastgroup == THINK:
                end = THINK_END.search(self._text, mark.end())
                if end is None:
                    self._text = self._text[mark.start() :]
                    self._position = 0
                    return False
                self._position = end.end()
                continue
            label, self._position = mark.lastgroup, mark.end()
            if label in self._lists or (label == STEPS and self._lists):
                self._ended = True  # a second plan began
                return False
            self._label, self._entries = label, []
            return True
        self._text = self._text[max(self._position, len(self._text) - LONGEST_MARK) :]
        self._position = 0
        return False

    def _read_entries(self) -> Generator[Step, None, bool]:
        """Yield the steps of the complete entries; True once the list is closed."""
        text, label = self._text, self._label
        assert label is not None, "a list is being written"
        while True:
            position = skip_space(text, self._position)
            if text.startswith("]", position):
                break
            try:
                value, end = scan_value(text, position, 1)
            except BrokenLiteral:
                return False  # it goes on, or `parse` says what is wrong
            end = skip_space(text, end)
            if not text.startswith((",", "]"), end):
                return False
            self._entries.append(value)
            self._position = end + text.startswith(",", end)
            step = self._step_before(len(self._entries), text[end] == ",")
            if step is not None:
                yield step
        self._position = position + 1
        self._lists[label] = self._entries
        self._label = None
        self._ended = label in (STEPS, ACCESS_LIST)
        return True

    def _step_before(self, count: int, another_follows: bool) -> Step | None:
        """Return the step that the latest of `count` entries completed, unless it may be last."""
        index, label = count - 1, self._label
        on_warning = _ignore
        if label == STEPS:
            if not another_follows or count >= self._max_steps:
                return None
            step = read_step(index, self._entries[index], self._pool, on_warning)
        elif label == ACCESS_LIST and all(name in self._lists for name in LISTS[:-1]):
            length = len(self._lists[MODEL_ID])
            if not count < length <= self._max_steps or length != len(self._lists[SUBTASKS]):
                return None
            entries = [*(self._lists[name][index] for name in LISTS[:-1]), self._entries[index]]
            step = read_list_step(index, entries, self._pool, on_warning)
        else:
            return None
        if index == 0 and step.access == "all" and not self._may_accept:
            step = replace(step, access=())
        return step


def _ignore(_where: str, _fact: str, _reading: str) -> None:
    """Leave warnings to `parse`."""
