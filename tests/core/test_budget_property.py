"""A budget of N calls is never exceeded by one: under concurrency, retries, rounds, nesting."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import Unavailable
from podium.core.pool import Limits
from podium.core.request import Reply, Request, Usage, user
from podium.core.run import Run
from podium.core.worker import Caller
from podium.core.workflow import Access, Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import FakeWorker


class Chaos(Conductor):
    """A conductor that plans at random, asks a model to do so, and nests where it may."""

    name = "chaos"

    def __init__(self, dice: random.Random, boss: FakeWorker) -> None:
        self.dice = dice
        self.boss = boss

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        for _ in range(self.dice.randrange(3)):
            await call(self.boss, Request((user("plan"),)))
        steps = []
        for index in range(self.dice.randint(1, context.max_steps)):
            reads = tuple(i for i in range(index) if self.dice.random() < 0.4)
            access: Access = "all" if self.dice.random() < 0.2 else reads
            steps.append(Step(self.dice.choice(context.pool.names), f"subtask {index}", access))
        return Plan(Workflow(tuple(steps)))


class Counter:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.calls = 0
        self.tokens = 0

    def __call__(self, request: Request) -> Reply | Exception:
        self.calls += 1
        if self.dice.random() < 0.3:
            return Unavailable("down")
        output = self.dice.randint(1, min(200, request.max_tokens or 200))
        self.tokens += output
        return Reply("r" * output, Usage(0, output, 0, 0, 0))


def perform(seed: int, budget: Budget, rounds: int) -> tuple[Run, Counter]:
    dice = random.Random(seed)
    counter = Counter(dice)

    async def pause(seconds: float) -> None:
        await asyncio.sleep(0)

    workers = [
        FakeWorker("a", counter, fallback="b"),
        FakeWorker("b", counter, limits=Limits(concurrency=1)),
        ConductorWorker(),
    ]
    runner = Runner(
        Chaos(dice, FakeWorker("boss", counter)),
        workers,
        call_policy=CallPolicy(RetryPolicy(attempts=3, jitter=dice.random), sleep=pause),
    )
    options = Options(rounds=rounds, budget=budget)
    return asyncio.run(runner.run("question", options=options)), counter


@given(
    seed=st.integers(0, 2**32), calls=st.integers(0, 25), rounds=st.integers(1, 3),
    depth=st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=200)
def test_no_call_is_made_beyond_the_budget(seed: int, calls: int, rounds: int, depth: int) -> None:
    run, counter = perform(seed, Budget(calls=calls, depth=depth), rounds)
    assert counter.calls <= calls
    assert run.spent.calls == counter.calls == len(list(run.calls))
    assert run.status != "running"


@given(seed=st.integers(0, 2**32), tokens=st.integers(100, 3000))
@settings(max_examples=100)
def test_no_output_is_asked_for_beyond_the_budget(seed: int, tokens: int) -> None:
    run, counter = perform(seed, Budget(tokens=tokens, depth=1), 2)
    assert counter.tokens <= tokens
    assert run.spent.tokens <= tokens
