"""What was spent on a request that was cut off before there was a run to be charged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from podium import AsyncPodium
from podium.conductors import FixedConductor
from podium.core.budget import Budget, Ledger
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import (
    NO_USAGE,
    Price,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails import Guardrail, GuardrailInput, Pass, Verdict, Verify
from podium.server.access import KeyAuthenticator, Principal, RequestCost
from podium.server.access.keys import NewKey, make_key
from podium.server.api_error import ApiError
from podium.store.keys import Allowance, Amount, Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker

DOLLARS = Rules(in_total=Allowance(usd=1.0))
JUDGE = WorkerProfile(name="judge", price=Price(input=100.0, output=1000.0))


class Runtime:
    """A gatekeeper over a real store, with one key of a dollar."""

    def __init__(self, store: SqlRunStore, made: NewKey) -> None:
        self.store = store
        self.made = made
        self.access = KeyAuthenticator(store.keys, Pool((JUDGE,)))

    async def begin(self) -> Principal:
        principal = await self.access.authenticate(self.made.token)
        return await self.access.reserve(principal, model="podium", tokens=1)

    async def settle(self, principal: Principal, bill: RequestCost) -> None:
        await self.access.settle(principal, model="podium", cost=bill)

    async def charged(self) -> Amount:
        await self.access.close()
        return (await self.store.keys.quotas.charges(self.made.key.id, "2026-01-02")).total

    def call(self, principal: Principal, usage: Usage, usd: float) -> None:
        """A call of the visitor's request begins and ends."""
        ledger = Ledger(Budget(), shared_budget=principal.quota.shared_budget)
        reservation = ledger.reserve(JUDGE, Request((user("?"),), max_tokens=100))
        assert reservation is not None
        ledger.settle(reservation, usage, usd)


@asynccontextmanager
async def runtime_in(folder: Path) -> AsyncIterator[Runtime]:
    store = await SqlRunStore.open(folder / "podium.db")
    made = make_key("Ada", DOLLARS)
    await store.keys.add(made.key)
    runtime = Runtime(store, made)
    try:
        yield runtime
    finally:
        await runtime.access.close()
        await store.close()


class Verified:
    """Calls a paid judge, then waits until the client disconnects."""

    def __init__(self) -> None:
        self.paid = asyncio.Event()
        self.stages: list[str] = []
        self.is_on = True

    def __call__(self, checked: GuardrailInput) -> Verdict:
        self.stages.append(checked.stage)
        return Verify("judge", "Is it fine?", lambda _: Pass()) if self.is_on else Pass()

    async def linger(self, checked: GuardrailInput) -> Verdict:
        if self.is_on:
            self.paid.set()
            await asyncio.Event().wait()
        return Pass()

    @property
    def guardrails(self) -> list[Guardrail]:
        return [
            Guardrail("verified", self, stages=("question",)),
            Guardrail("slow", self.linger, stages=("question",)),
        ]


def judge() -> ScriptedWorker:
    """A fifth of a dollar a look; and, where there is a tool, one who calls it."""

    def act(request: Request) -> Reply | str:
        used, call = Usage(1000, 200, 0, 0, 0), ToolCall("1", "look", "{}")
        called = Reply("", used, finish="tool", tool_calls=(call,))
        return called if request.tools and request.messages[-1].role != "tool" else "fine"

    profile = replace(JUDGE, capabilities=frozenset({"tools"}))
    return ScriptedWorker(profile, act, usage=Usage(1000, 100, 0, 0, 0))


ALONE = FixedConductor(Workflow((Step("judge", "Look"),)))
TOOLS = ResponseOptions(tools=(Tool("look", "looks something up", {"type": "object"}),))


async def gone_away(asking: asyncio.Task[Run], verified: Verified) -> None:
    """The client disconnects after the judge was paid."""
    async with asyncio.timeout(5):
        await verified.paid.wait()
    verified.paid.clear()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_client_that_leaves_during_a_guardrail_check_is_charged_within_the_cap(
    tmp_path: Path,
) -> None:
    verified, worker = Verified(), judge()
    async with (
        runtime_in(tmp_path) as runtime,
        AsyncPodium([worker], ALONE, guardrails=verified.guardrails) as podium,
    ):
        for _ in range(4):
            principal = await runtime.begin()
            shared_budget = principal.quota.shared_budget
            asking = asyncio.create_task(podium.ask("Why?", shared_budget=shared_budget))
            await gone_away(asking, verified)
            await runtime.settle(principal, RequestCost())
        principal = await runtime.begin()
        runtime.call(principal, Usage(0, 0, 0, 0, 0), 0.2)
        await runtime.settle(principal, RequestCost())
        with pytest.raises(
            ApiError, match=r"total budget of key 'Ada' is spent: \$1 used of \$1, does not reset"
        ):
            await runtime.begin()
        charged = await runtime.charged()
    assert worker.calls == 4
    assert charged.usd == pytest.approx(1.0)
    assert charged.tokens == 4400


