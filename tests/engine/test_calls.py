from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from benchmarks.chaos.faulty import FaultyWorker
from podium.core.budget import Budget, CallReservation, Ledger, Remaining
from podium.core.errors import (
    BadReply,
    BudgetExhausted,
    BudgetUnavailable,
    ConfigError,
    RateLimited,
    RequestRefused,
    TimedOut,
    Unavailable,
    WorkerCrashed,
)
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Delta, Price, Reply, Request, Usage, user
from podium.core.worker import Worker
from podium.engine import BudgetedCaller, CallPolicy, RetryPolicy
from podium.engine import calls as calls_module
from podium.engine.calls import WorkerLimiter
from podium.workers import ScriptedWorker

ASK = Request((user("hello"),))


class ReplyStream(Worker):
    """Returns one given outcome a call; the last one repeatedly."""

    def __init__(self, *outcomes: str | Reply | Exception, **limits: float) -> None:
        self.profile = WorkerProfile(
            name="w",
            price=Price(input=1.0, output=2.0),
            limits=Limits(**limits),  # type: ignore[arg-type]
        )
        self.outcomes = list(outcomes)
        self.requests: list[Request] = []

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        await asyncio.sleep(0)  # others have their turn, as in any real call
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Reply):
            return outcome
        return Reply(outcome, Usage(1_000_000, 1_000_000, 0, 0, 0))


class Hanging(ReplyStream):
    async def reply(self, request: Request) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError("never reached")


