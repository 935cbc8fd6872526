"""The workflow: a conductor writes it, the engine executes it. Start reading here.

Podium answers a question with several models. A small model, the conductor, reads the question and
a pool of workers and writes a workflow: a short list of steps. Each step gives one worker one
subtask in plain language and names the earlier steps whose results that worker may read. Nothing
else of the workflow reaches it. The last step's reply is the answer.

    Workflow((
        Step("gpt-5", "Solve it algebraically"),
        Step("gemini-2.5-pro", "Solve it by cases"),
        Step("claude-sonnet-4", "Compare the two and give the answer", access=(0, 1)),
    ))

Steps 0 and 1 run at once, and step 2 waits for both. A step may have a condition: it runs only if
an earlier step failed, or if the answers of earlier steps differ; then the answer is the reply of
the last step that ran. Planning and execution make a round. With more
rounds, the conductor sees the answer and accepts it or plans again. A run is a question with all
its rounds, calls, tokens and costs; one budget caps it. A worker may be a conductor itself: its
step is a nested run.

From here: `pool` and `worker` (who answers), `request` (what they are asked and what that uses),
`conductor` (who plans), `run` and `events` (what is recorded), `budget` (what it may cost). Text
becomes a workflow in `podium.conductors.plan`; `podium.engine` executes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from podium.core.errors import InvalidWorkflow, UnknownWorker

DEFAULT_MAX_STEPS: Final = 5

Access = Literal["all"] | tuple[int, ...]
"""`"all"`, or the indices of the earlier steps that a step may read; `()` is none of them.

From the second round on, `"all"` also includes every step of the round before."""


Predicate = Literal["failed", "differs"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A step runs only if this is true of earlier steps, which it waits for.

    `failed`: that step failed, or the program it ran did. `differs`: one of the steps has no reply,
    or their answers are not the same. A reply can only make it true or false.
    Written as `failed 1` or `differs 0 1`.
    """

    predicate: Predicate
    steps: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.predicate} {' '.join(map(str, self.steps))}"

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read the written form; raises `InvalidWorkflow`."""
        found = _CONDITION.fullmatch(text.strip().lower())
        if found is None:
            raise InvalidWorkflow(f"{text[:40]!r} is not a condition; {CONDITION_FORM}")
        predicate: Predicate = "failed" if found[1] == "failed" else "differs"
        return cls(predicate, tuple(int(number) for number in re.findall(r"[0-9]+", found[2])))

    def check(self, index: int) -> None:
        """Raise `InvalidWorkflow` if it cannot be the condition of step `index`."""
        named = set(self.steps)
        is_enough = len(named) >= 2 if self.predicate == "differs" else len(named) == 1
        if not is_enough or len(named) < len(self.steps) or not named <= set(range(index)):
            raise InvalidWorkflow(f"the condition of step {index} is '{self}'; {CONDITION_FORM}")


CONDITION_FORM: Final = 'write "failed 0" or "differs 0 1", with indices of earlier steps'
_CONDITION: Final = re.compile(r"(failed|differs)((?:[\s,]+[0-9]{1,3}){1,20})")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a workflow.

    Args:
        worker: The name of the worker.
        subtask: What it is asked, in plain language.
        access: `"all"`, or the indices of the earlier steps that it may read.
        condition: When it runs; by default always.

    """

    worker: str
    subtask: str
    access: Access = ()
    condition: Condition | None = None


class Shape(StrEnum):
    """The topology of a workflow, after dropping reads that another read already implies."""

    ONE_SHOT = "one-shot"
    CHAIN = "chain"
    JOIN = "fan-out/join"
    TREE = "tree"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps in order; the last one's reply is the answer.

    Args:
        steps: At least one.

    Raises:
        InvalidWorkflow: It cannot be executed, such as a step that reads a later one.

    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidWorkflow("the workflow has no steps; give it at least one")
        for index, step in enumerate(self.steps):
            if not step.subtask.strip():
                raise InvalidWorkflow(f"step {index} has an empty subtask; say what to do")
            if step.access != "all":
                _check_access(index, step.access)
            if step.condition is not None:
                step.condition.check(index)

    def __len__(self) -> int:
        return len(self.steps)

    def reads(self, index: int) -> tuple[int, ...]:
        """Return the earlier steps whose subtask and reply step `index` receives, in order."""
        access = self.steps[index].access
        return tuple(range(index)) if access == "all" else access

    def waits_for(self, index: int) -> tuple[int, ...]:
        """Return the earlier steps that step `index` waits for: its reads and its condition's."""
        condition = self.steps[index].condition
        if condition is None:
            return self.reads(index)
        return tuple(sorted({*self.reads(index), *condition.steps}))

    @property
    def earliest_answer_step(self) -> int:
        """The last step without a condition: the answer comes from it or from a later step."""
        last = len(self.steps) - 1
        return next(i for i in range(last, -1, -1) if self.steps[i].condition is None)

    def check(self, workers: Collection[str], max_steps: int = DEFAULT_MAX_STEPS) -> None:
        """Raise for a workflow that is too long or names a worker outside the pool."""
        if len(self.steps) > max_steps:
            raise InvalidWorkflow(
                f"the workflow has {len(self.steps)} steps and at most {max_steps} are allowed; "
                f"shorten it or raise max_steps"
            )
        for step in self.steps:
            if step.worker not in workers:
                raise UnknownWorker(step.worker, tuple(workers))

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Steps grouped by when they can start: each level waits only for those before it."""
        level_of: list[int] = []
        for index in range(len(self.steps)):
            level_of.append(1 + max((level_of[i] for i in self.waits_for(index)), default=-1))
        return tuple(
            tuple(index for index, level in enumerate(level_of) if level == wanted)
            for wanted in range(max(level_of) + 1)
        )

    @property
    def width(self) -> int:
        """The most steps that can run at once."""
        return max(len(level) for level in self.levels)

    @property
    def shape(self) -> Shape:
        """The topology."""
        last = len(self.steps) - 1
        if last == 0:
            return Shape.ONE_SHOT
        reads = self._direct_reads()
        readers = [sum(index in read for read in reads) for index in range(last)]
        if self.width == 1:
            return Shape.CHAIN
        if not any(reads[:last]) and len(reads[last]) == last:
            return Shape.JOIN
        if all(count == 1 for count in readers):
            return Shape.TREE
        return Shape.MIXED

    def _direct_reads(self) -> list[set[int]]:
        """Return each step's reads without those implied by another of its reads."""
        reachable: list[set[int]] = []
        direct: list[set[int]] = []
        for index in range(len(self.steps)):
            reads = set(self.reads(index))
            implied = set[int]().union(*(reachable[read] for read in reads))
            direct.append(reads - implied)
            reachable.append(reads | implied)
        return direct


def _check_access(index: int, access: tuple[int, ...]) -> None:
    for read in access:
        if read < 0 or read >= index:
            raise InvalidWorkflow(
                f"step {index} may not read step {read}; a step reads only earlier ones"
                + (f" (0 to {index - 1})" if index else " and this is the first")
            )
    if list(access) != sorted(set(access)):
        raise InvalidWorkflow(
            f"step {index} names the steps it may read as {list(access)}; "
            f"name each once, in ascending order"
        )
