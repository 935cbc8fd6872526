from __future__ import annotations

import pytest

from podium.core.roles import Role
from podium.core.workflow import Step
from podium.server.worker_statistics import NOTHING, measure_run, worker_stats
from support.runs_on_record import attempt, run_with_calls

RUN = "run_0000000000000001"
ALONE = Step("ada", "Solve it.", ())
CHECK = Step("bob", "Check the answer.", "all")


def test_shares_rates_and_times_are_over_the_calls_of_the_window() -> None:
    run = run_with_calls(
        RUN,
        (ALONE, (attempt("ada", 9.0, error="late"), attempt("ada", 1.0, at=9.0))),
        (CHECK, (attempt("bob", 3.0, at=10.0),)),
        planning=(attempt("ada", 5.0),),
    )
    found = worker_stats([measure_run(run)])
    ada, bob = found["ada"], found["bob"]
    assert (ada["calls"], ada["failed"], ada["planning"], ada["share"]) == (3, 1, 1, 0.75)
    assert ada["error_rate"] == pytest.approx(1 / 3)
    assert ada["seconds"] == {"p50": 1.0, "p95": 5.0}
    assert (bob["share"], bob["error_rate"]) == (0.25, 0.0)
    assert bob["seconds"] == {"p50": 3.0, "p95": 3.0}


def test_health_is_how_the_latest_call_went() -> None:
    fine = run_with_calls(RUN, (ALONE, (attempt("ada", at=5.0),)))
    worse = run_with_calls(
        RUN,
        (ALONE, (attempt("ada", at=1.0), attempt("ada", at=7.0, error="gone"))),
        (CHECK, (attempt("bob", error="never"), attempt("bob", at=2.0, error="never"))),
    )
    assert worker_stats([measure_run(fine)])["ada"]["health"]["state"] == "working"
    found = worker_stats([measure_run(fine), measure_run(worse)])
    ada, bob = found["ada"]["health"], found["bob"]["health"]
    assert (ada["state"], ada["failures_in_a_row"]) == ("failing", 1)
    assert ada["last_error"] == "gone"
    assert ada["last_success"] == "2026-03-04T12:00:06.000+00:00"
    assert (bob["last_success"], bob["failures_in_a_row"]) == (None, 2)
    assert NOTHING["health"]["state"] == "unknown"


def test_unknown_is_not_zero() -> None:
    found = worker_stats(
        [measure_run(run_with_calls(RUN, (ALONE, (attempt("ada", cost=None, error="no"),))))]
    )
    ada = found["ada"]
    assert (ada["cost_usd"], ada["unknown_cost_count"]) == (None, 1)
    assert ada["seconds"] == {"p50": None, "p95": None}
    assert (NOTHING["share"], NOTHING["error_rate"]) == (None, None)


def test_roles_are_counted_with_the_newest_different_steps_as_examples() -> None:
    subtasks = ["Check it.", "Check it.", "Verify the sum.", "Check it.", "Fix it.", "Review it."]
    runs = [
        run_with_calls(
            f"run_{number:016x}",
            (ALONE, (attempt("ada"),)),
            (Step("bob", subtask, "all"), (attempt("bob"),)),
        )
        for number, subtask in enumerate(subtasks)
    ]
    (verifies,) = worker_stats(measure_run(run) for run in runs)["bob"]["roles"]
    assert (verifies["role"], verifies["steps"]) == (Role.VERIFY.value, 6)
    assert [(item["run_id"][-1], item["subtask"]) for item in verifies["examples"]] == [
        ("0", "Check it."),
        ("2", "Verify the sum."),
        ("4", "Fix it."),
    ]