def make_caller(budget: Budget | None = None) -> tuple[BudgetedCaller, list[float]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    call_policy = CallPolicy(RetryPolicy(jitter=lambda: 1.0), sleep=sleep)
    call_policy.bind()
    return BudgetedCaller(call_policy, Ledger(budget or Budget()), call_policy.clock()), slept


async def test_a_call_is_recorded_with_usage_cost_and_time() -> None:
    caller, _ = make_caller()
    reply = await caller(ReplyStream("hi"), ASK)
    (attempt,) = caller.attempts
    assert reply.text == "hi"
    assert attempt.usage == reply.usage
    assert attempt.cost_usd == 3.0
    assert 0 <= attempt.started_ms <= attempt.finished_ms
    assert attempt.error is None


async def test_a_failed_call_is_made_again_after_the_wait_and_both_are_recorded() -> None:
    caller, slept = make_caller()
    reply = await caller(ReplyStream(RateLimited("busy", retry_after=9.0), "hi"), ASK)
    assert reply.text == "hi"
    assert slept == [9.0]
    assert [attempt.error for attempt in caller.attempts] == ["busy", None]


async def test_a_refused_call_costs_nothing_and_a_broken_one_an_unknown_amount() -> None:
    caller, _ = make_caller()
    with pytest.raises(RequestRefused):
        await caller(ReplyStream(RequestRefused("too long")), ASK)
    with pytest.raises(Unavailable):
        await caller(ReplyStream(Unavailable("cut off", billed=True)), ASK)
    refused, *broken = caller.attempts
    assert (refused.usage, refused.cost_usd) == (NO_USAGE, 0.0)
    assert [(a.usage, a.cost_usd) for a in broken] == [(UNKNOWN_USAGE, None)] * 4


async def test_a_worker_that_takes_too_long_times_out_and_is_retried() -> None:
    caller, _ = make_caller()
    with pytest.raises(TimedOut, match=r"no reply within 0.001 s"):
        await caller(Hanging("never", timeout_seconds=0.001), ASK)
    assert len(caller.attempts) == 4
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_cancellation_is_not_reported_as_a_timeout() -> None:
    caller, _ = make_caller()
    task = asyncio.create_task(caller(Hanging("never", timeout_seconds=60), ASK))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (attempt,) = caller.attempts
    assert attempt.error == "cancelled"
    assert attempt.usage is UNKNOWN_USAGE


async def test_many_deadlines_share_one_timer_and_the_right_call_times_out() -> None:
    call_policy = CallPolicy(RetryPolicy(attempts=1))
    call_policy.bind()

    async def outcome(seconds: float) -> str:
        caller = BudgetedCaller(call_policy, Ledger(Budget()), 0.0)
        try:
            await caller(Hanging("never", timeout_seconds=seconds), ASK)
        except TimedOut:
            return "timed out"
        return "?"

    slow = asyncio.create_task(outcome(3600))
    assert await asyncio.wait_for(outcome(0.002), 5) == "timed out"
    assert await asyncio.wait_for(outcome(0.001), 5) == "timed out"
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_whatever_a_workers_own_code_raises_is_its_fault_and_not_a_crash() -> None:
    caller, slept = make_caller()
    with pytest.raises(WorkerCrashed, match="w raised ZeroDivisionError: oops"):
        await caller(ReplyStream(ZeroDivisionError("oops")), ASK)
    with pytest.raises(RequestRefused, match="w: no weights"):
        await caller(ReplyStream(ConfigError("no weights")), ASK)
    assert slept == []


async def test_invalid_replies_are_refused() -> None:
    class Odd(ReplyStream):
        async def reply(self, request: Request) -> Reply:
            return "just words"  # type: ignore[return-value]

    caller, _ = make_caller()
    with pytest.raises(BadReply, match="w returned str, not a Reply with its Usage"):
        await caller(Odd(""), ASK)


async def test_a_reply_without_usage_is_refused_and_its_reservation_settled() -> None:
    caller, _ = make_caller(Budget(tokens=100_000))
    with pytest.raises(BadReply, match="w returned NoneType, not a Reply with its Usage"):
        await caller(ReplyStream(Reply("hi", usage=None)), ASK)  # type: ignore[arg-type]


async def test_a_worker_that_cancels_itself_has_crashed() -> None:
    class Dying(ReplyStream):
        async def reply(self, request: Request) -> Reply:
            raise asyncio.CancelledError

    caller, _ = make_caller()
    with pytest.raises(WorkerCrashed, match="w cancelled its own call"):
        await caller(Dying(""), ASK)


async def test_a_limited_call_corrects_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrected: list[tuple[int, int | None]] = []
    monkeypatch.setattr(
        WorkerLimiter, "correct", lambda limiter, guess, used: corrected.append((guess, used))
    )
    caller, _ = make_caller()
    await caller(ReplyStream(Reply("hi", Usage(3, 4, 0, 0, 0)), tokens_per_minute=1000), ASK)
    with pytest.raises(RequestRefused):
        await caller(ReplyStream(RequestRefused("no"), tokens_per_minute=1000), ASK)
    assert [used for _, used in corrected] == [7, 0]


async def test_a_call_cancelled_in_the_queue_releases_its_reservation() -> None:
    call_policy = CallPolicy()
    call_policy.bind()
    ledger = Ledger(Budget(calls=2))
    worker = Hanging("never", concurrency=1)
    first, second = (
        asyncio.create_task(BudgetedCaller(call_policy, ledger, 0.0)(worker, ASK)) for _ in "ab"
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert ledger.spent.calls == 2
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert ledger.spent.calls == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_gigantic_reply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MAX_REPLY_CHARS", 100)
    caller, _ = make_caller()
    with pytest.raises(BadReply, match="replied with 101 characters"):
        await caller(ReplyStream("x" * 101), ASK)
    with pytest.raises(BadReply, match="streamed more than 100"):
        await caller(ReplyStream("x" * 101), ASK, on_delta=lambda delta: None)


async def test_deltas_are_handed_on_and_the_stream_is_closed() -> None:
    closed = False

    class Streaming(ReplyStream):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            nonlocal closed
            try:
                yield Delta("a")
                yield Delta("b")
                yield Reply("ab")
                yield Delta("never seen")
            finally:
                closed = True

    caller, _ = make_caller()
    seen: list[str] = []
    reply = await caller(Streaming(""), ASK, on_delta=lambda delta: seen.append(delta.text))
    assert (reply.text, seen, closed) == ("ab", ["a", "b"], True)


async def test_a_stream_without_an_end_is_a_bad_reply() -> None:
    class Endless(ReplyStream):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield Delta("a")

    caller, _ = make_caller()
    with pytest.raises(BadReply, match="ended its stream without a reply"):
        await caller(Endless(""), ASK, on_delta=lambda delta: None)


async def test_the_budget_counts_every_try() -> None:
    caller, _ = make_caller(Budget(calls=2))
    with pytest.raises(BudgetExhausted, match="the cap on calls is 2"):
        await caller(ReplyStream(Unavailable("down")), ASK)
    assert len(caller.attempts) == 2


async def test_output_is_limited_to_what_the_budget_can_pay() -> None:
    caller, _ = make_caller(Budget(usd=0.001))
    worker = ReplyStream("hi")
    await caller(worker, ASK)
    assert worker.requests[0].max_tokens is not None
    assert worker.requests[0].max_tokens * 2.0 / 1_000_000 <= 0.001


async def test_calls_wait_for_each_others_reservations_instead_of_failing() -> None:
    caller, _ = make_caller(Budget(tokens=5000))
    small = Reply("hi", Usage(5, 5, 0, 0, 0))
    replies = await asyncio.gather(*(caller(ReplyStream(small), ASK) for _ in range(20)))
    assert [reply.text for reply in replies] == ["hi"] * 20


def test_gates_and_deadlines_start_afresh_on_another_event_loop() -> None:
    call_policy = CallPolicy()
    worker = ReplyStream("hi", concurrency=1)

    async def use() -> str:
        call_policy.bind()
        caller = BudgetedCaller(call_policy, Ledger(Budget()), 0.0)
        replies = await asyncio.gather(*(caller(worker, ASK) for _ in range(3)))
        return replies[-1].text

    assert [asyncio.run(use()), asyncio.run(use())] == ["hi", "hi"]


async def test_counts_that_cannot_be_are_neither_believed_nor_charged() -> None:
    caller, _ = make_caller(Budget(tokens=100_000))
    for wrong in (Usage(-40, -2, 0, 0, 0), Usage(10**15, 10**15, 0, 0, 0)):
        reply = await caller(ReplyStream(Reply("hi", wrong)), ASK)
        assert reply.text == "hi"
        assert reply.usage.total_tokens is None
        assert caller.attempts[-1].usage == Usage(None, None, 0, 0, 0)
        assert caller.attempts[-1].cost_usd is None


async def test_a_stream_that_goes_far_beyond_what_was_asked_for_is_stopped() -> None:
    caller, _ = make_caller()
    result: list[int] = []
    worker = FaultyWorker(ScriptedWorker("w", "never told"), {"endless": 1.0})
    with pytest.raises(BadReply, match=r"w streamed more than 42,000 characters"):
        await caller(
            worker, replace(ASK, max_tokens=1000), lambda delta: result.append(len(delta.text))
        )
    assert len(caller.attempts) == 4
    assert len(result) == 4 * 2, "what came before is told, and no more"


async def test_a_worker_that_streamed_very_much_is_not_asked_to_go_on_after_it() -> None:
    caller, _ = make_caller()
    worker = FaultyWorker(ScriptedWorker("w", "never told"), {"endless": 1.0})
    result = 0

    def hear(delta: Delta) -> None:
        nonlocal result
        result += len(delta.text)

    with pytest.raises(BadReply, match=r"w streamed more than 2,000,000 characters"):
        await caller(worker, ASK, hear)
    assert len(caller.attempts) == 1
    assert result <= 2_000_000


class Shared:
    """A shared budget whose rest other processes took, or that cannot be read."""

    left = Remaining(None, 1.0)
    has_calls_in_flight = True
    is_shared = True

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.held = 0

    def exhausted_error(self, cap: str, run_limit: float | None = None) -> BudgetExhausted:
        return BudgetExhausted(cap, 1.0)

    def reserve(self, reservation: CallReservation) -> None:
        self.held += 1

    def settle(self, reservation: CallReservation, tokens: int, usd: float) -> None:
        self.held -= 1

    async def wait_for_change(self) -> None:
        raise AssertionError("nobody waits")

    async def confirm(self) -> bool:
        if self.problem is not None:
            raise self.problem
        return False


async def test_no_call_is_made_while_the_budget_is_unavailable() -> None:
    shared_budget, worker = Shared(BudgetUnavailable("the database is away")), ReplyStream("yes")
    call_policy = CallPolicy()
    call_policy.bind()
    caller = BudgetedCaller(
        call_policy, Ledger(Budget(), shared_budget=shared_budget), call_policy.clock()
    )
    with pytest.raises(BudgetUnavailable, match="the database is away"):
        await caller(worker, ASK)
    assert (shared_budget.held, caller.attempts) == (0, [])
