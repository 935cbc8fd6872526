"""Several deployments as one worker: choice, cool-down, and errors for the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from podium.core.budget import Budget, Ledger
from podium.core.errors import (
    AuthenticationFailed,
    RateLimited,
    RequestRefused,
    TimedOut,
    Unavailable,
    WorkerError,
)
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import Delta, Reply, Request, user
from podium.engine.calls import BudgetedCaller, CallPolicy
from podium.workers import ScriptedWorker
from podium.workers.balanced import Balance, BalancedWorker, Deployment

ASKED = Request((user("hello"),))
PROFILE = WorkerProfile(name="gpt", limits=Limits(timeout_seconds=30))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """Answers after some seconds of the clock, or fails."""

    def __init__(self, name: str, clock: Clock, seconds: float = 1.0) -> None:
        self.profile = WorkerProfile(name=name)
        self.seconds = seconds
        self.errors: list[WorkerError | None] = []
        self.calls = 0
        self._clock = clock

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self._clock.now += self.seconds
        return Reply(self.profile.name)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        reply = await self.reply(request)
        yield Delta(reply.text)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        yield reply


Made = tuple[BalancedWorker, Timed, Timed, Clock]
Make = Callable[..., Made]


def make(balance: Balance = "least-latency", weights: tuple[float, float] = (1, 1)) -> Made:
    clock = Clock()
    eu, us = Timed("eu", clock), Timed("us", clock)
    deployments = [Deployment("eu", eu, weights[0]), Deployment("us", us, weights[1])]
    return BalancedWorker(PROFILE, deployments, balance, clock=clock), eu, us, clock


async def streamed(worker: BalancedWorker) -> str:
    async with aclosing(worker.stream(ASKED)) as pieces:
        return [piece async for piece in pieces][-1].text


async def test_the_fastest_deployment_is_called_and_the_other_tried_again_later() -> None:
    worker, eu, us, clock = make()
    eu.seconds, us.seconds = 3.0, 1.0
    assert [await streamed(worker) for _ in range(6)] == ["eu", "us", "us", "us", "us", "us"]
    eu.seconds = 0.1
    clock.now += 600
    us.seconds = 2.0
    said = [await streamed(worker) for _ in range(8)]
    assert said[-4:] == ["eu"] * 4


async def test_streams_and_whole_replies_are_measured_apart() -> None:
    worker, eu, us, _ = make()
    eu.seconds, us.seconds = 3.0, 1.0
    assert [await streamed(worker) for _ in range(3)] == ["eu", "us", "us"]
    assert [(await worker.reply(ASKED)).text for _ in range(3)] == ["eu", "us", "us"]


async def test_calls_in_flight_count_against_a_deployment() -> None:
    worker, eu, us, _ = make()
    waiting = asyncio.Event()

    async def wait(request: Request) -> Reply:
        await waiting.wait()
        return Reply("late")

    eu.reply = us.reply = wait  # type: ignore[method-assign]
    calls = [asyncio.create_task(worker.reply(ASKED)) for _ in range(4)]
    await asyncio.sleep(0)
    assert [deployment.in_flight for deployment in worker.deployments] == [2, 2]
    waiting.set()
    await asyncio.gather(*calls)
    assert [deployment.in_flight for deployment in worker.deployments] == [0, 0]


async def test_weights_share_the_calls_out_evenly() -> None:
    worker, *_ = make("weighted", (3, 1))
    said = [(await worker.reply(ASKED)).text for _ in range(8)]
    assert said == ["eu", "eu", "us", "eu"] * 2


@pytest.mark.parametrize("error", [RateLimited("429"), Unavailable("503")])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_fails_unbilled_goes_to_the_next_at_once(
    error: WorkerError, stream: bool
) -> None:
    worker, eu, us, clock = make()
    eu.errors = [error]
    said = await streamed(worker) if stream else (await worker.reply(ASKED)).text
    assert (said, eu.calls, us.calls) == ("us", 1, 1)
    assert worker.deployments[0].ready_at == 100 + 1
    clock.now = 100.5
    assert await streamed(worker) == "us"


async def test_the_wait_that_a_vendor_asks_for_is_honoured() -> None:
    worker, eu, us, clock = make("weighted")
    eu.errors = [RateLimited("429", retry_after=20)]
    eu.seconds = us.seconds = 0.0
    assert {(await worker.reply(ASKED)).text for _ in range(5)} == {"us"}
    clock.now += 20
    assert Counter([(await worker.reply(ASKED)).text for _ in range(4)]) == {"eu": 2, "us": 2}


async def test_a_deployment_in_progress_failing_is_left_alone_for_longer() -> None:
    worker, eu, _, clock = make("weighted")
    waits = []
    for _ in range(8):
        eu.errors = [Unavailable("503")]
        await worker.reply(ASKED)
        await worker.reply(ASKED)
        waits.append(worker.deployments[0].ready_at - clock.now)
        clock.now = worker.deployments[0].ready_at
    assert waits == sorted(waits)
    assert 50 < waits[-1] <= 60


async def test_a_stream_that_is_left_at_its_reply_ends_the_failures() -> None:
    worker, eu, _, clock = make("weighted")
    eu.errors = [Unavailable("503")]
    await streamed(worker)
    assert worker.deployments[0].failures == 1
    clock.now += 10
    for _ in range(2):
        async with aclosing(worker.stream(ASKED)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    break
    assert worker.deployments[0].failures == 0
    assert [deployment.in_flight for deployment in worker.deployments] == [0, 0]


async def test_calls_that_fail_together_are_one_failure() -> None:
    worker, eu, us, clock = make("weighted")
    us.seconds = 0.0
    deployment = worker.deployments[0]
    for error in (Unavailable("503"), Unavailable("503"), RateLimited("429", retry_after=0)):
        deployment.cool_down(error, clock.now)
    assert (deployment.failures, deployment.ready_at) == (1, clock.now + 1)
    deployment.cool_down(RateLimited("429", retry_after=30), clock.now)
    assert deployment.ready_at == clock.now + 30
    assert eu.calls == 0


async def test_while_all_deployments_cool_down_none_is_called_and_the_wait_is_reported() -> None:
    worker, eu, us, clock = make()
    eu.errors, us.errors = [RateLimited("429", retry_after=20)], [RateLimited("429", retry_after=8)]
    with pytest.raises(RateLimited) as last:
        await worker.reply(ASKED)
    assert last.value.retry_after == 8
    clock.now += 3
    with pytest.raises(RateLimited, match=r"all 2 deployments of worker 'gpt' cool down.* 5\.0 s"):
        await streamed(worker)
    assert (eu.calls, us.calls) == (1, 1)
    clock.now += 5
    assert (await worker.reply(ASKED)).text == "us"


@pytest.mark.parametrize("error", [RequestRefused("400"), AuthenticationFailed("401")])
async def test_a_request_that_is_refused_is_refused(error: WorkerError) -> None:
    worker, eu, us, _ = make()
    eu.errors = [error]
    with pytest.raises(type(error)):
        await worker.reply(ASKED)
    assert us.calls == 0
    assert worker.deployments[0].ready_at == 0


async def test_a_failure_that_may_have_cost_is_reported_with_no_wait() -> None:
    worker, eu, us, _ = make()
    eu.errors = [Unavailable("lost", billed=True)]
    with pytest.raises(Unavailable) as lost:
        await worker.reply(ASKED)
    assert lost.value.retry_after == 0.0
    assert us.calls == 0
    us.errors = [None, Unavailable("lost in the middle", billed=True)]
    with pytest.raises(Unavailable, match="in the middle"):
        await streamed(worker)


async def test_the_engine_counts_what_may_have_cost_and_repeats_elsewhere() -> None:
    worker, eu, _, clock = make()
    eu.errors = [TimedOut("no answer")]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    policy = CallPolicy(clock=clock, sleep=sleep)
    policy.bind()
    caller = BudgetedCaller(policy, Ledger(Budget()), 0.0)
    assert (await caller(worker, ASKED)).text == "us"
    assert slept == [0.0]
    assert [attempt.error for attempt in caller.attempts] == ["no answer", None]


async def test_a_deployment_at_the_time_limit_cools_down() -> None:
    worker, eu, _, clock = make()
    entered = asyncio.Event()

    async def hang(request: Request) -> Reply:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    eu.reply = hang  # type: ignore[method-assign]
    call = asyncio.create_task(worker.reply(ASKED))
    await entered.wait()
    clock.now += 30
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert worker.deployments[0].ready_at == clock.now + 1
    assert (await worker.reply(ASKED)).text == "us"


async def test_a_call_that_is_given_up_earlier_counts_as_slow() -> None:
    worker, eu, _, clock = make()
    entered = asyncio.Event()
    answers = eu.reply

    async def hang(request: Request) -> Reply:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    eu.reply = hang  # type: ignore[method-assign]
    call = asyncio.create_task(worker.reply(ASKED))
    await entered.wait()
    clock.now += 10
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    eu.reply = answers  # type: ignore[method-assign]
    assert [(await worker.reply(ASKED)).text for _ in range(3)] == ["us"] * 3


async def test_closing_closes_the_deployments() -> None:
    closed: list[str] = []

    class HeldWorker(ScriptedWorker):
        async def close(self) -> None:
            closed.append(self.profile.name)

    held = [Deployment(name, HeldWorker(name, ["ok"])) for name in ("eu", "us")]
    await BalancedWorker(PROFILE, held).close()
    assert closed == ["eu", "us"]


def test_extra_fields_are_taken_where_all_deployments_take_them() -> None:
    class Passing(Timed):
        wire = "chat"

        def takes_extra(self, name: str) -> bool:
            return name == "top_k"

    clock = Clock()
    both = [Deployment(name, Passing(name, clock)) for name in ("eu", "us")]
    balanced = BalancedWorker(PROFILE, both, clock=clock)
    assert (balanced.wire, balanced.takes_extra("top_k"), balanced.takes_extra("model")) == (
        "chat",
        True,
        False,
    )
    other = Deployment("other", Timed("other", clock))
    assert BalancedWorker(PROFILE, [*both, other], clock=clock).wire is None
