"""What a worker was asked, from the record of its step.

A record holds the message that was composed for the step, and what was said in it since. What
else the worker was given, the conversation before and the tools, follows from the run by the very
code that asked it (`requests`), so it is rebuilt here and not kept a second time.
"""

from __future__ import annotations

from podium.engine.assignment import Assignment
from podium.engine.requests import request_for, tools_for
from podium.engine.toolbox import Toolbox, toolbox_excluding
from podium.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.request import Request
from podium.run import Round, Run, StepRecord


def asked_last(run: Run, step: StepRecord) -> WorkerProfile | None:
    """The worker that answered the step, or was the last to be asked; None where the run's pool
    no longer says who that is."""
    tried = step.attempts[-1].worker if step.attempts else step.worker
    name = step.answered_by or tried
    return run.pool[name] if name in run.pool.names else None


def request_of(
    run: Run, round_: Round, step: StepRecord, toolbox: Toolbox | None = None
) -> Request | None:
    """What that worker had been asked when it gave its reply, or when the step ended without one.

    None where no worker was asked: the step was skipped, was answered by a run of its own, or its
    message is not on record. `toolbox` holds tools of Podium's own, which are not part of a run.
    After a call that broke off in mid-reply, the next one was also given what had been said, and
    asked to go on; a record does not hold where that was.
    """
    profile, workflow = asked_last(run, step), round_.workflow
    if profile is None or workflow is None or not step.prompt:
        return None
    if profile.provider == CONDUCTOR_PROVIDER:
        return None
    assignment = Assignment(
        workflow=workflow,
        question=run.question,
        pool=run.pool,
        history=run.history,
        round=round_.index,
        images=run.images,
        terms=run.terms,
    )
    is_final = round_.answers and step.index == len(workflow) - 1
    own = toolbox_excluding(toolbox, run.exclude)
    tools = tools_for(profile, run.terms, own, is_final=is_final)
    return request_for(profile, step.prompt, assignment, step.turns, tools, is_final=is_final)
