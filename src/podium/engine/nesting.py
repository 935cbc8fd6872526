"""A step whose worker is a conductor: the run that is nested in it, and what becomes of that.

How a nested run is performed is not known here; the scope of an execution says who does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.demands import before_the_end
from podium.engine.assignment import Delegation
from podium.engine.inspection import holds_answer
from podium.errors import PromptTooLong, WorkerError
from podium.request import Message, Reply, assistant, user
from podium.run import Run

if TYPE_CHECKING:
    from podium.engine.execution import Execution


def delegation_of(execution: Execution, index: int, nested: Sequence[Run]) -> Delegation:
    """The step as a run of its own: the subtask is its question, and what the step may read comes
    before it as conversation. The last of the runs that were nested in the step goes on, where it
    did not come to its end."""
    assignment = execution.assignment
    is_final = index == execution.final
    history: list[Message] = list(assignment.history)
    for pair in execution.pairs(index):
        history += (user(pair.subtask), assistant(pair.reply))
    begun = nested[-1] if nested else None
    if begun is not None and begun.status not in ("running", "interrupted", "waiting"):
        begun = None
    return Delegation(
        assignment.workflow.steps[index].subtask,
        tuple(history),
        index,
        execution.stream and is_final and not holds_answer(execution),
        begun,
        assignment.terms if is_final else before_the_end(assignment.terms),
    )


def taken_up(nested: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs nested in a step that is resumed. The last one goes on although it ended, as the run
    around it does: what is done of it is not to be paid for again."""
    if nested and nested[-1].status in ("failed", "exhausted", "answered"):
        return (*nested[:-1], replace(nested[-1], status="interrupted"))
    return nested


def with_run(nested: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """The runs nested in a step with that one as it stands now, in place of what it was before."""
    before = nested[:-1] if nested and nested[-1].id == run.id else nested
    return (*before, run)


def reply_of(nested: Run) -> Reply:
    """What the run came to, as the step's reply; raises `WorkerError` where it has no answer."""
    if nested.answer is None:
        error = PromptTooLong if nested.too_long else WorkerError
        raise error(nested.error or "the nested run gave no answer")
    final = nested.rounds[-1].final
    return Reply(
        nested.answer,
        finish=nested.final_finish,
        thinking=final.thinking if final is not None else (),
        stop_sequence=nested.final_stop_sequence,
    )
