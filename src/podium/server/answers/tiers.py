"""One way to answer, whoever asks and in whichever dialect: a body as it was read and a visitor
in, a run and what the client gets to know of it out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Final

from podium.api import AsyncPodium
from podium.budget import Budget
from podium.conductor import Conductor, may_plan_again
from podium.errors import (
    BudgetExhausted,
    ConfigError,
    Conflict,
    NotFound,
    PlanError,
    PodiumError,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    StoreError,
    UnreadableRun,
    UsageError,
    WorkerError,
)
from podium.house import Wishes
from podium.plan import read_workflow
from podium.pool import Pool
from podium.request import Message, Text, Thinking, ToolResult
from podium.resumption import repeats
from podium.run import Run, Tier, spent_by
from podium.runner import Options
from podium.server.access import Door, Visitor
from podium.server.answers.conversation import Turn, outside, told_after, turn_of
from podium.server.answers.effort import extent
from podium.server.answers.watch import Teller, Watch
from podium.server.dialects.base import Answer, Asked
from podium.server.dialects.wishes import excluded
from podium.server.names import NAME_OF
from podium.server.records.broadcast import Broadcast
from podium.server.records.keeper import Keeper
from podium.server.records.logs import LOGGER
from podium.server.refusal import Refusal, invalid
from podium.usage import NO_USAGE, Usage

NO_RECORDS: Final = (
    "this server cannot use its records at the moment; try again later, or tell who runs it"
)
"""What a client is told of a store that fails; the log says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the client gets to know, and the run behind it, where there is one."""

    answer: Answer
    run: Run | None = None


@dataclass(slots=True)
class Bill:
    """What a request has come to, also where it was cut off before there was an answer. `run` is
    the run that it began or went on with, as that ended."""

    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    run: Run | None = None


class Answering:
    """Answers with the runs of one Podium."""

    def __init__(
        self,
        podium: AsyncPodium,
        keeper: Keeper,
        door: Door,
        *,
        pool: Pool,
        conductor: Conductor,
        options: Options,
        excludable: frozenset[str],
    ) -> None:
        self._podium = podium
        self._keeper = keeper
        self._door = door
        self._pool = pool
        self._conductor = conductor
        self._options = options
        self.broadcast = Broadcast()
        self._excludable = excludable

    async def answer(
        self,
        asked: Asked,
        visitor: Visitor,
        tier: Tier,
        bill: Bill,
        teller: Teller | None = None,
    ) -> Answered:
        """Answer with a run; raises `Refusal`. `bill` is filled in however it ends."""
        watch = Watch(
            teller,
            begun=None if asked.store else self._keeper.leave_out,
            broadcast=self.broadcast,
        )
        before: Run | None = None
        try:
            with refusals():
                turn, before = await self._taken_up(await self._turn(asked, visitor), visitor)
                if before is not None and _stands(before, turn.results):
                    run = _again(before, asked, teller)
                elif before is not None:
                    run = await self._podium.resume(
                        before,
                        results=turn.results,
                        terms=asked.terms,
                        budget=self._budget_to_go_on(before, visitor),
                        account=self._door.account_of(visitor),
                        emit=watch,
                        stream=teller is not None,
                    )
                else:
                    wishes = self.wishes(asked, turn, visitor, tier)
                    wishes["emit"], wishes["stream"] = watch, teller is not None
                    run = await self._performed(asked, turn, visitor, wishes)
        finally:
            if watch.run is not None:
                _fill(bill, watch.run, before)
        return _answered(asked, run, bill)

    async def to_plan(self, asked: Asked, visitor: Visitor, tier: Tier) -> tuple[Turn, Wishes]:
        """The question to plan for, and what the run would have."""
        turn = await self._turn(asked, visitor)
        if turn.waiting:
            raise invalid("messages", "results of tools go on with a run; ask a question to plan")
        return turn, self.wishes(asked, turn, visitor, tier)

    async def _turn(self, asked: Asked, visitor: Visitor) -> Turn:
        """The conversation, with what the server keeps of it before."""
        turn = turn_of(asked.messages)
        if asked.previous is None or turn.waiting:
            return turn
        run = await self.run(asked.previous, visitor, "previous_response_id")
        if run.status == "waiting":
            raise invalid(
                "previous_response_id",
                f"{asked.previous} waits for the results of {len(run.waiting_for)} tool calls; "
                f"send those",
            )
        earlier = told_after(run)
        if any(message.role == "system" for message in turn.history):
            earlier = _without_instructions(earlier)
        return replace(turn, history=(*_leading(turn.history), *earlier, *_rest(turn.history)))

    async def run(self, run_id: str, visitor: Visitor, field: str | None = None) -> Run:
        """A run that the visitor may see, by its whole id."""
        try:
            run: Run | None = await self._keeper.load(run_id)
        except UsageError:  # there is none of that id on record
            run = self.broadcast.begun(run_id)
        if run is None or run.id != run_id or not visitor.may_see(run.owner):
            raise Refusal(
                "not_found",
                f"there is no {run_id[:80]!r} here: it was deleted, not kept, or is not yours",
                field=field,
            )
        return run

    async def _taken_up(self, turn: Turn, visitor: Visitor) -> tuple[Turn, Run | None]:
        """The turn, and the run that waits for its results. Where that run is gone or has ended
        without these and the client said something besides, that is a question like any other: a
        conversation need not end because one run of it did."""
        if not turn.waiting:
            return turn, None
        try:
            return turn, await self._waiting(turn, visitor)
        except Refusal as refusal:
            if refusal.reason == "forbidden" or turn.afresh is None:
                raise
            return turn.afresh, None

    async def _waiting(self, turn: Turn, visitor: Visitor) -> Run:
        """The run that waits for these results, or was given them before and then cut off; only
        whoever began it may go on with it. Whether somebody is at work on it now shows when it is
        taken up."""
        run = await self.run(turn.waiting, visitor, "messages")
        if run.owner != visitor.key_id:
            raise Refusal("forbidden", "this run was begun with another key", field="messages")
        if run.status not in ("waiting", "running") and not repeats(run, turn.results):
            raise Refusal(
                "conflict",
                f"{run.id} does not wait for results of tools: it is {run.status}",
                field="messages",
            )
        return run

    def _budget_to_go_on(self, run: Run, visitor: Visitor) -> Budget:
        """The run's budget or, where that is less, what it has spent and what its key has left."""
        spent = spent_by(run)
        left = self._door.budget_for(visitor, run.budget)
        caps = {}
        for name in ("calls", "tokens", "usd", "seconds"):
            own, allowed = getattr(run.budget, name), getattr(left, name)
            if allowed is not None and allowed != own:
                caps[name] = allowed + getattr(spent, name)
        return run.budget.narrowed(caps)

    async def _performed(self, asked: Asked, turn: Turn, visitor: Visitor, wishes: Wishes) -> Run:
        if asked.wished.workflow is None:
            return await self._podium.ask(turn.question, **wishes)
        workflow = read_workflow(asked.wished.workflow, self._pool)
        named = {step.worker: self._pool[step.worker].provider for step in workflow.steps}
        visitor.check_workflow(named)
        if asked.wished.max_steps is None:  # an effort is for who plans
            wishes["max_steps"] = self._options.max_steps
        return await self._podium.run(workflow, turn.question, **wishes)

    def wishes(self, asked: Asked, turn: Turn, visitor: Visitor, tier: Tier) -> Wishes:
        """What the run is to have: the settings' usual, the client's wishes, the key's rules."""
        wished = asked.wished
        steps, rounds = extent(asked.terms.effort, self._options)
        if not may_plan_again(tier, self._conductor, turn.question):
            rounds = 1
        allowed = self._options.narrowed(
            max_steps=wished.max_steps, rounds=wished.rounds, caps=wished.budget
        )
        return Wishes(
            history=turn.history,
            images=turn.images,
            terms=asked.terms,
            owner=visitor.key_id,
            tier=tier,
            max_steps=steps if wished.max_steps is None else allowed.max_steps,
            rounds=rounds if wished.rounds is None else allowed.rounds,
            budget=self._door.budget_for(visitor, allowed.budget),
            account=self._door.account_of(visitor),
            exclude=excluded(wished.exclude, self._excludable)
            | (visitor.exclude & self._excludable),
        )


