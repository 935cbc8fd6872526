"""Stored runs made without any call, for pages and statistics:
any number, any length, any end."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Usage
from podium.core.run import Attempt, Round, Run, StepRecord, StepStatus, timestamp
from podium.core.workflow import Access, Step, Workflow

WORKERS: Final = ("solver", "checker", "local")
POOL: Final = Pool(tuple(WorkerProfile(name=name, model=name) for name in WORKERS))
GONE: Final = f"{socket.gethostname()}:{2**22 + 1}"
"""A process that has ended: none has so high a number."""
NOON: Final = "2026-03-04T12:00:00.000+00:00"
BEGINNING: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def attempt(
    worker: str,
    seconds: float = 1.0,
    *,
    at: float = 0.0,
    cost: float | None = 0.25,
    error: str | None = None,
) -> Attempt:
    """A call that began `at` seconds into its run."""
    began = at * 1000
    return Attempt(worker, Usage(100, 10, 0, 0, 0), cost, began, began + seconds * 1000, error)


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
    usual: dict[str, Any] = {
        "round": round_,
        "index": index,
        "worker": worker,
        "subtask": f"Do part {index}",
        "access": access,
        "status": status,
        "reply": f"reply {index}" if status == "done" else "",
        "error": error,
        "started_ms": started,
        "finished_ms": started + 1000,
        "attempts": (one,) if attempts is None else attempts,
        "prompt": "" if status == "skipped" else f"prompt {index}",
        "answered_by": worker if status == "done" else "",
    }
    return StepRecord(**{**usual, **more})


def carried_out(step: Step, index: int, *attempts: Attempt, **more: Any) -> StepRecord:
    """A step that these calls were made for; it failed if the last of them did."""
    error = attempts[-1].error if attempts else None
    return step_record(
        index,
        status="done" if error is None else "failed",
        access=step.access,
        error=error,
        attempts=attempts,
        worker=step.worker,
        subtask=step.subtask,
        answered_by=step.worker,
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
    """A run answered in one step, by default; each is a minute younger than
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


def run_with_calls(
    run_id: str,
    *steps: tuple[Step, tuple[Attempt, ...]],
    planning: tuple[Attempt, ...] = (),
    created_at: str = NOON,
    providers: dict[str, str] | None = None,
    **more: Any,
) -> Run:
    """A run of one round, with these steps and the calls made for each."""
    names = dict.fromkeys([step.worker for step, _ in steps] or ["solo"])
    pool = Pool(
        tuple(WorkerProfile(name=name, provider=(providers or {}).get(name, "")) for name in names)
    )
    records = tuple(
        carried_out(step, index, *attempts) for index, (step, attempts) in enumerate(steps)
    )
    workflow = Workflow(tuple(step for step, _ in steps)) if steps else None
    rounds = (Round(0, workflow, records, planning),)
    return kept_run(
        **{"id": run_id, "pool": pool, "created_at": created_at, "rounds": rounds, **more}
    )


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
