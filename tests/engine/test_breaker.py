from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from podium.conductors import FixedConductor
from podium.core.budget import Budget, Ledger
from podium.core.errors import (
    AuthenticationFailed,
    BadReply,
    CircuitOpen,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    TimedOut,
    Unavailable,
    WorkerCrashed,
    WorkerError,
)
from podium.core.events import Event, StepRetried
from podium.core.pool import Limits
from podium.core.request import NO_USAGE, Request, user
from podium.core.workflow import Step, Workflow
from podium.engine import BreakerPolicy, BudgetedCaller, CallPolicy, RetryPolicy
from podium.engine.breakers import Breakers
from podium.engine.runner import Runner
from support.harness import FakeWorker

ASK = Request((user("hello"),))
POLICY = BreakerPolicy(consecutive_failures=3, failure_rate=0.5, window=10, cooldown_seconds=5.0)


@dataclass
class Time:
    """A clock that advances on sleep, or by hand."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def breakers(policy: BreakerPolicy = POLICY) -> tuple[Breakers, Time]:
    time = Time()
    return Breakers(policy, time), time


def fail(some: Breakers, times: int = 1, error: WorkerError | None = None) -> None:
    for _ in range(times):
        some.record_failure("w", error or Unavailable("down"), is_probe=False)


def make_policy(retry: RetryPolicy | None = None) -> tuple[CallPolicy, Time]:
    time = Time()
    policy = retry or RetryPolicy(attempts=1)
    call_policy = CallPolicy(policy, POLICY, clock=time, sleep=time.sleep)
    call_policy.bind()
    return call_policy, time


async def outcome(call_policy: CallPolicy, worker: FakeWorker, **more: object) -> str:
    caller = BudgetedCaller(call_policy, Ledger(Budget()), 0.0)
    try:
        return (await caller(worker, ASK, **more)).text  # type: ignore[arg-type]
    except WorkerError as error:
        return type(error).__name__


def test_it_opens_after_failures_in_a_row_and_says_why_and_until_when() -> None:
    some, time = breakers()
    fail(some, 2)
    assert (some.state("w"), some.refusal("w")) == ("closed", None)
    fail(some, 1, BadReply("nonsense"))
    time.now = 1.0
    refusal = some.refusal("w")
    assert refusal is not None
    assert some.state("w") == "open"
    assert refusal.retry_after == 4.0
    assert not refusal.billed
    assert str(refusal) == (
        "circuit open for w: it failed too often and is tried again in 4.0 s; "
        "last failure: nonsense"
    )
    assert some.openings == {"w": 1}


def test_it_opens_when_a_share_of_the_last_calls_has_failed() -> None:
    some, _ = breakers()
    for _ in range(4):
        fail(some)
        some.record_success("w", is_probe=False)
    fail(some)
    assert some.state("w") == "closed", "nine calls are no window of ten"
    some.record_success("w", is_probe=False)
    fail(some)
    assert some.state("w") == "open"


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("down"),
        TimedOut("slow"),
        BadReply("nonsense"),
        WorkerCrashed("bug"),
        RateLimited("busy"),
        AuthenticationFailed("key"),
    ],
)
def test_worker_faults_count(error: WorkerError) -> None:
    some, _ = breakers()
    fail(some, 3, error)
    assert some.state("w") == "open"


@pytest.mark.parametrize("error", [RequestRefused("content"), PromptTooLong("4 MB")])
def test_invalid_requests_do_not_count_as_failures(error: WorkerError) -> None:
    some, _ = breakers()
    fail(some, 50, error)
    some.record_failure("w", asyncio.CancelledError(), is_probe=False)
    assert some.state("w") == "closed"
    assert not some.breakers_by_worker


def test_a_success_resets_the_failures_in_a_row() -> None:
    some, _ = breakers()
    fail(some, 2)
    some.record_success("w", is_probe=False)
    fail(some, 1)
    assert some.state("w") == "closed"
    for _ in range(10):
        some.record_success("w", is_probe=False)
    assert not some.breakers_by_worker, "a worker that does well costs nothing"


def test_one_probe_call_decides_after_the_cooldown() -> None:
    some, time = breakers()
    fail(some, 3)
    time.now = 5.0
    assert some.state("w") == "half-open"
    assert some.refusal("w") is None
    assert some.enter("w")
    refusal = some.refusal("w")
    assert refusal is not None
    assert refusal.retry_after == 1.0
    some.record_success("w", is_probe=True)
    assert some.state("w") == "closed"
    assert some.refusal("w") is None
    assert not some.enter("w")


def test_each_failed_try_doubles_the_time_up_to_the_longest() -> None:
    some, time = breakers()
    fail(some, 3)
    waits = []
    for _ in range(7):
        refusal = some.refusal("w")
        assert refusal is not None
        assert refusal.retry_after is not None
        waits.append(refusal.retry_after)
        time.now += refusal.retry_after
        assert some.enter("w")
        some.record_failure("w", Unavailable("still down"), is_probe=True)
    assert waits == [5, 10, 20, 40, 80, 120, 120]
    assert some.openings == {"w": 8}


def test_a_retry_after_is_respected() -> None:
    some, _ = breakers()
    fail(some, 3, RateLimited("busy", retry_after=30.0))
    refusal = some.refusal("w")
    assert refusal is not None
    assert refusal.retry_after == 30.0


def test_the_call_after_a_cancelled_probe_is_the_next_probe() -> None:
    some, time = breakers()
    fail(some, 3)
    time.now = 5.0
    some.enter("w")
    some.record_failure("w", asyncio.CancelledError(), is_probe=True)
    assert some.refusal("w") is None
    assert some.enter("w")
    some.record_failure("w", RequestRefused("not like this"), is_probe=True)
    assert some.state("w") == "closed", "who refuses a request is there"


def test_a_try_that_hangs_does_not_keep_the_worker_out_for_ever() -> None:
    some, time = breakers()
    fail(some, 3)
    time.now = 5.0
    some.enter("w")
    time.now = 9.9
    assert some.refusal("w") is not None
    time.now = 10.0
    assert some.refusal("w") is None


def test_calls_begun_before_the_circuit_opened_do_not_count() -> None:
    some, time = breakers()
    fail(some, 3)
    time.now = 4.0
    fail(some, 10)
    some.record_success("w", is_probe=False)
    assert some.state("w") == "open"
    time.now = 5.0
    assert some.refusal("w") is None


def test_every_breaker_opening_is_reported() -> None:
    some, _ = breakers()
    heard: list[tuple[str, str]] = []
    some.on_opening = lambda worker, error: heard.append((worker, str(error)))
    fail(some, 3)
    assert heard == [("w", "down")]


async def test_an_open_breaker_refuses_at_once_and_the_refusal_is_on_record_for_nothing() -> None:
    call_policy, time = make_policy()
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    for _ in range(3):
        assert await outcome(call_policy, worker) == "Unavailable"
    ledger = Ledger(Budget(calls=1))
    caller = BudgetedCaller(call_policy, ledger, 0.0)
    with pytest.raises(CircuitOpen):
        await caller(worker, ASK)
    (attempt,) = caller.attempts
    assert (attempt.usage, attempt.cost_usd) == (NO_USAGE, 0.0)
    assert "it failed too often" in (attempt.error or "")
    assert not attempt.was_sent
    assert len(worker.asked) == 3
    assert ledger.spent.calls == 0
    assert time.slept == []


async def test_a_worker_is_used_again_after_a_successful_probe() -> None:
    call_policy, time = make_policy()
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    for _ in range(4):
        await outcome(call_policy, worker)
    worker.behaviour = lambda request: "well again"
    time.now = 5.0
    assert [await outcome(call_policy, worker) for _ in range(2)] == ["well again"] * 2
    assert not call_policy.breakers.breakers_by_worker


async def test_of_many_calls_at_once_one_probes() -> None:
    call_policy, time = make_policy()
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    for _ in range(3):
        await outcome(call_policy, worker)
    time.now = 5.0
    ends = await asyncio.gather(*(outcome(call_policy, worker) for _ in range(20)))
    assert sorted(set(ends)) == ["CircuitOpen", "Unavailable"]
    assert len(worker.asked) == 4


async def test_calls_that_wait_at_the_gate_are_refused_once_it_opens_and_hold_nothing() -> None:
    call_policy, _ = make_policy()
    worker = FakeWorker("w", lambda request: Unavailable("down"), limits=Limits(concurrency=1))
    ledger = Ledger(Budget(tokens=1_000_000))

    async def call() -> str:
        try:
            return (await BudgetedCaller(call_policy, ledger, 0.0)(worker, ASK)).text
        except WorkerError as error:
            return type(error).__name__

    ends = await asyncio.gather(*(call() for _ in range(10)))
    assert ends == ["Unavailable"] * 3 + ["CircuitOpen"] * 7
    assert ledger.spent.calls == 3
    assert ledger.spent.tokens == 0
    assert ledger.reserve(worker.profile, ASK) is not None


async def test_a_call_that_is_refused_does_not_wait_for_its_turn() -> None:
    call_policy, time = make_policy()
    limits = Limits(requests_per_minute=3)
    worker = FakeWorker("w", lambda request: Unavailable("down"), limits=limits)
    for _ in range(3):
        await outcome(call_policy, worker)
    assert await outcome(call_policy, worker) == "CircuitOpen"
    assert time.slept == []


async def test_with_a_fallback_an_open_circuit_is_not_waited_for() -> None:
    call_policy, time = make_policy(RetryPolicy(attempts=9, jitter=lambda: 1.0))
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    assert await outcome(call_policy, worker, can_fall_back=lambda: True) == "Unavailable"
    assert len(worker.asked) == 3, "the third failure opened it"
    assert time.slept == [0.5, 1.0]
    assert await outcome(call_policy, worker, can_fall_back=lambda: True) == "CircuitOpen"
    assert await outcome(call_policy, worker) == "CircuitOpen", (
        "who says nothing does not wait either"
    )
    assert time.slept == [0.5, 1.0]


async def test_without_a_fallback_the_call_waits_for_the_circuit() -> None:
    call_policy, time = make_policy(RetryPolicy(attempts=4, jitter=lambda: 1.0))
    ends = [Unavailable("down")] * 3
    worker = FakeWorker("w", lambda request: ends.pop() if ends else "well again")
    assert await outcome(call_policy, worker, can_fall_back=lambda: False) == "well again"
    assert time.slept == [0.5, 1.0, 5.0]


async def test_a_server_does_not_wait_for_the_circuit() -> None:
    call_policy, time = make_policy(RetryPolicy(attempts=4, jitter=lambda: 1.0))
    call_policy.waits_for_circuits = False
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    assert await outcome(call_policy, worker, can_fall_back=lambda: False) == "Unavailable"
    assert await outcome(call_policy, worker, can_fall_back=lambda: False) == "CircuitOpen"
    assert time.slept == [0.5, 1.0]


def test_retry_after_is_never_zero_and_the_last_status_is_kept() -> None:
    some, time = breakers()
    fail(some, 3, RateLimited("slow down"))
    time.now = 4.999
    refusal = some.refusal("w")
    assert refusal is not None
    assert "is tried again in 0.1 s" in str(refusal)
    assert refusal.status == 429


async def test_without_a_policy_there_are_no_breakers() -> None:
    call_policy = CallPolicy(RetryPolicy(attempts=1))
    call_policy.bind()
    worker = FakeWorker("w", lambda request: Unavailable("down"))
    for _ in range(30):
        assert await outcome(call_policy, worker) == "Unavailable"
    assert not call_policy.breakers.breakers_by_worker


async def test_a_step_goes_to_the_substitute_at_once_and_the_run_shows_why() -> None:
    call_policy, time = make_policy(RetryPolicy(attempts=4, jitter=lambda: 1.0))
    broken = FakeWorker("broken", lambda request: Unavailable("down"), fallback="other")
    other = FakeWorker("other", lambda request: "from the other")
    workflow = Workflow((Step("broken", "do it"),))
    runner = Runner(FixedConductor(workflow), [broken, other], call_policy=call_policy)
    first = await runner.run("q")
    asked, slept = len(broken.asked), len(time.slept)
    events: list[Event] = []
    second = await runner.run("q", emit=events.append)
    assert (first.answer, second.answer) == ("from the other",) * 2
    assert (len(broken.asked), len(time.slept)) == (asked, slept), "neither asked nor waited for"
    refused, answered = second.rounds[0].steps[0].attempts
    assert (refused.worker, answered.worker) == ("broken", "other")
    assert "is tried again in" in (refused.error or "")
    assert (second.spent.calls, second.cost_usd) == (1, None)
    (retried,) = (event for event in events if isinstance(event, StepRetried))
    assert (retried.worker, retried.wait_seconds) == ("other", 0.0)
    assert call_policy.breakers.openings == {"broken": 1}