@contextmanager
def refusals() -> Iterator[None]:
    """The border: what Podium raises, as a `Refusal`."""
    try:
        yield
    except BudgetExhausted as error:
        raise Refusal("out_of_budget", str(error)) from error
    except NotFound as error:
        raise Refusal("not_found", str(error)) from error
    except Conflict as error:
        raise Refusal("conflict", str(error)) from error
    except PlanError as error:
        raise invalid("podium.workflow", str(error)) from error
    except ConfigError as error:
        raise _of_the_configuration(error) from error
    except UsageError as error:
        raise Refusal("invalid", str(error)) from error
    except RateLimited as error:
        raise Refusal("rate_limited", str(error), retry_after=error.retry_after) from error
    except PromptTooLong as error:
        raise _too_long(str(error)) from error
    except RequestRefused as error:
        raise Refusal("invalid", str(error)) from error
    except WorkerError as error:
        raise Refusal("upstream", str(error)) from error
    except UnreadableRun as error:
        LOGGER.error("%s", error)
        raise Refusal("failed", _of_the_operators(error)) from error
    except StoreError as error:
        LOGGER.error("%s", error)
        raise Refusal("failed", NO_RECORDS) from error


def _of_the_configuration(error: ConfigError) -> Refusal:
    """What a client may know of it: the fact, and not the remedy, which is for the log."""
    LOGGER.warning("refused for what is configured: %s", error)
    return Refusal("invalid", _of_the_operators(error))


