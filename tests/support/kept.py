"""Runs as they lie in a store, made without asking anybody: for pages and figures about them."""

from __future__ import annotations

from podium.pool import Pool, WorkerProfile
from podium.run import Attempt, Round, Run, StepRecord, Tier
from podium.usage import Usage
from podium.workflow import Step, Workflow

NOON = "2026-03-04T12:00:00.000+00:00"


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
    step: Step, index: int, *attempts: Attempt, nested: tuple[Run, ...] = ()
) -> StepRecord:
    """A step that these calls were made for; it failed if the last of them did."""
    error = attempts[-1].error if attempts else None
    return StepRecord(
        round=0,
        index=index,
        worker=step.worker,
        subtask=step.subtask,
        access=step.access,
        status="done" if error is None else "failed",
        reply="so it is" if error is None else "",
        error=error,
        started_ms=attempts[0].started_ms if attempts else 0.0,
        finished_ms=attempts[-1].finished_ms if attempts else 0.0,
        attempts=attempts,
        answered_by=step.worker,
        nested=nested,
    )


def kept_run(
    run_id: str,
    *steps: tuple[Step, tuple[Attempt, ...]],
    planning: tuple[Attempt, ...] = (),
    created_at: str = NOON,
    owner: str = "",
    tier: Tier = "ultra",
    providers: dict[str, str] | None = None,
) -> Run:
    """A run of one round, with these steps and the calls made for each."""
    names = dict.fromkeys([step.worker for step, _ in steps] or ["solo"])
    pool = Pool(
        tuple(WorkerProfile(name=name, provider=(providers or {}).get(name, "")) for name in names)
    )
    records = tuple(
        step_record(step, index, *attempts) for index, (step, attempts) in enumerate(steps)
    )
    workflow = Workflow(tuple(step for step, _ in steps)) if steps else None
    return Run(
        id=run_id,
        question="Why is the sky blue?",
        status="answered",
        pool=pool,
        conductor="model",
        created_at=created_at,
        rounds=(Round(0, workflow, records, planning),),
        answer="so it is",
        tier=tier,
        owner=owner,
    )
