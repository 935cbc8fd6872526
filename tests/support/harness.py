"""Fake workers, and a harness that executes workflows over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.conductors import FixedConductor
from podium.core.budget import Budget, Ledger
from podium.core.events import Event
from podium.core.pool import Capability, Limits, Pool, WorkerProfile
from podium.core.request import Delta, Reply, Request, Usage
from podium.core.run import Round, Run, StepRecord
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import CallPolicy, Execution, RetryPolicy, RunContext, Toolbox

Behaviour = Callable[[Request], str | Reply | Exception]


class FakeWorker(Worker):
    """A worker that does what the test says, and remembers what it was asked."""

    def __init__(
        self,
        name: str,
        behaviour: Behaviour = lambda request: "ok",
        *,
        fallback: str | None = None,
        limits: Limits | None = None,
        can: tuple[Capability, ...] = (),
    ) -> None:
        self.profile = WorkerProfile(
            name=name,
            model=name,
            fallback=fallback,
            limits=limits or Limits(),
            capabilities=frozenset(can),
        )
        self.behaviour = behaviour
        self.asked: list[str] = []
        self.requests: list[Request] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.gate: asyncio.Event | None = None

    async def reply(self, request: Request) -> Reply:
        self.asked.append(request.messages[-1].text)
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)  # others have their turn, as in any real call
            if self.gate is not None:
                await self.gate.wait()
            outcome = self.behaviour(request)
        finally:
            self.in_flight -= 1
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Reply):
            return outcome
        return Reply(outcome, Usage(1, 1, 0, 0, 0))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        reply = await self.reply(request)
        for word in reply.text.split(" "):
            yield Delta(word)
        yield reply


@dataclass
class EngineHarness:
    """Executes workflows over fakes, with a manual clock."""

    budget: Budget = field(default_factory=Budget)
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(jitter=lambda: 1.0))
    events: list[Event] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    watch: bool = True
    toolbox: Toolbox | None = None

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def prepare(
        self,
        workflow: Workflow,
        *fakes: Worker,
        question: str = "q",
        round_: int = 0,
        previous: tuple[Round, ...] = (),
        finished: Sequence[StepRecord] = (),
        **more: object,
    ) -> Execution:
        self.call_policy = CallPolicy(self.retry, sleep=self._sleep)
        self.call_policy.bind()
        self.ledger = Ledger(self.budget)
        workers: Mapping[str, Worker] = {fake.profile.name: fake for fake in fakes}
        emit = self.events.append if self.watch else None
        run = Run(
            id="run_test",
            question=question,
            status="running",
            pool=Pool(tuple(fake.profile for fake in fakes)),
            conductor="fixed",
            created_at="2026-01-02T00:00:00+00:00",
            **more,  # type: ignore[arg-type]
        )
        context = RunContext(
            nested_conductor=FixedConductor(workflow),
            workers=workers,
            call_policy=self.call_policy,
            ledger=self.ledger,
            started=self.call_policy.clock(),
            emit=emit,
            toolbox=self.toolbox,
        )
        return Execution(
            context,
            run,
            Round(round_, workflow, tuple(finished)),
            emit=emit,
            run_nested=_no_nesting,
            previous=previous,
            stream=self.watch,
        )

    async def execute(self, workflow: Workflow, *fakes: Worker, **more: Any) -> Execution:
        execution = self.prepare(workflow, *fakes, **more)
        await execution.execute()
        return execution


async def _no_nesting(*_: object, **__: object) -> None:
    raise AssertionError("no conductor in this pool")
