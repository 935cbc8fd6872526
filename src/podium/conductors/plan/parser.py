"""Parse a conductor's text to a workflow: tolerant in what it reads, strict in what it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from podium.conductors.plan.literals import (
    MAX_SHOWN_CHARS,
    BrokenLiteral,
    Value,
    Word,
    scan_list,
    scan_value,
    skip_space,
)
from podium.core.errors import InvalidWorkflow, MalformedPlan
from podium.core.pool import Pool
from podium.core.workflow import (
    CONDITION_FORM,
    DEFAULT_MAX_STEPS,
    Access,
    Condition,
    Step,
    Workflow,
)

OnWarning = Callable[[str, str, str], None]
"""Receives a list, a quirk of it and its reading; keeps a warning or raises `MalformedPlan`."""

_ID: Final = re.compile(r"[0-9]{1,9}")
_NO_ACCESS: Final = ("none", "null")


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a plan: its list, its name in messages, and the value."""

    where: str
    name: str
    value: object

    def wrong(self, expected: str) -> MalformedPlan:
        return MalformedPlan(self.where, f"{self.name} is {self.shown}; {expected}")

    @property
    def shown(self) -> str:
        """The value, short enough for a message, with what cannot be printed escaped."""
        value = self.value
        shown = str(value) if isinstance(value, Word) and value.isprintable() else repr(value)
        return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[:MAX_SHOWN_CHARS]}…"


def worker_name(entry: Entry, pool: Pool | None) -> str:
    """Return the worker of an id or a name. Without a pool, any name is accepted."""
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
    """Describe the choice of workers; masked names stay masked."""
    ids = f"the id of a worker, a whole number from 0 to {len(pool) - 1}"
    if where == "model_id" or pool.mask_names:
        return ids
    return f"{ids}, or a name: {', '.join(pool.names)}"


def subtask_text(entry: Entry) -> str:
    value = entry.value
    if isinstance(value, Word) or not isinstance(value, str):
        raise entry.wrong("write every subtask as a text in double quotes")
    if not value.strip():
        raise entry.wrong("say in words what the worker must do")
    return value


def access_of(entry: Entry, index: int, on_warning: OnWarning) -> Access:
    """Return the access of step `index`: `all`, or earlier steps in ascending order."""
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
            on_warning(entry.where, fact, "it was read as all")
        return "all"
    numbers = [_whole_number(item) for item in value]
    reads = [number for number in numbers if number is not None and 0 <= number < index]
    if len(reads) < len(numbers):
        raise entry.wrong(_accesses_of(index))
    access = tuple(sorted(set(reads)))
    if list(access) != reads:
        fact = f"{entry.name} is {entry.shown}, and steps belong there once, in ascending order"
        on_warning(entry.where, fact, f"it was read as {list(access)}")
    return access


def _accesses_of(index: int) -> str:
    if index == 0:
        return "the first step has no earlier ones to read: write []"
    earlier = "[0]" if index == 1 else f"numbers from 0 to {index - 1} as in [0, {index - 1}]"
    return (
        f"step {index} may read only earlier steps: write [] for none of them, "
        f'["all"] for all of them, or {earlier}'
    )


def condition_of(entry: Entry, index: int) -> Condition | None:
    """Return the condition of step `index`: of earlier steps, or None."""
    value = entry.value
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if not isinstance(value, str):
            raise entry.wrong(CONDITION_FORM)
        condition = Condition.parse(value)
        condition.check(index)
    except InvalidWorkflow:
        raise entry.wrong(CONDITION_FORM) from None
    return condition


