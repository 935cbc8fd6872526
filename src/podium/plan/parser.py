"""From a conductor's text to a workflow: tolerant in what it reads, strict in what it returns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from podium.errors import MalformedPlan
from podium.plan.document import read_steps
from podium.plan.search import LISTS, MODEL_ID, PLAN, STEPS, find
from podium.plan.steps import Entry, Tolerate, access_of, subtask_text, worker_name
from podium.pool import Pool
from podium.workflow import DEFAULT_MAX_STEPS, Step, Workflow

_CLOSING: Final = re.compile(r"(?:\}\s*+){0,3}(?:\*\*\s*+)?(?:`{1,4}|~{3,4})?")
"""What may follow a plan without being text: the end of its JSON, of its emphasis, of its fence.
Bounded, so that a model in training cannot go on with it for ever."""


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """What a text came to. `workflow` is None when the text accepts the answer there is;
    `warnings` say what was tolerated, in words for a person."""

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
    """Read the plan in a conductor's text, in time linear in its length.

    Raises `MalformedPlan` and nothing else. Which lists are the plan is told in
    `podium.plan.search`. Text after the plan is ignored with a warning; with `strict`, which is
    for training, it makes the plan malformed. `may_accept` says that there is an answer of an
    earlier round: then an empty plan accepts that answer, and `all` in the first step means the
    earlier round's steps, where otherwise it means nothing.
    """
    warnings: list[str] = []

    def tolerate(where: str, fact: str, reading: str) -> None:
        warnings.append(f"{where}: {fact}; {reading}")

    plan = find(text)
    rest = text[plan.end :].strip()
    if not _CLOSING.fullmatch(rest):
        fact = f"{len(rest)} characters of text follow the plan, which must end the reply"
        if strict:
            raise MalformedPlan(PLAN, f"{fact}; write nothing after it")
        tolerate(PLAN, fact, "they were ignored")
    if not any(plan.lists.values()):
        if may_accept:
            return ParsedPlan(None, tuple(warnings))
        raise MalformedPlan(PLAN, "it has no steps; write at least one, there is no answer yet")
    _check_lengths(plan.lists, max_steps)
    if STEPS in plan.lists:
        steps = read_steps(plan.lists[STEPS], pool, tolerate)
    else:
        steps = _steps_of_lists(plan.lists, pool, tolerate)
    if steps[0].access == "all" and not may_accept:
        steps = (replace(steps[0], access=()), *steps[1:])
    return ParsedPlan(Workflow(steps), tuple(warnings))


def _check_lengths(lists: Mapping[str, Sequence[object]], max_steps: int) -> None:
    """One entry for each step in every list, and not too many of them."""
    lengths = {label: len(entries) for label, entries in lists.items()}
    if len(set(lengths.values())) > 1:
        counts = list(lengths.values())
        odd = [label for label, length in lengths.items() if counts.count(length) == 1]
        told = ", ".join(f"{label} has {length}" for label, length in lengths.items())
        raise MalformedPlan(
            odd[0] if len(odd) == 1 else PLAN,
            f"the lists differ in length: {told}; give each of them one entry for each step",
        )
    steps = max(lengths.values())
    if steps > max_steps:
        raise MalformedPlan(
            PLAN, f"it has {steps} steps; write at most {max_steps}, joining some of them"
        )


def _steps_of_lists(
    lists: Mapping[str, Sequence[object]], pool: Pool, tolerate: Tolerate
) -> tuple[Step, ...]:
    steps = []
    for index, entries in enumerate(zip(*(lists[label] for label in LISTS), strict=True)):
        worker, subtask, access = (
            Entry(label, f"entry {index}", value)
            for label, value in zip(LISTS, entries, strict=True)
        )
        name = worker_name(worker, pool)
        if worker.value == name:
            fact = f"entry {index} is the name {worker.shown}, and ids belong there"
            tolerate(MODEL_ID, fact, f"it was read as {pool.index(name)}")
        steps.append(Step(name, subtask_text(subtask), access_of(access, index, tolerate)))
    return tuple(steps)
