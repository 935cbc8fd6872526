"""Who takes a step over when its worker has failed, the named substitutes one after another, and
who is asked beside one that takes long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.core.errors import PromptTooLong, RequestRefused, WorkerError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Message, Reply, assistant, user
from podium.core.requirements import Needs, before_the_end, can, final_needs, needs_of_one
from podium.core.retry import Hedge
from podium.core.run import Run
from podium.engine.assignment import Assignment, Delegation
from podium.engine.inspection import holds_answer

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
        assignment.response_options if is_final else before_the_end(assignment.response_options),
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
        refusal = RequestRefused if nested.refused else WorkerError
        error = PromptTooLong if nested.too_long else refusal
        raise error(nested.error or "the nested run gave no answer")
    final = nested.rounds[-1].final
    return Reply(
        nested.answer,
        finish=nested.final_finish,
        thinking=final.thinking if final is not None else (),
        stop_sequence=nested.final_stop_sequence,
    )


def substitute_for(
    name: str, tried: list[str], assignment: Assignment, *, is_final: bool
) -> str | None:
    """The next substitute of that worker that can do what the worker was asked to do; whoever is
    looked at is added to those that were `tried`."""
    pool = assignment.pool
    needs = _needs(pool[name], assignment, is_final=is_final)
    following = pool[name].fallback
    while following is not None and following not in tried:
        tried.append(following)
        if can(pool[following], needs, pool):
            return following
        following = pool[following].fallback
    return None


def hedge_for(worker: str, hedge: Hedge, assignment: Assignment, *, is_final: bool) -> str | None:
    """Whom to ask beside that worker, if somebody is there who can do what it was asked to do. A
    conductor is not asked: its run is more than a call."""
    pool = assignment.pool
    name = hedge.to or pool[worker].fallback or worker
    if name not in pool.names or pool[name].provider == CONDUCTOR_PROVIDER:
        return None
    needs = _needs(pool[worker], assignment, is_final=is_final)
    return name if can(pool[name], needs, pool) else None


def _needs(profile: WorkerProfile, assignment: Assignment, *, is_final: bool) -> Needs:
    """What a substitute of that worker must be able to do in this step."""
    if assignment.response_options == DEFAULT_RESPONSE_OPTIONS and not assignment.images:
        return frozenset()
    response_options = (
        assignment.response_options if is_final else before_the_end(assignment.response_options)
    )
    used = profile.capabilities & needs_of_one(response_options, assignment.images)
    return used | final_needs(response_options)
