"""Where in a conductor's text its plan stands.

Models think aloud before they write a plan, name the lists while they think, and draft them.
The rule that finds the plan among all that:

    The plan is the last complete one: the lists `model_id` and `subtasks` in either order and
    then `access_list`, which completes it, or one list `"steps"`. A list that is written again
    before the plan is complete replaces its earlier version, whatever stands between; a broken
    one leaves none. What stands in a closed `<think>` block never counts; a `<think>` that is
    never closed is passed over like any other word.

A label counts where a list follows it directly. Text inside a complete list belongs to that
list, so subtasks may mention labels, brackets and tags as they like. This module knows nothing
of what the lists say: that is `podium.plan.steps`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from podium.errors import MalformedPlan
from podium.plan.literals import BrokenLiteral, Value, scan_list

MODEL_ID: Final = "model_id"
SUBTASKS: Final = "subtasks"
ACCESS_LIST: Final = "access_list"
STEPS: Final = "steps"
PLAN: Final = "plan"
LISTS: Final = (MODEL_ID, SUBTASKS, ACCESS_LIST)

_THINK: Final = "think"
_JOINT: Final = r"[\s._\\-]*+"
"""What may stand between the two words of a label: `model.id`, `Model IDs`, `model\\_id`."""

_MARK: Final = re.compile(
    rf"""
    [<msa"'“”]  # the first character of all that follows, as most characters are none of these
    (?: (?<=<) (?P<{_THINK}> think(?:ing)?> )
      | (?: (?<!\w.) (?:
            (?<=m) (?P<{MODEL_ID}> odel {_JOINT} ids? )
          | (?<=s) (?P<{SUBTASKS}> ub {_JOINT} tasks? )
          | (?<=a) (?P<{ACCESS_LIST}> ccess (?: {_JOINT} lists? )?+ )
          ) [\s*_`"'“”‘’]*+ [:=：]
        | (?<=["'“”]) (?P<{STEPS}> steps ) ["'“”] \s*+ :
        ) [\s*_`]*+ \[
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_THINK_END: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """The lists of a plan by label, and where the text after them begins."""

    lists: Mapping[str, list[Value]]
    end: int


def find(text: str) -> FoundPlan:
    """The last complete plan in the text; raises `MalformedPlan` where there is none."""
    search = _Search()
    position = 0
    thinking_ends = True
    while (mark := _MARK.search(text, position)) is not None:
        position = mark.end()
        if mark.lastgroup == _THINK:
            end = _THINK_END.search(text, position) if thinking_ends else None
            thinking_ends = end is not None
            position = end.end() if end else position
            continue
        label = mark.lastgroup
        assert label is not None, "whatever is marked has a name"
        try:
            values, position = scan_list(text, position - 1)
        except BrokenLiteral as problem:
            search.refuse(label, problem.reason)
        else:
            search.take(label, values, position)
    if search.found is None:
        raise search.problem()
    return search.found


class _Search:
    """What was seen so far: the last complete plan, and the beginning of the next."""

    def __init__(self) -> None:
        self.found: FoundPlan | None = None
        self._broken: dict[str, str] = {}
        self._begun: dict[str, list[Value]] = {}
        self._seen: set[str] = set()

    def take(self, label: str, values: list[Value], end: int) -> None:
        """A complete list: it is part of a plan, completes one, or is out of place."""
        self._seen.add(label)
        if label == STEPS:
            self._complete({STEPS: values}, end)
        elif label != ACCESS_LIST:
            self._begun[label] = values
        elif len(self._begun) == len(LISTS) - 1:
            lists = {**self._begun, ACCESS_LIST: values}
            self._complete({label: lists[label] for label in LISTS}, end)

    def refuse(self, label: str, reason: str) -> None:
        """A broken list. Its earlier version is no longer what the writer wants."""
        self._broken[label] = reason
        self._begun.pop(label, None)

    def _complete(self, lists: dict[str, list[Value]], end: int) -> None:
        self.found = FoundPlan(MappingProxyType(lists), end)
        self._begun = {}

    def problem(self) -> MalformedPlan:
        """What is wrong with a text that holds no complete plan."""
        if STEPS in self._broken and MODEL_ID not in self._seen | self._broken.keys():
            return MalformedPlan(STEPS, self._broken[STEPS])
        if not self._seen and not self._broken:
            return MalformedPlan(
                PLAN,
                "no plan was found; end with the three lists, each on its own line: "
                "model_id = [...], subtasks = [...], access_list = [...]",
            )
        *before, last = LISTS
        missing = next((label for label in before if label not in self._begun), last)
        if missing in self._broken:
            return MalformedPlan(missing, self._broken[missing])
        if missing in self._seen:
            return MalformedPlan(
                missing, f"the list is out of place; write it last, after {' and '.join(before)}"
            )
        return MalformedPlan(
            missing, f"the list is missing; write {missing} = [...] with one entry for each step"
        )
