"""The run: a question and everything that was done to answer it.

A run is a value. The engine builds it, the store keeps it, and every page, table and export is
made from it. As JSON it carries `version`; `load` refuses other versions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, NamedTuple, final

from pydantic import TypeAdapter, ValidationError

from podium.core.budget import DEFAULT_BUDGET, NOTHING_SPENT, Budget, Spent
from podium.core.errors import PlanError, UnreadableRun, UsageError
from podium.core.frozen import fast_init
from podium.core.notebook import render_run
from podium.core.pool import Pool
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    NO_USAGE,
    Finish,
    Image,
    Message,
    Reply,
    ResponseOptions,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    unanswered_calls,
)
from podium.core.routing import RoutingRecord
from podium.core.workflow import Access, Workflow


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to one worker. Times count from the run's start."""

    worker: str
    usage: Usage
    cost_usd: float | None
    started_ms: float
    finished_ms: float
    error: str | None = None

    @property
    def was_sent(self) -> bool:
        """False if the worker's circuit was open and it was not called."""
        took_no_time = self.started_ms == self.finished_ms
        return not (took_no_time and self.error is not None and self.usage == NO_USAGE)


def total_usage(calls: Iterable[Attempt]) -> Usage:
    """Add the calls' tokens."""
    return sum((call.usage for call in calls), NO_USAGE)


def total_cost(calls: Iterable[Attempt]) -> float | None:
    """Add the calls' costs; None if one is unknown."""
    costs = [call.cost_usd for call in calls]
    known = [cost for cost in costs if cost is not None]
    return sum(known, 0.0) if len(known) == len(costs) else None


class Totals(NamedTuple):
    """The usage and cost of calls, and the conductor's part of the usage."""

    usage: Usage
    total_tokens: int | None
    cost_usd: float | None
    orchestration: Usage = NO_USAGE


def add_totals(calls: Iterable[Attempt]) -> Totals:
    """Add the calls' tokens and costs."""
    calls = tuple(calls)
    usage = total_usage(calls)
    return Totals(usage, usage.total_tokens, total_cost(calls))


GuardrailStage = Literal["question", "reply", "answer"]
"""The input of a guardrail: the question with its conversation, each reply, or the answer."""

GuardrailAction = Literal["passed", "noted", "redacted", "blocked", "replanned"]
"""The action of a guardrail. `replanned`: it asked for another plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailCheck:
    """The action of a guardrail on one text; a plain pass leaves none.

    `attempts` are calls to a verifier. `step` is None for the question and for an answer that no
    final step gave. Checks are kept on the step whose reply it was, else on the run.
    """

    guardrail: str
    stage: GuardrailStage
    action: GuardrailAction
    reason: str = ""
    round: int = 0
    step: int | None = None
    worker: str = ""
    attempts: tuple[Attempt, ...] = ()


RUN_VERSION: Final = 1
"""The version of a run's JSON; a run of another version is refused."""

DIRECT: Final = "direct"
"""The conductor on record where a worker was called by its own name."""

Tier = Literal["mini", "podium", "ultra"]
"""The planning that a question gets: none, as much as it seems to need, or all of it."""

StepStatus = Literal["done", "failed", "skipped", "cancelled", "waiting"]
"""`waiting`: the worker called the client's tools and needs their results."""

RunStatus = Literal[
    "running", "answered", "partial", "failed", "exhausted", "interrupted", "waiting"
]
"""`partial`: the plan failed, the answer is the best so far, `error` says why. `exhausted`: the
budget ended before any answer. `interrupted`: stopped, can be resumed. `waiting`: needs results of
the client's tools, can be resumed with them."""


