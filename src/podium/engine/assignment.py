"""What an execution is given: the workflow and what it works on, and the run that it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from podium.core.budget import Ledger
from podium.core.events import Emit
from podium.core.pool import Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Message, ResponseOptions
from podium.core.run import Round, Run, StepRecord
from podium.core.toolbox import Toolbox
from podium.core.workflow import Workflow
from podium.engine.inspection import Inspection


@dataclass(frozen=True, slots=True)
class Delegation:
    """A step handed to a conductor: the question of the nested run, what it may read as the
    conversation before it, which step it is, whether its answer is to be streamed, the nested run
    that was begun before an interruption, if there was one, and what is demanded of the answer."""

    question: str
    history: tuple[Message, ...]
    step: int
    stream: bool
    begun: Run | None
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS


Nest = Callable[[Delegation, Callable[[Run], None]], Awaitable[None]]
"""Carries out a nested run. The second argument takes the run whenever it has got further, and
as it ends, even when it ends by being cancelled; raises `BudgetExhausted` when the budget ended
before the run had an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The run that a workflow is carried out for.

    `started` is when it began, by the switchboard's clock; `emit` is None when nobody watches;
    `nest` answers a step whose worker is a conductor. `call_ids` are those of all tool calls so
    far, in the run and in those around it: no two calls may share one. `inspection` is None where
    no guardrail looks at replies.
    """

    run_id: str
    ledger: Ledger
    emit: Emit | None
    started: float
    nest: Nest
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    inspection: Inspection | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A workflow and what it works on.

    `previous` are rounds before, which a step with access to `all` may read too; `answers` says
    whether the last step's reply is meant for the user. `finished`
    are steps of this very workflow that were carried out before an interruption; those of them
    that failed are tried again, unless `keeps_failures`. `images` belong to the question,
    `response_options` are demanded of the answer.
    """

    workflow: Workflow
    question: str
    pool: Pool
    history: tuple[Message, ...] = ()
    round: int = 0
    previous: tuple[Round, ...] = ()
    answers: bool = True
    finished: Mapping[int, StepRecord] = field(default_factory=dict)
    keeps_failures: bool = False
    images: tuple[Image, ...] = ()
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
