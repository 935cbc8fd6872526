from __future__ import annotations

import pytest

from podium.core.errors import BudgetExhausted, GuardrailBlocked, PodiumError, ReplanDemanded
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, ResponseOptions
from podium.core.run import Round, RunStatus, StepRecord, StepStatus
from podium.core.workflow import Step, Workflow
from podium.engine.outcome import (
    answer_while_waiting,
    answering_step,
    status_at_the_end,
    what_blocked,
    what_went_wrong,
)

PLAN = Workflow((Step("a", "first"), Step("b", "second", (0,))))


def step(index: int, status: StepStatus, reply: str = "") -> StepRecord:
    return StepRecord(0, index, "ab"[index], "do it", (), status, reply, None, 0.0, 1.0)


def rounds(*steps: StepRecord) -> tuple[Round, ...]:
    return (Round(0, PLAN, steps),)


def test_a_final_step_that_is_done_answers() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "done", "two"))
    best = answering_step(ended, DEFAULT_RESPONSE_OPTIONS)
    assert best is ended[0].steps[1]
    assert status_at_the_end(ended, best, None) == "answered"
    assert what_went_wrong(ended, None) is None


def test_what_was_told_of_a_step_that_failed_answers_before_another_that_is_done() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "failed", "two, as far as"))
    best = answering_step(ended, DEFAULT_RESPONSE_OPTIONS)
    assert best is ended[0].steps[1]
    assert status_at_the_end(ended, best, None) == "partial"
    assert what_went_wrong(ended, None) == "step 1 (b) failed: None"


def test_only_a_final_step_answers_where_a_schema_is_demanded() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "failed"))
    assert answering_step(ended, DEFAULT_RESPONSE_OPTIONS) is ended[0].steps[0]
    assert answering_step(ended, ResponseOptions(schema={"type": "object"})) is None


@pytest.mark.parametrize(
    ("stopped_by", "status"),
    [(BudgetExhausted("calls", 3), "exhausted"), (PodiumError("no"), "failed"), (None, "failed")],
)
def test_a_run_without_an_answer_says_whether_its_budget_ended(
    stopped_by: PodiumError | None, status: RunStatus
) -> None:
    assert status_at_the_end(rounds(step(0, "failed")), None, stopped_by) == status


def test_a_plan_that_a_guardrail_demanded_and_did_not_get_blocks_the_run() -> None:
    unmet = ReplanDemanded("grounded", "answer", "it says more than its sources")
    blocked = what_blocked(rounds(step(0, "done", "one")), None, unmet)
    assert blocked is not None
    assert "it says more than its sources; no round is left to plan" in str(blocked)
    assert what_blocked(rounds(step(0, "done", "1"), step(1, "done", "2")), None, unmet) is None
    at_once = GuardrailBlocked("secrets", "question", "a key")
    assert what_blocked((), at_once, None) is at_once


def test_a_run_that_waits_says_what_its_final_step_said_with_its_calls() -> None:
    assert answer_while_waiting(rounds(step(0, "done", "1"), step(1, "waiting", "look"))) == "look"
    assert answer_while_waiting(rounds(step(0, "waiting", "look"))) is None
    turn = Round(0, PLAN, (step(1, "waiting", "look"),), role="thinker")
    assert answer_while_waiting((turn,)) is None