@final
@fast_init
@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step that ended or waits; a final step that was cut off keeps what it had streamed.

    Attributes:
        round, index: Its numbers, from 0.
        worker, subtask, access: Its part of the plan.
        status, finish, error: How it ended, and why the reply ended.
        reply, thinking, stop_sequence: What the worker answered.
        prompt: The exact message to the worker.
        attempts: Every call; `started_ms` and `finished_ms` count from the run's start.
        answered_by: Differs from `worker` if a fallback took over.
        nested: The runs of a step whose worker is a conductor; the last one counts.
        turns: The tool and repair turns between prompt and reply.
        guardrail_checks: What guardrails did to the reply.
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
    guardrail_checks: tuple[GuardrailCheck, ...] = ()

    @property
    def calls(self) -> Iterator[Attempt]:
        """Every call of this step, nested runs and verifiers included."""
        yield from self.attempts
        for check in self.guardrail_checks:
            yield from check.attempts
        for run in self.nested:
            yield from run.calls

    @property
    def is_unneeded(self) -> bool:
        """True if the step's condition was false, so that it did not run."""
        return self.status == "skipped" and self.error is None

    @property
    def has_failed(self) -> bool:
        """True if the step has no reply though it was needed, or an error as its reply."""
        if self.status == "done":
            return self.finish == "error"
        return not self.is_unneeded

    @property
    def usage(self) -> Usage:
        """Tokens over every call of this step."""
        return total_usage(self.calls)

    @property
    def cost_usd(self) -> float | None:
        """Money over every call of this step; None when a part is unknown."""
        return total_cost(self.calls)

    @property
    def totals(self) -> Totals:
        """Tokens and money over every call of this step."""
        return add_totals(self.calls)

    @property
    def waiting_for(self) -> tuple[ToolCall, ...]:
        """The tool calls whose results this step, or its nested run, needs."""
        if self.status != "waiting":
            return ()
        return unanswered_calls(self.turns) or (
            self.nested[-1].pending_tool_calls if self.nested else ()
        )


TurnRole = Literal["thinker", "worker", "verifier"]
"""The purpose of a round, where its conductor assigns roles."""

ANSWER_ROLES: Final = (None, "worker")
"""Roles of rounds whose final reply is for the user."""


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Round:
    """One plan-and-execute pass.

    `index` counts from 0; `steps` of the `workflow` ended or wait; `warnings` are of its parser.
    `accepts_answer` means that the conductor accepted the previous round's answer. A round that has
    no workflow and does not accept is one whose planning was cut off. `planning_attempts` are the
    conductor's calls, `plan_text` what it wrote. Steps of a round with a `role` may read every
    earlier round. `routing` is a learned router's decision. `cancelled_steps` are those that began
    while the plan was written and that it does not contain: their calls count, their replies are
    dropped.
    """

    index: int
    workflow: Workflow | None
    steps: tuple[StepRecord, ...] = ()
    planning_attempts: tuple[Attempt, ...] = ()
    plan_text: str = ""
    warnings: tuple[str, ...] = ()
    accepts_answer: bool = False
    role: TurnRole | None = None
    routing: RoutingRecord | None = None
    cancelled_steps: tuple[StepRecord, ...] = ()

    @property
    def has_answer_role(self) -> bool:
        """True if the last step's reply is for the user."""
        return self.role in ANSWER_ROLES

    @property
    def uses_router_choice(self) -> bool:
        """True if a router chose the only worker, whose answer stands."""
        return self.routing is not None and not self.routing.escalated

    @property
    def answer_step(self) -> StepRecord | None:
        """The last step that its condition let run, if it is done and its reply is an answer."""
        if self.workflow is None or not self.has_answer_role:
            return None
        last = len(self.workflow.steps) - 1
        if self.steps and self.steps[-1].index == last and self.steps[-1].status == "done":
            step = self.steps[-1]  # mostly
        else:
            steps = {step.index: step for step in self.steps}
            while last in steps and steps[last].is_unneeded:
                last -= 1
            if last not in steps or steps[last].status != "done":
                return None
            step = steps[last]
        return None if step.finish == "error" else step

    @property
    def is_unfinished(self) -> bool:
        """True if a step of the workflow is not done, though it is needed."""
        done = sum(step.status == "done" or step.is_unneeded for step in self.steps)
        return self.workflow is not None and done < len(self.workflow.steps)


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """The API request that a run answers: its fingerprint, and the fields that its response
    repeats."""

    fingerprint: str = ""
    stored_fields: Mapping[str, Any] = field(default_factory=dict)


