from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Message, ToolCall, Usage, system
from podium.core.run import Round, Run, RunStatus, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.access import RequestCost
from podium.server.answers.result import build_response, build_result, find_failure
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest

PLAN = Workflow((Step("solo", "Look"),))
STEP = StepRecord(0, 0, "solo", "Look", (), "done", "seen", None, 0.0, 1.0)
RUN = Run(
    id="run_0123456789abcdef",
    question="Why?",
    status="answered",
    pool=Pool((WorkerProfile(name="solo"),)),
    conductor="rules",
    created_at="2026-01-01T00:00:00.000+00:00",
    rounds=(Round(0, PLAN, (STEP,)),),
    answer="so",
    tier="ultra",
    history=(system("Be brief."),),
)


def broken() -> Run:
    """A run whose answer was cut off by its worker."""
    failed = replace(STEP, status="failed", error="it hung up")
    return replace(RUN, status="partial", rounds=(Round(0, PLAN, (failed,)),))


def test_a_response_reports_the_usage_of_its_own_request() -> None:
    cost = RequestCost(usage=Usage(1, 2, 0, 0, 0))
    result = build_result(ApiRequest(model="podium@pin", messages=()), RUN, cost)
    assert (result.response.model, result.response.usage, result.run) == (
        "podium@pin",
        cost.usage,
        RUN,
    )


def test_only_a_run_that_waits_has_calls_to_tell() -> None:
    called = Message("assistant", (ToolCall("c1", "look", "{}"),))
    waiting = replace(STEP, status="waiting", turns=(called,))
    run = replace(RUN, status="waiting", answer=None, rounds=(Round(0, PLAN, (waiting,)),))
    (call,) = build_response(run, "podium").tool_calls
    assert call.id == "call_0123456789abcdef_c1"
    assert find_failure(run) is None
    ended = replace(run, status="answered", answer="so")
    assert build_response(ended, "podium").tool_calls == ()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (replace(RUN, status="exhausted"), "out_of_budget"),
        (replace(RUN, status="failed", answer=None, context_exceeded=True), "too_long"),
        (replace(RUN, status="failed", answer=None), "upstream"),
        (broken(), "upstream"),
    ],
)
def test_a_run_that_failed_is_refused_with_its_reason(run: Run, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        build_result(ApiRequest(model="podium", messages=()), run, RequestCost())
    assert refused.value.reason == reason


@pytest.mark.parametrize("status", ["answered", "partial"])
def test_an_answer_stands_unless_its_worker_broke_off(status: RunStatus) -> None:
    whole = replace(RUN, status=status)
    assert find_failure(whole) is None
