from __future__ import annotations

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Usage
from podium.core.run import Attempt, Round, Run, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.access import RequestCost

PLAN = Workflow((Step("solo", "Look"),))


def called(output_tokens: int | None, cost_usd: float | None) -> Attempt:
    usage = Usage(10, output_tokens, 0, 0, 0)
    return Attempt("solo", usage, cost_usd, 0.0, 1.0)


def run(*calls: Attempt) -> Run:
    step = StepRecord(0, 0, "solo", "Look", (), "done", "seen", None, 0.0, 1.0, calls)
    return Run(
        id="run_1",
        question="Why?",
        status="answered",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
        rounds=(Round(0, PLAN, (step,)),),
    )


def test_a_run_that_was_begun_by_the_request_is_billed_whole() -> None:
    bill, begun = RequestCost(), run(called(7, 0.5))
    bill.add_run(begun, None)
    assert (bill.run, bill.usage, bill.cost_usd) == (begun, begun.usage, 0.5)


def test_a_run_in_progress_is_billed_for_what_was_added() -> None:
    bill = RequestCost()
    bill.add_run(run(called(7, 0.5), called(4, 0.25)), run(called(7, 0.5)))
    assert (bill.usage.input_tokens, bill.usage.output_tokens, bill.cost_usd) == (10, 4, 0.25)


def test_unknown_parts_make_the_difference_unknown() -> None:
    bill = RequestCost()
    bill.add_run(run(called(None, None), called(4, 0.25)), run(called(None, None)))
    assert (bill.usage.input_tokens, bill.usage.output_tokens, bill.cost_usd) == (10, None, None)
