from __future__ import annotations

import pytest

from podium.core.errors import BudgetExhausted, GuardrailBlocked, PodiumError, ReplanRequested
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, ResponseOptions
from podium.core.run import Round, RunStatus, StepRecord, StepStatus, answer_steps
from podium.core.workflow import Step, Workflow
from podium.engine.run_loop import (
    blocking_error,
    end_status,
    first_error,
    partial_answer_step,
    waiting_answer,
)

PLAN = Workflow((Step("a", "first"), Step("b", "second", (0,))))


def step(index: int, status: StepStatus, reply: str = "") -> StepRecord:
    return StepRecord(0, index, "ab"[index], "do it", (), status, reply, None, 0.0, 1.0)


def rounds(*steps: StepRecord) -> tuple[Round, ...]:
    return (Round(0, PLAN, steps),)


def test_a_final_step_that_is_done_answers() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "done", "two"))
    assert answer_steps(ended) == [ended[0].steps[1]]
    assert first_error(ended, None) is None


def test_a_failed_steps_sent_text_answers_before_another_done_step() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "failed", "two, as far as"))
    best = partial_answer_step(ended, DEFAULT_RESPONSE_OPTIONS)
    assert best is ended[0].steps[1]
    assert answer_steps(ended) == []
    assert end_status(best, None) == "partial"
    assert first_error(ended, None) == "step 1 (b) failed: None"


def test_only_a_final_step_answers_where_a_schema_is_demanded() -> None:
    ended = rounds(step(0, "done", "one"), step(1, "failed"))
    assert partial_answer_step(ended, DEFAULT_RESPONSE_OPTIONS) is ended[0].steps[0]
    assert partial_answer_step(ended, ResponseOptions(schema={"type": "object"})) is None


@pytest.mark.parametrize(
    ("stopped_by", "status"),
    [(BudgetExhausted("calls", 3), "exhausted"), (PodiumError("no"), "failed"), (None, "failed")],
)
def test_a_run_without_an_answer_says_whether_its_budget_ended(
    stopped_by: PodiumError | None, status: RunStatus
) -> None:
    assert end_status(None, stopped_by) == status


def test_a_plan_that_a_guardrail_demanded_and_did_not_get_blocks_the_run() -> None:
    unmet = ReplanRequested("grounded", "answer", "it says more than its sources")
    blocked = blocking_error(rounds(step(0, "done", "one")), None, unmet)
    assert blocked is not None
    assert "it says more than its sources; no round is left to plan" in str(blocked)
    assert blocking_error(rounds(step(0, "done", "1"), step(1, "done", "2")), None, unmet) is None
    at_once = GuardrailBlocked("secrets", "question", "a key")
    assert blocking_error((), at_once, None) is at_once


def test_a_waiting_run_holds_the_text_and_calls_of_its_final_step() -> None:
    assert waiting_answer(rounds(step(0, "done", "1"), step(1, "waiting", "look"))) == "look"
    assert waiting_answer(rounds(step(0, "waiting", "look"))) is None
    turn = Round(0, PLAN, (step(1, "waiting", "look"),), role="thinker")
    assert waiting_answer((turn,)) is None
