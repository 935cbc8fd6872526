from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.events import (
    GuardrailActed,
    RoundPlanned,
    RunStarted,
    StepDone,
    StepProgress,
    StepRetried,
    StepStarted,
)
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import user
from podium.core.run import GuardrailCheck, Round, Run, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.records import repository
from podium.server.records.repository import EventBroadcaster, client_events

TWO = Workflow((Step("solo", "Look"), Step("solo", "Look again")))


def step(index: int) -> StepRecord:
    return StepRecord(0, index, "solo", "Look", (), "done", "seen", None, 0.0, 1.0)


def run(*done: int, ended: bool = False) -> Run:
    """A run elsewhere, of which these steps are on record."""
    return Run(
        id="run_1",
        question="Why?",
        status="answered" if ended else "running",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
        rounds=(Round(0, TWO, tuple(step(index) for index in done)),),
    )


async def test_steps_that_end_out_of_order_elsewhere_are_each_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repository, "POLL_SECONDS", 0.0)
    records = iter([run(1), run(0, 1), run(0, 1, ended=True)])

    async def load() -> Run:
        return next(records)

    async def is_claimed() -> bool:
        return True

    events = [event async for event in EventBroadcaster().watch("run_1", load, is_claimed)]
    assert [event.name for event in events] == [
        "run_started", "round_planned", "step_done", "step_done", "run_done",
    ]  # fmt: skip
    assert [event.document["index"] for event in events[2:4]] == [1, 0]


def test_a_step_in_progress_reports_what_its_worker_was_sent_until_it_is_done() -> None:
    events = EventBroadcaster()
    for event in (
        RunStarted(run()),
        RoundPlanned("run_1", Round(0, TWO)),
        StepStarted("run_1", 0, 0, "solo", "Look!"),
        StepStarted("run_1", 0, 1, "solo", "Look again!"),
        StepRetried("run_1", 0, 1, "other", "no", 0.0),
        StepProgress("run_1", replace(step(1), turns=(user("seen"),))),
        StepDone("run_1", step(0)),
    ):
        events(event)
    assert events.active_step("run_1", 0, 0) is None, "it is done"
    assert events.active_step("run_1", 1, 0) is None, "it is not planned"
    assert events.active_step("run_2", 0, 1) is None, "there is none"
    going = events.active_step("run_1", 0, 1)
    assert going is not None
    assert (going.run.id, going.round.workflow) == ("run_1", TWO)
    assert (going.step.prompt, going.step.answered_by) == ("Look again!", "other")
    assert going.step.turns == (user("seen"),)


def test_guardrail_actions_are_reported_as_they_happen() -> None:
    check = GuardrailCheck(
        guardrail="privacy", stage="reply", action="redacted", reason="1 × card", step=2
    )
    (result,) = client_events(GuardrailActed("run_1", check))
    assert result.name == "guardrail_acted"
    shown = {
        key: result.document[key] for key in ("run_id", "guardrail", "action", "reason", "step")
    }
    assert shown == {
        "run_id": "run_1",
        "guardrail": "privacy",
        "action": "redacted",
        "reason": "1 × card",
        "step": 2,
    }