def _is_all(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == "all"


def _whole_number(value: object) -> int | None:
    """Return the number of an entry, also where it is a string of digits."""
    if isinstance(value, str):
        digits = value.strip()  # of more than `int` itself would leave out
        return int(digits) if _ID.fullmatch(digits) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


MODEL_ID: Final = "model_id"
SUBTASKS: Final = "subtasks"
ACCESS_LIST: Final = "access_list"
STEPS: Final = "steps"
PLAN: Final = "plan"
LISTS: Final = (MODEL_ID, SUBTASKS, ACCESS_LIST)

THINK: Final = "think"
_JOINT: Final = r"[\s._\\-]*+"
"""The separator of the two words of a label: `model.id`, `Model IDs`, `model\\_id`."""

MARK: Final = re.compile(
    rf"""
    [<msa"'“”]  # the first character of all that follows, as most characters are none of these
    (?: (?<=<) (?P<{THINK}> think(?:ing)?> )
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
THINK_END: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """The lists of a plan by label, and the position of the text after them."""

    lists: Mapping[str, list[Value]]
    end: int


def find(text: str) -> FoundPlan:
    """Find the last complete plan in the text; `MalformedPlan` where there is none."""
    search = _Search()
    position = 0
    thinking_ends = True
    while (mark := MARK.search(text, position)) is not None:
        position = mark.end()
        if mark.lastgroup == THINK:
            end = THINK_END.search(text, position) if thinking_ends else None
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
    """The last complete plan so far, and the beginning of the next."""

    def __init__(self) -> None:
        self.found: FoundPlan | None = None
        self._broken: dict[str, str] = {}
        self._begun: dict[str, list[Value]] = {}
        self._seen: set[str] = set()

    def take(self, label: str, values: list[Value], end: int) -> None:
        """Take a complete list: part of a plan, its last part, or out of place."""
        self._seen.add(label)
        if label == STEPS:
            self._complete({STEPS: values}, end)
        elif label != ACCESS_LIST:
            self._begun[label] = values
        elif len(self._begun) == len(LISTS) - 1:
            lists = {**self._begun, ACCESS_LIST: values}
            self._complete({label: lists[label] for label in LISTS}, end)

    def refuse(self, label: str, reason: str) -> None:
        """Note a broken list; an earlier version of it no longer counts."""
        self._broken[label] = reason
        self._begun.pop(label, None)

    def _complete(self, lists: dict[str, list[Value]], end: int) -> None:
        self.found = FoundPlan(MappingProxyType(lists), end)
        self._begun = {}

    def problem(self) -> MalformedPlan:
        """Return the error for a text without a complete plan."""
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


STEP_KEYS: Final = ("worker", "subtask", "access")
CONDITION: Final = "if"
"""The key of a step's condition, which most steps have not."""
DOCUMENT_KEYS: Final = ("question", "routing", "reasoning", STEPS)


def read_workflow(document: object, pool: Pool | None = None) -> Workflow:
    """Read the workflow of a JSON document; without a pool, any worker's name is accepted.

    What `parse` would warn of raises `MalformedPlan` here. The caller checks the number of steps.
    """
    if not isinstance(document, Mapping):
        raise MalformedPlan(PLAN, 'a workflow is an object {"steps": [...]}; write one')
    for key in document:
        if key not in DOCUMENT_KEYS:
            raise MalformedPlan(
                PLAN, f"there is no key {key!r} in a workflow; it has {', '.join(DOCUMENT_KEYS)}"
            )
    steps = document.get(STEPS)
    if not isinstance(steps, list | tuple):
        raise MalformedPlan(STEPS, 'the list of steps is missing; write "steps": [...]')
    if not steps:
        raise MalformedPlan(STEPS, "the list is empty; write at least one step")
    return Workflow(read_steps(steps, pool, _refuse))


def workflow_document(workflow: Workflow, pool: Pool | None = None) -> dict[str, Any]:
    """Return the workflow as plain JSON values; `read_workflow` reads it back.

    Workers appear by name, or by id where a pool is given that masks its names.
    """
    by_id = pool if pool is not None and pool.mask_names else None
    return {
        STEPS: [
            {
                "worker": step.worker if by_id is None else by_id.index(step.worker),
                "subtask": step.subtask,
                "access": step.access if step.access == "all" else list(step.access),
                **({} if step.condition is None else {CONDITION: str(step.condition)}),
            }
            for step in workflow.steps
        ]
    }


def read_steps(
    steps: Sequence[object], pool: Pool | None, on_warning: OnWarning
) -> tuple[Step, ...]:
    return tuple(read_step(index, step, pool, on_warning) for index, step in enumerate(steps))


def read_step(index: int, step: object, pool: Pool | None, on_warning: OnWarning) -> Step:
    if not isinstance(step, Mapping):
        expected = f"a step is an object with {', '.join(STEP_KEYS)}"
        raise Entry(STEPS, f"step {index}", step).wrong(expected)
    for key in STEP_KEYS:
        if key not in step:
            raise MalformedPlan(
                STEPS, f"step {index} has no {key!r}; a step needs {', '.join(STEP_KEYS)}"
            )
    for key in step:
        if key not in (*STEP_KEYS, CONDITION):
            name = Entry(STEPS, "", key).shown
            known = ", ".join((*STEP_KEYS, CONDITION))
            fact = f"step {index} has a key {name}, and a step has only {known}"
            on_warning(STEPS, fact, "it was ignored")
    worker, subtask, access = (
        Entry(STEPS, f"the {key} of step {index}", step[key]) for key in STEP_KEYS
    )
    condition = Entry(STEPS, f"the condition of step {index}", step.get(CONDITION))
    return Step(
        worker_name(worker, pool),
        subtask_text(subtask),
        access_of(access, index, on_warning),
        condition_of(condition, index),
    )


def _refuse(where: str, fact: str, _reading: str) -> None:
    raise MalformedPlan(where, fact)


_CLOSING: Final = re.compile(r"(?:\}\s*+){0,3}(?:\*\*\s*+)?(?:`{1,4}|~{3,4})?")
"""Suffixes of a plan that are no text: the end of its JSON, of its emphasis, of its fence.
Bounded, so that a model in training cannot repeat it for ever."""


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """The result of parsing. `workflow` is None when the text accepts the answer there is."""

    workflow: Workflow | None
    warnings: tuple[str, ...] = ()


def parse(
    text: str,
    pool: Pool,
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    strict: bool = False,
    may_accept: bool = False,
) -> ParsedPlan:
    """Parse the last complete plan in a conductor's text, in time linear in its length.

    `strict` refuses text after the plan instead of warning of it. With `may_accept` an empty plan
    accepts the answer of the round before, whose steps `all` in the first step then means.
    Raises `MalformedPlan` if there is no valid plan.
    """
    warnings: list[str] = []

    def on_warning(where: str, fact: str, reading: str) -> None:
        warnings.append(f"{where}: {fact}; {reading}")

    plan = find(text)
    rest = text[plan.end :].strip()
    if not _CLOSING.fullmatch(rest):
        fact = f"{len(rest)} characters of text follow the plan, which must end the reply"
        if strict:
            raise MalformedPlan(PLAN, f"{fact}; write nothing after it")
        on_warning(PLAN, fact, "they were ignored")
    if not any(plan.lists.values()):
        if may_accept:
            return ParsedPlan(None, tuple(warnings))
        raise MalformedPlan(PLAN, "it has no steps; write at least one, there is no answer yet")
    _check_lengths(plan.lists, max_steps)
    if STEPS in plan.lists:
        steps = read_steps(plan.lists[STEPS], pool, on_warning)
    else:
        steps = _steps_of_lists(plan.lists, pool, on_warning)
    if steps[0].access == "all" and not may_accept:
        steps = (replace(steps[0], access=()), *steps[1:])
    return ParsedPlan(Workflow(steps), tuple(warnings))


def _check_lengths(lists: Mapping[str, Sequence[object]], max_steps: int) -> None:
    lengths = {label: len(entries) for label, entries in lists.items()}
    if len(set(lengths.values())) > 1:
        counts = list(lengths.values())
        odd = [label for label, length in lengths.items() if counts.count(length) == 1]
        counts_text = ", ".join(f"{label} has {length}" for label, length in lengths.items())
        raise MalformedPlan(
            odd[0] if len(odd) == 1 else PLAN,
            f"the lists differ in length: {counts_text}; give each of them one entry for each step",
        )
    steps = max(lengths.values())
    if steps > max_steps:
        raise MalformedPlan(
            PLAN, f"it has {steps} steps; write at most {max_steps}, joining some of them"
        )


def _steps_of_lists(
    lists: Mapping[str, Sequence[object]], pool: Pool, on_warning: OnWarning
) -> tuple[Step, ...]:
    rows = zip(*(lists[label] for label in LISTS), strict=True)
    return tuple(read_list_step(index, row, pool, on_warning) for index, row in enumerate(rows))


def read_list_step(index: int, row: Sequence[object], pool: Pool, on_warning: OnWarning) -> Step:
    worker, subtask, access = (
        Entry(label, f"entry {index}", value) for label, value in zip(LISTS, row, strict=True)
    )
    name = worker_name(worker, pool)
    if worker.value == name:
        fact = f"entry {index} is the name {worker.shown}, and ids belong there"
        on_warning(MODEL_ID, fact, f"it was read as {pool.index(name)}")
    return Step(name, subtask_text(subtask), access_of(access, index, on_warning))


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
