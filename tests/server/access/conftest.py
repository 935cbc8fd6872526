"""A database for replicas to share, and runs, for the tests of what they are charged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.core.budget import Spent
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Usage
from podium.core.run import Attempt, Round, Run, RunStatus, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.access import quotas
from support.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the replicas' store is: an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "podium.db")
    server: Postgres = request.getfixturevalue("postgres")
    return await server.empty()


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """A run whose steps have each used 15 tokens and a quarter of a dollar."""

    def make(*, steps: int = 3, status: RunStatus = "answered", answer: str | None = "So.") -> Run:
        workflow = Workflow(tuple(Step("solo", f"Do part {n}", "all") for n in range(steps)))
        records = tuple(
            StepRecord(
                round=0,
                index=index,
                worker="solo",
                subtask=step.subtask,
                access=step.access,
                status="done",
                reply="Because.",
                error=None,
                started_ms=1.0,
                finished_ms=2.5,
                attempts=(Attempt("solo", Usage(10, 5, 0, 0, 0), 0.25, 1.0, 2.5),),
            )
            for index, step in enumerate(workflow.steps)
        )
        return Run(
            id="run_0123456789abcdef",
            question="Why?",
            status=status,
            pool=Pool((WorkerProfile(name="solo"),)),
            conductor="fixed",
            created_at="2026-01-02T03:04:05.678+00:00",
            rounds=(Round(0, workflow, records),),
            answer=answer,
            spent=Spent(calls=steps, tokens=15 * steps, usd=0.25 * steps, seconds=1.5),
        )

    return make


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays of shared budgets."""
    monkeypatch.setattr(quotas, "WRITE_SECONDS", 0.002)
    monkeypatch.setattr(quotas, "POLL_SECONDS", 0.005)
