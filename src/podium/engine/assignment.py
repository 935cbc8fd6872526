"""The inputs of an execution: the workflow with its question, and the run it belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from podium.core.budget import Ledger
from podium.core.events import Emit
from podium.core.pool import Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Message, ResponseOptions
from podium.core.run import Round, Run, StepRecord
from podium.core.worker import Toolbox, Worker
from podium.core.workflow import Workflow
from podium.engine.calls import CallPolicy
from podium.engine.guardrails.admission import Inspector


@dataclass(frozen=True, slots=True)
class Delegation:
    """A step whose worker is a conductor, as the input of a nested run.

    `history` holds what the step may read; `begun` is the nested run to continue, if any.
    """

    question: str
    history: tuple[Message, ...]
    step: int
    stream: bool
    begun: Run | None
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS


Nest = Callable[[Delegation, Callable[[Run], None]], Awaitable[None]]
"""Execute a nested run. The callback gets the run after every change and at its end, also when
cancelled. Raises `BudgetExhausted` if the budget ends before there is an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The run that a workflow is executed for.

    `started` is the run's start on the call policy's clock. `call_ids` are the ids of all tool
    calls so far, those of enclosing runs included: ids must be unique. `emit` is None without
    listeners, `inspector` without guardrails on replies.
    """

    run_id: str
    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    ledger: Ledger
    emit: Emit | None
    started: float
    nest: Nest
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    inspector: Inspector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A workflow and the question it answers.

    `previous` are earlier rounds, readable with access to `all`. `answers` is False where the last
    step's reply is not for the user. `finished` are this workflow's steps from before an
    interruption; failed ones are retried unless `keeps_failures`.
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
