"""The chain: five steps, each of which reads the one before and asks a worker that does nothing.

What is left is the cost of orchestration itself. The bare TaskGroup makes the same five awaits
with no access, budget, gate, time-out, retry, record or event: it is the floor, not a rival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from benchmarks.contest import Chains
from podium.conductors import FixedConductor
from podium.core.budget import Budget, Ledger
from podium.core.events import Emit, Event
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Message, Reply, Request, user
from podium.core.run import Run
from podium.core.usage import Usage
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import Assignment, CallPolicy, Execution, Scope
from podium.engine.runner import Runner

LENGTH: Final = 5
QUESTION: Final = "What does orchestration cost?"


class IdleWorker(Worker):
    """Replies at once, with the same words."""

    profile = WorkerProfile(name="idle", description="does nothing")
    _reply = Reply("done", Usage(1, 1, 0, 0, 0))

    async def reply(self, request: Request) -> Reply:
        """Do nothing."""
        return self._reply


def chain_workflow(worker: str) -> Workflow:
    """Five steps in a row."""
    return Workflow(
        tuple(
            Step(worker, f"subtask {index}", access=(index - 1,) if index else ())
            for index in range(LENGTH)
        )
    )


def bare_taskgroup() -> Chains:
    """Five tasks; each awaits the one before and then the worker, with a request made before."""
    worker = IdleWorker()
    request = Request((user(QUESTION),))

    async def link(before: asyncio.Task[Reply] | None) -> Reply:
        if before is not None:
            await before
        return await worker.reply(request)

    async def carry_out() -> None:
        async with asyncio.TaskGroup() as group:
            last: asyncio.Task[Reply] | None = None
            for _ in range(LENGTH):
                last = group.create_task(link(last))

    return Chains("taskgroup", carry_out)


def engine(*, watched: bool) -> Chains:
    """The engine as the runner uses it, everything that belongs to one run made anew each time.

    Watched, each event is made and handed to somebody; otherwise `emit` is None.
    """
    worker = IdleWorker()
    workers: Mapping[str, Worker] = {worker.profile.name: worker}
    pool = Pool((worker.profile,))
    workflow = chain_workflow(worker.profile.name)
    budget = Budget()
    board = CallPolicy()
    board.bind()
    emit = _watcher() if watched else None

    async def carry_out() -> None:
        ledger = Ledger(budget)
        execution = Execution(
            Assignment(workflow=workflow, question=QUESTION, pool=pool, finished={}),
            workers,
            board,
            Scope(
                run_id="run_bench",
                ledger=ledger,
                emit=emit,
                started=board.clock(),
                nest=partial(_no_nesting, ledger),
            ),
            stream=False,
        )
        await execution.carry_out()

    return Chains("engine_watched" if watched else "engine", carry_out)


def runner() -> Chains:
    """A whole run, with its id, its plan by a fixed conductor, and its record at the end."""
    worker = IdleWorker()
    conductor = FixedConductor(chain_workflow(worker.profile.name))
    return Chains("runner", partial(Runner(conductor, [worker]).run, QUESTION))


def _watcher() -> Emit:
    """Somebody who looks at the latest events."""
    latest: deque[Event] = deque(maxlen=1)
    return latest.append


async def _no_nesting(
    ledger: Ledger,
    question: str,
    history: tuple[Message, ...],
    parent: tuple[str, int],
    keep: Callable[[Run], None],
) -> None:
    raise AssertionError("there is no conductor in this pool")