def _of_the_operators(error: PodiumError) -> str:
    """The fact of the matter, without the remedy."""
    fact = str(error).partition(";")[0]
    return f"{fact}; only who runs this server can change that"


def retold(run: Run) -> tuple[Asked, Answer]:
    """What was asked and answered in a run on record, for telling it again."""
    name = NAME_OF[run.tier]
    question = Message("user", (Text(run.question), *run.images))
    asked = Asked(model=name, messages=(*run.history, question), terms=run.terms)
    return asked, answer_of(run, name)


def answer_of(run: Run, model: str) -> Answer:
    """What a client gets to know of a run, with all that it used."""
    return Answer(
        id=run.id,
        model=model,
        created=int(datetime.fromisoformat(run.created_at).timestamp()),
        text=run.answer or "",
        thinking=_thinking(run),
        tool_calls=outside(run.id, run.waiting_for) if run.status == "waiting" else (),
        finish=run.final_finish,
        stop_sequence=run.final_stop_sequence,
        usage=run.usage,
        orchestration=run.orchestration,
    )


def _thinking(run: Run) -> tuple[Thinking, ...]:
    final = run.rounds[-1].final if run.rounds else None
    return final.thinking if final is not None else ()


def _too_long(why: str) -> Refusal:
    message = f"the prompt is too long for the workers here, so shorten it: {why}"
    return Refusal("too_long", message, field="messages")


def _stands(run: Run, results: tuple[ToolResult, ...]) -> bool:
    """Whether the answer to these results has been given already."""
    settled = run.status in ("answered", "partial", "waiting") and not _is_broken(run)
    return settled and repeats(run, results)


def _again(run: Run, asked: Asked, teller: Teller | None) -> Run:
    """The run whose answer the client did not get, for telling it once more."""
    if teller is not None:
        teller.opened(run.id, kept=asked.store)
    return run


def _is_broken(run: Run) -> bool:
    """Whether a worker failed in the middle of what is told as the answer."""
    return run.status == "partial" and any(
        step.status == "failed" and step.reply for step in run.rounds[-1].steps
    )


def failure_of(run: Run) -> Refusal | None:
    """Why a run that has ended is no answer; None where it is one, or waits for tools."""
    if run.status == "exhausted":
        return Refusal("out_of_budget", run.error or "the budget of this run is spent")
    if run.too_long:
        return _too_long(run.error or "no worker could take it")
    if _is_broken(run) or (run.answer is None and run.status != "waiting"):
        return Refusal("upstream", run.error or "no worker answered")
    return None


def _answered(asked: Asked, run: Run, bill: Bill) -> Answered:
    failure = failure_of(run)
    if failure is not None:
        raise failure
    answer = replace(
        answer_of(run, asked.model), usage=bill.usage, orchestration=bill.orchestration
    )
    return Answered(answer=answer, run=run)


def _fill(bill: Bill, run: Run, before: Run | None) -> None:
    """What this request added: a run that goes on has been billed for what came before."""
    bill.run = run
    bill.usage, bill.orchestration, bill.cost_usd = run.usage, run.orchestration, run.cost_usd
    if before is not None:
        bill.usage = _less(bill.usage, before.usage)
        bill.orchestration = _less(bill.orchestration, before.orchestration)
        known = bill.cost_usd is not None and before.cost_usd is not None
        bill.cost_usd = bill.cost_usd - before.cost_usd if known else None  # type: ignore[operator]


def _less(usage: Usage, before: Usage) -> Usage:
    def less(now: int | None, then: int | None) -> int | None:
        return None if now is None or then is None else now - then

    names = [field.name for field in fields(Usage)]
    return Usage(*(less(getattr(usage, name), getattr(before, name)) for name in names))


def _leading(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The system messages that a conversation begins with."""
    count = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    return messages[:count]


def _rest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return messages[len(_leading(messages)) :]


def _without_instructions(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Without what it began with: new instructions take the place of earlier ones."""
    return _rest(messages)