async def test_a_client_that_leaves_during_a_check_of_results_is_charged_besides_the_run(
    tmp_path: Path,
) -> None:
    verified = Verified()
    async with (
        runtime_in(tmp_path) as runtime,
        AsyncPodium(
            [judge()], ALONE, guardrails=verified.guardrails, store=runtime.store
        ) as podium,
    ):
        verified.is_on = False
        key_id, principal = runtime.made.key.id, await runtime.begin()
        shared_budget = principal.quota.shared_budget
        run = await podium.ask(
            "Why?", response_options=TOOLS, owner=key_id, shared_budget=shared_budget
        )
        bill = RequestCost()
        bill.add_run(run, None)
        await runtime.settle(principal, bill)
        verified.is_on = True
        principal = await runtime.begin()
        looked = await runtime.store.load(run.id)
        results = [ToolResult(run.waiting_for[0].id, "it")]
        going_on = podium.resume(
            looked, results=results, shared_budget=principal.quota.shared_budget
        )
        await gone_away(asyncio.create_task(going_on), verified)
        await runtime.settle(principal, RequestCost())
        charged = await runtime.charged()
    assert verified.stages == ["question", "question"]
    assert run.cost_usd == pytest.approx(0.3)
    assert charged.usd == pytest.approx(0.5)
    assert charged.tokens == 1200 + 1100


async def test_a_run_is_charged_once_by_its_end_and_by_the_request_that_it_was_for(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    async with runtime_in(tmp_path) as runtime:
        run = replace(make_run(steps=3), owner=runtime.made.key.id)
        principal = await runtime.begin()
        for _ in range(3):
            runtime.call(principal, Usage(10, 5, 0, 0, 0), 0.25)
        await runtime.store.begin(replace(run, status="running", answer=None, rounds=()))
        await runtime.store.finish(run)
        bill = RequestCost()
        bill.add_run(run, None)
        await runtime.settle(principal, bill)
        assert await runtime.charged() == Amount(0.75, 45)


async def test_a_call_outside_the_run_is_charged_once(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    async with runtime_in(tmp_path) as runtime:
        run = replace(make_run(steps=2), owner=runtime.made.key.id)
        principal = await runtime.begin()
        for _ in range(3):
            runtime.call(principal, Usage(10, 5, 0, 0, 0), 0.25)
        bill = RequestCost()
        bill.add_run(run, None)
        await runtime.settle(principal, bill)
        await runtime.store.begin(replace(run, status="running", answer=None, rounds=()))
        await runtime.store.finish(run)
        assert await runtime.charged() == Amount(0.75, 45)
        (row,) = await runtime.store.keys.usage(key_id=runtime.made.key.id)
    assert (row.requests, row.cost_usd, row.assumed_usd, row.unknown_cost_count) == (
        1,
        0.5,
        0.25,
        1,
    )
    assert (row.assumed_tokens, row.unknown_usage_count) == (15, 1)


async def test_a_request_that_continues_with_a_run_is_charged_what_it_added(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    async with runtime_in(tmp_path) as runtime:
        before = replace(make_run(steps=1, status="waiting"), owner=runtime.made.key.id)
        for run, last, calls in (
            (before, None, 1),
            (replace(make_run(), owner=before.owner), before, 2),
        ):
            principal = await runtime.begin()
            for _ in range(calls):
                runtime.call(principal, Usage(10, 5, 0, 0, 0), 0.25)
            bill = RequestCost()
            bill.add_run(run, last)
            await runtime.settle(principal, bill)
        assert await runtime.charged() == Amount(0.75, 45)


async def test_unreported_usage_is_charged_at_its_estimate(
    tmp_path: Path,
) -> None:
    async with runtime_in(tmp_path) as runtime:
        principal = await runtime.begin()
        runtime.call(principal, Usage(10, 5, 0, 0, 0), 0.25)
        runtime.call(principal, Usage(10, 5, 0, 0, 0), 0.25)
        await runtime.settle(principal, RequestCost(Usage(10, 5, 0, 0, 0), NO_USAGE, 0.25))
        assert await runtime.charged() == Amount(0.5, 30)
        (row,) = await runtime.store.keys.usage(key_id=runtime.made.key.id)
    assert (row.cost_usd, row.assumed_usd, row.unknown_cost_count) == (0.25, 0.25, 1)
    assert (row.input_tokens, row.assumed_tokens, row.unknown_usage_count) == (10, 15, 1)
