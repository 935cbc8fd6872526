"""The run: a question and everything that was done to answer it.

A run is a value. The engine builds it, the store keeps it, and every page, table and export is
made from it. As JSON it carries `version`; `load` reads every version that was ever written.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, final

from pydantic import TypeAdapter, ValidationError

from podium.core.budget import Budget, Spent
from podium.core.errors import PlanError, UnreadableRun, UsageError
from podium.core.frozen import fast_init
from podium.core.pool import Pool
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Finish,
    Image,
    Message,
    ResponseOptions,
    Thinking,
    ToolCall,
    unanswered_calls,
)
from podium.core.usage import NO_USAGE, Usage, add
from podium.core.workflow import Access, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRecord:
    """One decision. `scores` are what the router expected of each worker that could take the
    question, `quality_bias` how much quality counted over cost (0 the cheapest, 1 the best), and
    `router` the fingerprint of its file. What was `escalated` the conductor planned: for nobody the
    confidence was as high as `needed`, and the `worker` is who came nearest."""

    worker: str
    confidence: float
    scores: Mapping[str, float]
    quality_bias: float
    router: str
    needed: float = 0.0
    escalated: bool = False

    @property
    def sentence(self) -> str:
        """The decision in words."""
        others = sorted(self.scores.items(), key=lambda each: -each[1])
        expected = ", ".join(f"{name} {score:.2f}" for name, score in others)
        if self.escalated:
            verdict = (
                f"chose nobody at quality bias {self.quality_bias:g}, so the conductor planned; "
                f"it was surest of "
                f"{self.worker}, with confidence {self.confidence:.2f} where {self.needed:.2f} is "
                f"needed"
            )
        else:
            verdict = (
                f"chose {self.worker} with confidence {self.confidence:.2f} "
                f"at quality bias {self.quality_bias:g}"
            )
        return f"the router {self.router} {verdict}; expected of each: {expected}"


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to one worker, whether it succeeded or not. Times count from the run's start."""

    worker: str
    usage: Usage
    cost_usd: float | None
    started_ms: float
    finished_ms: float
    error: str | None = None

    @property
    def was_made(self) -> bool:
        """Whether the worker was called at all: one that is left alone, for it has failed too
        often, is refused in no time and for nothing."""
        took_no_time = self.started_ms == self.finished_ms
        return not (took_no_time and self.error is not None and self.usage == NO_USAGE)


def total_usage(calls: Iterable[Attempt]) -> Usage:
    """The sum of the calls' tokens."""
    return sum((call.usage for call in calls), NO_USAGE)


def total_cost(calls: Iterable[Attempt]) -> float | None:
    """The sum of the calls' cost, unknown as soon as one is."""
    total: float | None = 0.0
    for call in calls:
        total = add(total, call.cost_usd)
    return total


GuardrailStage = Literal["question", "reply", "answer"]
"""Where guardrails look: at the question with the conversation before it, at each worker's reply,
and at the answer."""

