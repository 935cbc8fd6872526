"""Runs as they are found in a store, for pages that show them: any number, any length, any end."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from podium.pool import Pool, WorkerProfile
from podium.run import Attempt, Round, Run, StepRecord, StepStatus, timestamp
from podium.usage import Usage
from podium.workflow import Access, Step, Workflow

WORKERS: Final = ("solver", "checker", "local")
POOL: Final = Pool(tuple(WorkerProfile(name=name, model=name) for name in WORKERS))
GONE: Final = f"{socket.gethostname()}:{2**22 + 1}"
"""A process that has ended: none has so high a number."""
BEGINNING: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def step_record(
    index: int,
    *,
    round_: int = 0,
    status: StepStatus = "done",
    access: Access = (),
    error: str | None = None,
    attempts: tuple[Attempt, ...] | None = None,
    **more: Any,
) -> StepRecord:
    """A step that took a second, begun when the one before it ended."""
    worker = WORKERS[index % len(WORKERS)]
    started = 1000.0 * index
    one = Attempt(worker, Usage(100, 20, 0, 0, 0), 0.001, started + 200, started + 1000, error)
    return StepRecord(
        round_,
        index,
        worker,
        f"Do part {index}",
        access,
        status,
        f"reply {index}" if status == "done" else "",
        error,
        started,
        started + 1000,
        (one,) if attempts is None else attempts,
        "" if status == "skipped" else f"prompt {index}",
        worker if status == "done" else "",
        **more,
    )


def round_of(*steps: StepRecord, index: int = 0, planned: int | None = None) -> Round:
    """A round with these steps on record, of as many as were planned."""
    recorded = {step.index: Step(step.worker, step.subtask, step.access) for step in steps}
    length = len(steps) if planned is None else planned
    missing = Step("solver", "Go on", ())
    workflow = Workflow(tuple(recorded.get(at, missing) for at in range(length)))
    return Round(index, workflow, steps, plan_text="the conductor's words")


def kept_run(number: int = 0, **more: Any) -> Run:
    """A run that was answered in one step, unless told otherwise; each is a minute younger than
    the one before it."""
    usual: dict[str, Any] = {
        "id": f"run_{number:016x}",
        "question": f"Question {number}?",
        "status": "answered",
        "pool": POOL,
        "conductor": "rules",
        "created_at": timestamp(BEGINNING + timedelta(minutes=number)),
        "rounds": (round_of(step_record(0)),),
        "answer": f"Answer {number}.",
    }
    return Run(**{**usual, **more})


def long_run(steps: int, **more: Any) -> Run:
    """A run of so many steps, each of which may read the two before it, and the last one all."""
    records = [
        step_record(
            index,
            access="all" if index == steps - 1 else tuple(range(max(0, index - 2), index)),
        )
        for index in range(steps)
    ]
    return kept_run(rounds=(round_of(*records),), **more)
