from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from podium.conductors import FixedConductor
from podium.core.budget import Budget
from podium.core.errors import ConfigError, Unavailable
from podium.core.events import Event, StepDelta
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import (
    UNKNOWN_USAGE,
    Delta,
    Price,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.run import Attempt, Run
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import BreakerPolicy, CallPolicy, Hedge, RetryPolicy
from podium.engine.calls import MIN_LATENCIES, Hedges
from podium.engine.hedging import LOST_RACE
from podium.engine.runner import Options, Runner

PRICE = Price(input=1_000_000, output=1_000_000)
USAGE = Usage(1, 1, 0, 0, 0)
AFTER = Hedge(after_seconds=2.0)


class Slow(Worker):
    """Says its words when it is let, and remembers whether it was stopped before."""

    def __init__(
        self, name: str, *, fallback: str | None = None, tools: bool = False, at_once: bool = False
    ) -> None:
        self.profile = WorkerProfile(
            name=name,
            model=name,
            fallback=fallback,
            price=PRICE,
            limits=Limits(max_output_tokens=10),
            capabilities=frozenset({"tools"}) if tools else frozenset(),
        )
        self.begins = asyncio.Event()
        self.ends = asyncio.Event()
        self.asked = asyncio.Event()
        self.calls = 0
        self.stopped = 0
        self.outcome: Reply | Exception = Reply(f"from {name}", USAGE)
        if at_once:
            self.begins.set()
            self.ends.set()

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.calls += 1
        self.asked.set()
        try:
            await self.begins.wait()
            if isinstance(self.outcome, Reply):
                yield Delta(self.outcome.text[:5])
            await self.ends.wait()
            if isinstance(self.outcome, Exception):
                raise self.outcome
            yield Delta(self.outcome.text[5:])
            yield self.outcome
        except asyncio.CancelledError:
            self.stopped += 1
            raise

    async def reply(self, request: Request) -> Reply:
        *_, last = [piece async for piece in self.stream(request)]
        assert isinstance(last, Reply)
        return last


class Patience:
    """Sleeps until the test ends the wait."""

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.up.wait()


class HedgedRun:
    """One step by `first`, hedged, being carried out."""

    def __init__(
        self,
        *workers: Slow,
        hedge: Hedge = AFTER,
        stream: bool = False,
        budget: Budget | None = None,
        response_options: ResponseOptions | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.patience = Patience()
        self.events: list[Event] = []
        self.call_policy = CallPolicy(
            retry or RetryPolicy(attempts=1),
            BreakerPolicy(),
            {"first": hedge},
            sleep=self.patience.sleep,
        )
        workflow = Workflow((Step("first", "do it"),))
        self.runner = Runner(FixedConductor(workflow), workers, call_policy=self.call_policy)
        options = Options(
            budget=budget or Budget(), response_options=response_options or ResponseOptions()
        )
        self.run = asyncio.create_task(
            self.runner.run("q", options=options, emit=self.events.append, stream=stream)
        )

    async def turn(self) -> None:
        """Let everybody do what they can do now."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def lose_patience(self) -> None:
        await self.turn()
        self.patience.up.set()
        await self.turn()

    async def end(self) -> Run:
        return await asyncio.wait_for(self.run, 5)

    @property
    def sent_text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, StepDelta))


def attempts_of(run: Run) -> dict[str, Attempt]:
    return {attempt.worker: attempt for attempt in run.calls}


async def test_a_call_that_answers_in_time_is_not_hedged() -> None:
    first, other = Slow("first", fallback="other", at_once=True), Slow("other")
    hedged = HedgedRun(first, other)
    run = await hedged.end()
    assert (run.answer, other.calls, hedged.patience.slept) == ("from first", 0, [2.0])


async def test_the_second_that_answers_first_wins_and_both_are_on_record() -> None:
    first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
    hedged = HedgedRun(first, other)
    await hedged.lose_patience()
    run = await hedged.end()
    assert run.answer == "from other"
    assert run.rounds[0].steps[0].answered_by == "other"
    attempts = attempts_of(run)
    assert (attempts["other"].error, attempts["other"].cost_usd) == (None, 2.0)
    assert (attempts["first"].error, attempts["first"].usage) == (LOST_RACE, UNKNOWN_USAGE)
    assert (attempts["first"].cost_usd, run.cost_usd) == (None, None), "unknown is not zero"
    assert first.stopped == 1
    assert run.spent.calls == 2


async def test_the_first_may_still_win_and_the_second_is_stopped() -> None:
    first, other = Slow("first", fallback="other"), Slow("other")
    hedged = HedgedRun(first, other)
    await hedged.lose_patience()
    assert other.calls == 1
    first.begins.set()
    first.ends.set()
    run = await hedged.end()
    assert (run.answer, other.stopped) == ("from first", 1)
    assert attempts_of(run)["other"].error == LOST_RACE


async def test_a_stream_that_has_begun_is_never_hedged() -> None:
    first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
    first.begins.set()
    hedged = HedgedRun(first, other, stream=True)
    await hedged.lose_patience()
    assert (hedged.sent_text, other.calls) == ("from ", 0)
    first.ends.set()
    assert (await hedged.end()).answer == hedged.sent_text == "from first"


async def test_the_first_token_of_two_streams_decides_and_one_is_sent() -> None:
    first, other = Slow("first", fallback="other"), Slow("other")
    hedged = HedgedRun(first, other, stream=True)
    await hedged.lose_patience()
    other.begins.set()
    await hedged.turn()
    assert (hedged.sent_text, first.stopped) == ("from ", 1)
    first.begins.set()
    first.ends.set()
    other.ends.set()
    assert (await hedged.end()).answer == hedged.sent_text == "from other"


async def test_a_loser_that_will_not_stop_is_not_heard() -> None:
    class Stubborn(Slow):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            try:
                await self.begins.wait()
            except asyncio.CancelledError:
                yield Delta("and yet")

    first, other = Stubborn("first", fallback="other"), Slow("other")
    hedged = HedgedRun(first, other, stream=True)
    await hedged.lose_patience()
    other.begins.set()
    other.ends.set()
    assert (await hedged.end()).answer == hedged.sent_text == "from other"


async def test_a_second_that_fails_leaves_the_first_its_time() -> None:
    first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
    other.outcome = Unavailable("down")
    hedged = HedgedRun(first, other)
    await hedged.lose_patience()
    assert not hedged.run.done()
    first.begins.set()
    first.ends.set()
    assert (await hedged.end()).answer == "from first"


async def test_a_first_that_fails_leaves_the_second_its_time() -> None:
    first, other = Slow("first"), Slow("other")
    first.outcome = Unavailable("down")
    hedged = HedgedRun(first, other, hedge=Hedge(after_seconds=2.0, to="other"))
    await hedged.lose_patience()
    first.begins.set()
    first.ends.set()
    await hedged.turn()
    other.begins.set()
    other.ends.set()
    run = await hedged.end()
    assert (run.answer, other.calls) == ("from other", 1)


async def test_step_reports_its_own_worker_if_both_fail() -> None:
    first, other = Slow("first"), Slow("other", at_once=True)
    first.outcome, other.outcome = Unavailable("first down"), Unavailable("other down")
    hedged = HedgedRun(first, other, hedge=Hedge(after_seconds=2.0, to="other"))
    await hedged.lose_patience()
    first.begins.set()
    first.ends.set()
    run = await hedged.end()
    assert run.status == "failed"
    assert "first down" in (run.error or "")


async def test_a_second_that_breaks_off_in_mid_reply_is_resumed_by_the_first() -> None:
    first, other = Slow("first"), Slow("other")
    hedged = HedgedRun(first, other, hedge=Hedge(after_seconds=2.0, to="other"), stream=True)
    await hedged.lose_patience()
    other.begins.set()
    await hedged.turn()
    assert hedged.sent_text == "from "
    other.outcome = Unavailable("cut off", billed=True)
    first.outcome = Reply("from first after all", USAGE)
    first.begins.set()
    first.ends.set()
    other.ends.set()
    run = await hedged.end()
    assert run.answer == hedged.sent_text == "from first after all"
    assert [attempt.error for attempt in run.calls] == [LOST_RACE, "cut off", None]


async def test_without_a_fallback_the_same_worker_is_asked_again() -> None:
    first = Slow("first")
    hedged = HedgedRun(first)
    await hedged.lose_patience()
    assert first.calls == 2
    first.begins.set()
    first.ends.set()
    run = await hedged.end()
    assert run.answer == "from first"
    assert len(list(run.calls)) == 2


async def test_a_hedge_needs_a_reservation() -> None:
    for budget in (Budget(calls=1), Budget(usd=25.0), Budget(tokens=25)):
        first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
        hedged = HedgedRun(first, other, budget=budget)
        await hedged.lose_patience()
        assert other.calls == 0
        first.begins.set()
        first.ends.set()
        assert (await hedged.end()).answer == "from first"


async def test_both_calls_hold_their_part_of_the_budget() -> None:
    first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
    hedged = HedgedRun(first, other, budget=Budget(tokens=1000))
    await hedged.lose_patience()
    run = await hedged.end()
    assert run.answer == "from other"
    assert run.spent.tokens > 10, "what was given up counts for all that it might have used"


async def test_a_hedge_with_an_open_breaker_is_not_called() -> None:
    first, other = Slow("first", fallback="other"), Slow("other", at_once=True)
    hedged = HedgedRun(first, other)
    for _ in range(8):
        hedged.call_policy.breakers.record_failure("other", Unavailable("down"), is_probe=False)
    await hedged.lose_patience()
    assert other.calls == 0
    first.begins.set()
    first.ends.set()
    run = await hedged.end()
    assert run.answer == "from first"
    assert set(attempts_of(run)) == {"first"}, "nobody wanted the other for itself"


async def test_a_step_is_not_hedged_once_it_used_a_tool() -> None:
    first = Slow("first", fallback="other", tools=True, at_once=True)
    other = Slow("other", tools=True, at_once=True)
    first.outcome = Reply("", USAGE, "tool", (ToolCall("1", "look", "{}"),))
    response_options = ResponseOptions(tools=(Tool("look", "looks", {"type": "object"}),))
    hedged = HedgedRun(first, other, response_options=response_options)
    waiting = await hedged.end()
    assert waiting.status == "waiting"
    first.outcome = Reply("from first", USAGE)
    first.begins.clear()
    results = [ToolResult(call.id, "seen") for call in waiting.pending_tool_calls]
    going_on = asyncio.create_task(hedged.runner.resume(waiting, results=results))
    await hedged.lose_patience()
    assert (first.calls, other.calls) == (2, 0)
    first.begins.set()
    assert (await asyncio.wait_for(going_on, 5)).answer == "from first"


async def test_a_second_that_cannot_do_what_is_demanded_is_not_asked() -> None:
    first, other = Slow("first", fallback="other", tools=True), Slow("other", at_once=True)
    response_options = ResponseOptions(tools=(Tool("look", "looks", {"type": "object"}),))
    hedged = HedgedRun(first, other, response_options=response_options)
    await hedged.lose_patience()
    assert other.calls == 0
    first.begins.set()
    first.ends.set()
    assert (await hedged.end()).answer == "from first"


async def test_a_run_that_is_cancelled_ends_both_calls_and_records_them() -> None:
    first, other = Slow("first", fallback="other"), Slow("other")
    hedged = HedgedRun(first, other)
    await hedged.lose_patience()
    hedged.run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hedged.run
    assert (first.stopped, other.stopped) == (1, 1)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks


def test_a_percentile_counts_once_there_are_calls_enough() -> None:
    hedges = Hedges({"w": Hedge(after_seconds=9.0, after_percentile=90), "x": AFTER})
    for number in range(MIN_LATENCIES - 1):
        hedges.record("w", number / 10)
    assert hedges.delay("w") == 9.0
    hedges.record("w", 1.9)
    assert hedges.delay("w") == 1.8
    assert hedges.delay("x") == 2.0
    assert Hedges({"w": Hedge(after_percentile=90)}).delay("w") is None


async def test_latencies_to_the_first_token_are_learned_from_calls() -> None:
    first = Slow("first", at_once=True)
    hedged = HedgedRun(first, hedge=Hedge(after_percentile=50))
    await hedged.end()
    for _ in range(MIN_LATENCIES):
        await hedged.runner.run("q")
    assert hedged.call_policy.hedges.delay("first") is not None


@pytest.mark.parametrize(
    "wrong",
    [{}, {"after_seconds": -1.0}, {"after_percentile": 100.0}, {"after_seconds": float("inf")}],
)
def test_a_hedge_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="hedge"):
        Hedge(**wrong)  # type: ignore[arg-type]