GuardrailAction = Literal["passed", "noted", "redacted", "blocked", "replanned"]
"""What a guardrail did. `replanned`: it demanded another plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailCheck:
    """What a guardrail did in one place; one that let something through, and asked nobody, did
    nothing and leaves none. `attempts` are its calls to a verifier. `round`, `step` and `worker`
    say whose reply it was; of the question, and of an answer that no final step gave, `step` is
    None. It stands on the step whose reply it was, else on the run."""

    guardrail: str
    stage: GuardrailStage
    action: GuardrailAction
    reason: str = ""
    round: int = 0
    step: int | None = None
    worker: str = ""
    attempts: tuple[Attempt, ...] = ()


RUN_VERSION: Final = 4
"""Version 2 added terms, images, the owner, and steps that wait for the results of tools; version 3
what guardrails did; version 4 the roles of rounds, the quality bias, and what a router decided.
What an older version lacks has its default."""

Tier = Literal["mini", "podium", "ultra"]
"""How much conducting a question gets: none, as much as it seems to need, or all of it."""

StepStatus = Literal["done", "failed", "skipped", "cancelled", "waiting"]
"""`waiting`: the worker called tools of the client, whose results it needs to go on."""

RunStatus = Literal[
    "running", "answered", "partial", "failed", "exhausted", "interrupted", "waiting"
]
"""`partial`: not what was planned, but the best answer so far, with the reason in `error`.
`exhausted`: the budget ended before there was any answer. `interrupted`: stopped from outside,
and can be resumed. `waiting`: nothing can go on without the results of tools that the client
carries out; with them it can be resumed."""


@final
@fast_init
@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step that has ended or waits: what was asked, what came back, and what it took.

    A final step that was cut off while its reply streamed keeps what had come of it.
    `prompt` is the message that the worker received, word for word. `answered_by` differs from
    `worker` when a fallback took over. `finish` is why the reply ended, as the provider has it,
    and `stop_sequence` the one that ended it, where the provider tells.
    `nested` are the runs behind a step whose worker was a conductor, the last one being the one
    that counted; their calls are the step's calls. `turns` is what passed between the prompt and
    the reply, where the worker used tools or was asked again: what it said and called, and what
    it was told. Only this step ever sees them. `thinking` is what the worker thought before its
    reply. `checks` are what guardrails did to the reply, which stands here as they left it.
    """

    round: int
    index: int
    worker: str
    subtask: str
    access: Access
    status: StepStatus
    reply: str
    error: str | None
    started_ms: float
    finished_ms: float
    attempts: tuple[Attempt, ...] = ()
    prompt: str = ""
    answered_by: str = ""
    finish: Finish = "stop"
    nested: tuple[Run, ...] = ()
    turns: tuple[Message, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    stop_sequence: str = ""
    checks: tuple[GuardrailCheck, ...] = ()

    @property
    def calls(self) -> Iterator[Attempt]:
        """Every call made for this step, those of a nested run and of verifiers included."""
        yield from self.attempts
        for check in self.checks:
            yield from check.attempts
        for run in self.nested:
            yield from run.calls

    @property
    def usage(self) -> Usage:
        """Tokens over every call of this step."""
        return total_usage(self.calls)

    @property
    def cost_usd(self) -> float | None:
        """Money over every call of this step; None when a part is unknown."""
        return total_cost(self.calls)

    @property
    def waiting_for(self) -> tuple[ToolCall, ...]:
        """The calls whose results this step, or the run nested in it, needs to go on."""
        if self.status != "waiting":
            return ()
        return unanswered_calls(self.turns) or (
            self.nested[-1].pending_tool_calls if self.nested else ()
        )


TurnRole = Literal["thinker", "worker", "verifier"]
"""What a round is there for, where its conductor gives roles: to think ahead, to do the work, or
to judge what was done."""

ANSWERING: Final = (None, "worker")
"""The roles of rounds whose final reply is meant for the user; without roles, every one is."""


@dataclass(frozen=True, slots=True)
class Round:
    """One plan-and-execute pass.

    `accepted` is set, and there is no workflow, when the conductor took the answer of the round
    before as it was; with neither, planning did not come to an end. `planning` are the
    conductor's own calls, `plan_text` is what it wrote. A round with a `role` is a turn: its steps
    may read those of every round before. `routed` is what a learned router decided, where one was
    asked.
    """

    index: int
    workflow: Workflow | None
    steps: tuple[StepRecord, ...] = ()
    planning: tuple[Attempt, ...] = ()
    plan_text: str = ""
    warnings: tuple[str, ...] = ()
    accepted: bool = False
    role: TurnRole | None = None
    routed: RoutingRecord | None = None

    @property
    def answers(self) -> bool:
        """Whether the last step's reply is meant for the user."""
        return self.role in ANSWERING

    @property
    def is_routed(self) -> bool:
        """Whether the round is left to the worker that a router chose, whose answer stands."""
        return self.routed is not None and not self.routed.escalated

    @property
    def final(self) -> StepRecord | None:
        """The last step of the workflow, once it is done, where its reply is an answer."""
        if self.workflow is None or not self.answers:
            return None
        last = len(self.workflow) - 1
        for step in reversed(self.steps):  # it is the first of these, as a rule
            if step.index == last and step.status == "done":
                return step
        return None

    @property
    def unfinished(self) -> bool:
        """Whether a step of the workflow is still to be carried out."""
        done = sum(step.status == "done" for step in self.steps)
        return self.workflow is not None and done < len(self.workflow)


@final
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A question, all its rounds, and how it ended.

    `response_options` are what the client demands of the answer, `images` came with the question,
    and
    `owner` is whose run it is, where that matters. `too_long` says of a run that failed that what
    was asked did not fit into a worker's window; `refused` that a provider did not accept the API
    key or the request, so that resuming fails again. `spent_cap` names the budget cap that stopped
    it. `guardrails` are the names of those that were in
    force, `checks` what they did to the question, or to an answer that no final step gave, and
    `blocked_by` the one that ended the run, where one did; a question that was blocked is not kept.
    `quality_bias` is how much quality counts over cost for a router, where that was asked for.
    """

    id: str
    question: str
    status: RunStatus
    pool: Pool
    conductor: str
    created_at: str
    rounds: tuple[Round, ...] = ()
    answer: str | None = None
    error: str | None = None
    tier: Tier = "ultra"
    max_steps: int = 5
    max_rounds: int = 1
    budget: Budget = Budget()
    spent: Spent = Spent()
    history: tuple[Message, ...] = ()
    exclude: tuple[str, ...] = ()
    depth: int = 0
    prompt_hash: str = ""
    process: str = ""
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    images: tuple[Image, ...] = ()
    owner: str = ""
    too_long: bool = False
    refused: bool = False
    spent_cap: str = ""
    guardrails: tuple[str, ...] = ()
    checks: tuple[GuardrailCheck, ...] = ()
    blocked_by: str = ""
    quality_bias: float | None = None
    version: int = RUN_VERSION

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps of every round, in order."""
        return tuple(step for round_ in self.rounds for step in round_.steps)

    @property
    def calls(self) -> Iterator[Attempt]:
        """Every call of the run: planning, steps, nested runs, and verifiers of guardrails."""
        for check in self.checks:
            yield from check.attempts
        for round_ in self.rounds:
            yield from round_.planning
            for step in round_.steps:
                yield from step.calls

    @property
    def all_checks(self) -> Iterator[GuardrailCheck]:
        """What guardrails did anywhere in the run, nested runs included."""
        yield from self.checks
        for step in self.steps:
            for nested in step.nested:
                yield from nested.all_checks
            yield from step.checks

    @property
    def usage(self) -> Usage:
        """Tokens over every call, the conductor's included."""
        return total_usage(self.calls)

    @property
    def orchestration(self) -> Usage:
        """The conductor's part of the usage, nested conductors included."""
        return total_usage(_planning_calls(self))

    @property
    def cost_usd(self) -> float | None:
        """Money over every call; None when a part is unknown."""
        return total_cost(self.calls)

    @property
    def waiting_for(self) -> tuple[ToolCall, ...]:
        """The calls whose results the run needs to go on, over all steps that wait. One that has
        ended needs none, though steps of it were left waiting."""
        return self.pending_tool_calls if self.status == "waiting" else ()

    @property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of steps that wait, whether or not the run itself still does."""
        if not self.rounds:
            return ()
        return tuple(call for step in self.rounds[-1].steps for call in step.waiting_for)

    @property
    def final_finish(self) -> Finish:
        """Why the answer ended: `tool` while the run waits, `length` where it was cut off,
        `refused` where a guardrail blocked it."""
        if self.status == "waiting":
            return "tool"
        if self.blocked_by:
            return "refused"
        if self.answer is None:
            return "stop"
        step = visible_answer_step(self.rounds)
        return step.finish if step is not None and step.status == "done" else "length"

    @property
    def final_stop_sequence(self) -> str:
        """The client's stop sequence that ended the answer, where the worker said so."""
        if self.answer is None or self.status == "waiting":
            return ""
        step = visible_answer_step(self.rounds)
        return step.stop_sequence if step is not None else ""


def _planning_calls(run: Run) -> Iterator[Attempt]:
    for round_ in run.rounds:
        yield from round_.planning
        for step in round_.steps:
            for nested in step.nested:
                yield from _planning_calls(nested)


def best_step(rounds: Sequence[Round]) -> StepRecord | None:
    """The step whose reply answers best: the last round's final one that is done, else a final
    one that was cut off in mid-answer, else the last step that is done."""
    finals = [step for round_ in rounds if (step := round_.final) is not None]
    if finals:
        return finals[-1]
    steps = [step for round_ in rounds for step in round_.steps]
    begun = [step for step in steps if step.status == "cancelled" and step.reply]
    done = [step for step in steps if step.status == "done"]
    return begun[-1] if begun else done[-1] if done else None


def visible_answer_step(rounds: Sequence[Round]) -> StepRecord | None:
    """The step whose reply a reader is left with: a final one that is done, else one that broke
    off when some of it had been told, else the best so far."""
    best = best_step(rounds)
    if best is not None and any(best is round_.final for round_ in rounds):
        return best
    steps = [step for round_ in rounds for step in round_.steps]
    told = [step for step in steps if step.reply and step.status in ("failed", "skipped")]
    return told[-1] if told else best


def step_label(step: StepRecord, round_: Round) -> str:
    """How a step is told of to those who read it in a later round."""
    if round_.role is None:
        return f"{step.index} of the round before"
    return f"{round_.role} of turn {round_.index + 1}"


def recorded_spending(run: Run) -> Spent:
    """What a run had used when it was cut off.

    What its budget counted stands on the run, unless its process died before that could be
    written; its recorded calls are always there, but a call of unknown usage adds nothing.
    """
    calls = [call for call in run.calls if call.was_made]
    return Spent(
        calls=max(run.spent.calls, len(calls)),
        tokens=max(run.spent.tokens, sum(call.usage.total_tokens or 0 for call in calls)),
        usd=max(run.spent.usd, sum(call.cost_usd or 0.0 for call in calls)),
        seconds=max(run.spent.seconds, *(call.finished_ms / 1000 for call in calls), 0.0),
    )


def new_run_id() -> str:
    """An id that is short enough to type and never repeats in practice."""
    return f"run_{secrets.token_hex(8)}"


def timestamp(moment: datetime | None = None) -> str:
    """A moment, or else now, in UTC, as stored on a run."""
    now = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return now.isoformat(timespec="milliseconds")


def dump(run: Run) -> dict[str, Any]:
    """The run as plain JSON values, losing nothing."""
    document: dict[str, Any] = _adapter().dump_python(run, mode="json")
    return document


def load(document: Mapping[str, Any]) -> Run:
    """Read what `dump` wrote."""
    version = document.get("version")
    if not isinstance(version, int) or version > RUN_VERSION:
        raise UnreadableRun(
            f"this run has version {version!r} and this Podium reads up to {RUN_VERSION}; "
            f"upgrade Podium to read it"
        )
    try:
        return _adapter().validate_python({**document, "version": RUN_VERSION})
    except ValidationError as error:
        raise UnreadableRun(f"this run cannot be read: {error.errors()[0]['msg']}") from error
    except (PlanError, UsageError) as error:
        raise UnreadableRun(f"this run cannot be read: {error}") from error


@cache
def _adapter() -> TypeAdapter[Run]:
    return TypeAdapter(Run)