NO_REQUEST: Final = ClientRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponse:
    """A response of a run, and the results that the tools it called got.

    `usage` and `orchestration` are those of the run until then.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    request: ClientRequest = NO_REQUEST


@final
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A question, all its rounds, and how it ended.

    Attributes:
        id, owner, created_at, version: Its name, whose it is, and the form of its JSON.
        status, answer, error: How it ended.
        question, images, history: What was asked, and the conversation before it.
        rounds: Every plan with its steps.
        conductor, pool, tier: Who planned, over which workers, and how much.
        max_steps, max_rounds, budget, exclude, response_options, quality_bias: Its options.
        spent: What its budget was charged.
        depth: How deep it is nested.
        trailing_messages: Those after the question: tool calls and results, or the answer's start.
        context_exceeded: It failed because a prompt exceeded a context window.
        request_refused: A provider rejected the API key or the request; resuming fails again.
        error_status: The HTTP status of the worker's failure that `error` reports.
        retry_after: Seconds to wait that came with it.
        exhausted_cap: The budget cap that stopped it.
        guardrails: The names of the guardrails in force.
        guardrail_checks: Guardrail checks of the question, or of an answer that no final step gave.
        blocked_by: The guardrail that ended it. A blocked question is not kept.
        process: The process that performs it.
        prompt_hash: A fingerprint of the prompts that shaped it.
        request: The API request that its current response answers, if it answers one.
        earlier_responses: Its responses before the current one.
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
    budget: Budget = DEFAULT_BUDGET
    spent: Spent = NOTHING_SPENT
    history: tuple[Message, ...] = ()
    trailing_messages: tuple[Message, ...] = ()
    exclude: tuple[str, ...] = ()
    depth: int = 0
    prompt_hash: str = ""
    process: str = ""
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    images: tuple[Image, ...] = ()
    owner: str = ""
    context_exceeded: bool = False
    request_refused: bool = False
    error_status: int | None = None
    retry_after: float | None = None
    exhausted_cap: str = ""
    guardrails: tuple[str, ...] = ()
    guardrail_checks: tuple[GuardrailCheck, ...] = ()
    blocked_by: str = ""
    quality_bias: float | None = None
    request: ClientRequest = NO_REQUEST
    earlier_responses: tuple[RunResponse, ...] = ()
    version: int = RUN_VERSION

    def _repr_html_(self) -> str:
        """Return the run for a notebook: answer, plan, graph and cost."""
        return render_run(self)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The history, with the question and what follows it if anything does."""
        if not self.trailing_messages:
            return self.history
        return (*self.history, self.question_message, *self.trailing_messages)

    @property
    def question_message(self) -> Message:
        """The question with its images."""
        text = (Text(self.question),) if self.question else ()
        return Message("user", (*self.images, *text))

    @property
    def direct_worker(self) -> str:
        """The worker that was called by its own name, without a plan; empty if none was."""
        return self.steps[0].worker if self.conductor == DIRECT else ""

    @property
    def current_response(self) -> RunResponse:
        """The current response, without results."""
        reply = self.final_reply
        return RunResponse(
            text=reply.text,
            tool_calls=reply.tool_calls,
            thinking=reply.thinking,
            usage=self.usage,
            orchestration=self.orchestration,
            request=self.request,
        )

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps of every round, in order."""
        return tuple(step for round_ in self.rounds for step in round_.steps)

    @property
    def cancelled_steps(self) -> tuple[StepRecord, ...]:
        """The steps that began before their plan was complete, and were not part of it."""
        return tuple(step for round_ in self.rounds for step in round_.cancelled_steps)

    @property
    def calls(self) -> Iterator[Attempt]:
        """Every call of the run: planning, steps, nested runs and verifiers."""
        for check in self.guardrail_checks:
            yield from check.attempts
        for round_ in self.rounds:
            yield from round_.planning_attempts
            for step in (*round_.steps, *round_.cancelled_steps):
                yield from step.calls

    @property
    def all_guardrail_checks(self) -> Iterator[GuardrailCheck]:
        """Every guardrail check of the run, nested runs included."""
        yield from self.guardrail_checks
        for step in (*self.steps, *self.cancelled_steps):
            for nested in step.nested:
                yield from nested.all_guardrail_checks
            yield from step.guardrail_checks

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
    def totals(self) -> Totals:
        """Tokens and money over every call, and the conductor's part."""
        return add_totals(self.calls)._replace(orchestration=self.orchestration)

    @property
    def waiting_for(self) -> tuple[ToolCall, ...]:
        """The tool calls whose results a waiting run needs."""
        return self.pending_tool_calls if self.status == "waiting" else ()

    @property
    def _answer_thinking(self) -> tuple[Thinking, ...]:
        if not self.rounds:
            return ()
        if self.status != "waiting":
            final = self.rounds[-1].answer_step
            return final.thinking if final is not None else ()
        step = self.rounds[-1].steps[-1]
        if not step.turns:
            return step.nested[-1]._answer_thinking if step.nested else ()
        calling = [turn for turn in step.turns if turn.role == "assistant"][-1]
        return tuple(part for part in calling.parts if isinstance(part, Thinking))

    @property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of waiting steps, even if the run itself ended."""
        if not self.rounds:
            return ()
        return tuple(call for step in self.rounds[-1].steps for call in step.waiting_for)

    @property
    def final_reply(self) -> Reply:
        """The answer as one reply; of a waiting run, what came with the calls it waits for.

        Its finish is `length` if the answer was cut off, and `refused` if a guardrail blocked it.
        """
        step: StepRecord | None = None
        finish: Finish = "stop"
        if self.status == "waiting":
            finish = "tool"
        elif self.answer is not None:
            step = streamed_answer_step(self.rounds)
            finish = step.finish if step is not None and step.status == "done" else "length"
        if self.blocked_by and self.status != "waiting":
            finish = "refused"
        return Reply(
            self.answer or "",
            finish=finish,
            tool_calls=self.waiting_for,
            thinking=self._answer_thinking,
            stop_sequence=step.stop_sequence if step is not None else "",
        )


def _planning_calls(run: Run) -> Iterator[Attempt]:
    for round_ in run.rounds:
        yield from round_.planning_attempts
        for step in round_.steps:
            for nested in step.nested:
                yield from _planning_calls(nested)


def answer_steps(rounds: Sequence[Round]) -> list[StepRecord]:
    """Return the answer step of each round that has one."""
    return [step for round_ in rounds if (step := round_.answer_step) is not None]


def best_answer_step(rounds: Sequence[Round]) -> StepRecord | None:
    """Return the last answer step, else the last step that was cut off or is done."""
    if answers := answer_steps(rounds):
        return answers[-1]
    steps = [step for round_ in rounds for step in round_.steps]
    begun = [step for step in steps if step.status == "cancelled" and step.reply]
    done = [step for step in steps if step.status == "done"]
    done = [step for step in done if step.finish != "error"] or done
    return begun[-1] if begun else done[-1] if done else None


def streamed_answer_step(rounds: Sequence[Round]) -> StepRecord | None:
    """Return the step whose reply was streamed: an answer step, else one broken off, else the
    best."""
    if answers := answer_steps(rounds):
        return answers[-1]
    steps = [step for round_ in rounds for step in round_.steps]
    sent = [step for step in steps if step.reply and step.status in ("failed", "skipped")]
    return sent[-1] if sent else best_answer_step(rounds)


def step_label(step: StepRecord, round_: Round) -> str:
    """Return the step's label in prompts of later rounds."""
    if round_.role is None:
        return f"{step.index} of the round before"
    return f"{round_.role} of turn {round_.index + 1}"


def new_run_id() -> str:
    """Make a new run id."""
    return f"run_{secrets.token_hex(8)}"


def timestamp(moment: datetime | None = None) -> str:
    """Format a moment, by default now, in UTC."""
    now = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return now.isoformat(timespec="milliseconds")


def dump(value: Run | Round | StepRecord, without: str = "") -> dict[str, Any]:
    """Return a run or a part of one as plain JSON values, without loss but for a named field."""
    excluded = {without} if without else None
    kind: Any = type(value)
    document: dict[str, Any] = _adapter(kind).dump_python(value, mode="json", exclude=excluded)
    return document


def load(document: Mapping[str, Any]) -> Run:
    """Read what `dump` wrote; raise `UnreadableRun`."""
    version = document.get("version")
    if version != RUN_VERSION:
        raise UnreadableRun(f"this run has version {version!r}, expected {RUN_VERSION}")
    try:
        run: Run = _adapter(Run).validate_python(dict(document))
        return run
    except ValidationError as error:
        raise UnreadableRun(f"this run cannot be read: {error.errors()[0]['msg']}") from error
    except (PlanError, UsageError) as error:
        raise UnreadableRun(f"this run cannot be read: {error}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
