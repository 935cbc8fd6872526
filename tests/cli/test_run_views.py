from __future__ import annotations

from dataclasses import replace

from podium.cli.run_views import run_lines
from podium.client.documents import run_document
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import UNKNOWN_USAGE, Usage
from podium.core.run import Attempt, GuardrailCheck, Round, Run, StepRecord
from podium.core.workflow import Step, Workflow

FAILED = Attempt("near", UNKNOWN_USAGE, None, 0, 1000, error="busy")
DONE = Attempt("near", Usage(3, 2, 0, 0, 0), 0.5, 1000, 3000)

RECORD = StepRecord(
    round=0,
    index=0,
    worker="near",
    subtask="Say it",
    access=(),
    status="done",
    reply="said\x1b[31m it",
    error=None,
    started_ms=0,
    finished_ms=3000,
    attempts=(FAILED, DONE),
    prompt="Question: q?\n\nYour subtask: Say it",
)


def run_of(record: StepRecord) -> Run:
    return Run(
        id="run_1",
        question="q?",
        status="answered",
        pool=Pool((WorkerProfile(name="near"),)),
        conductor="model(near)",
        created_at="2026-11-15T00:00:00.000+00:00",
        rounds=(
            Round(0, Workflow((Step("near", "Say it"),)), (record,), plan_text="model_id = [0]"),
        ),
        answer="said it",
    )


def lines_of(run: Run, *, prompts: bool = False) -> list[str]:
    return list(run_lines(run, prompts=prompts))


def test_a_failed_attempt_is_reported_with_its_reason() -> None:
    lines = lines_of(run_of(RECORD))
    assert "  attempt 1 by near: failed, busy; tokens unknown, cost unknown, 1.0 s" in lines
    assert "  attempt 2 by near: 5 tokens, $0.50, 2.0 s" in lines


def test_the_same_reason_is_reported_once() -> None:
    lines = lines_of(run_of(replace(RECORD, attempts=(FAILED, FAILED, DONE))))
    assert "  attempt 2 by near: failed, as before; tokens unknown, cost unknown, 1.0 s" in lines
    assert "  attempt 3 by near: 5 tokens, $0.50, 2.0 s" in lines


def test_attempts_that_say_no_more_than_their_step_are_left_out() -> None:
    lines = lines_of(run_of(replace(RECORD, attempts=(DONE,))))
    assert not any("attempt" in line for line in lines)


def test_prompts_are_reported_word_for_word_when_asked_for() -> None:
    shown = ["    Question: q?", "", "    Your subtask: Say it"]
    lines = lines_of(run_of(RECORD), prompts=True)
    where = lines.index("  prompt:")
    assert lines[where + 1 : where + 6] == [*shown, "  reply:", "    said it"]
    assert "    model_id = [0]" in lines
    assert not any("Your subtask" in line for line in lines_of(run_of(RECORD)))


def test_a_nested_run_is_reported_inside_its_step() -> None:
    inner = replace(run_of(RECORD), id="run_2", question="a part", depth=1)
    outer = run_of(replace(RECORD, attempts=(), nested=(inner,)))
    lines = lines_of(outer, prompts=True)
    assert "    question: a part" in lines
    assert "    step 0 near: done, tokens unknown, cost unknown, 3.0 s" in lines
    assert "        Your subtask: Say it" in lines


def test_guardrail_actions_stand_at_their_place_and_in_the_document() -> None:
    redacted = GuardrailCheck(
        guardrail="privacy", stage="question", action="redacted", reason="1 × e-mail"
    )
    blocked = GuardrailCheck(
        guardrail="grounding",
        stage="answer",
        action="blocked",
        reason="made\x1b[31m up",
        step=0,
        worker="near",
        attempts=(DONE,),
    )
    run = replace(
        run_of(replace(RECORD, guardrail_checks=(blocked,))),
        status="failed",
        guardrail_checks=(redacted,),
        guardrails=("privacy", "grounding"),
        blocked_by="grounding",
    )
    lines = list(run_lines(run, prompts=False))
    assert lines[2] == "guardrail privacy redacted the question: 1 × e-mail"
    lines_of = "guardrail grounding blocked the answer: made up (verifier near: 5 tokens)"
    assert f"  {lines_of}" in lines
    document = run_document(run)
    assert (document["guardrails"], document["blocked_by"]) == (
        ["privacy", "grounding"],
        "grounding",
    )
    assert [check["action"] for check in document["guardrail_checks"]] == ["redacted", "blocked"]
    assert document["guardrail_checks"][1]["cost_usd"] == 0.5
