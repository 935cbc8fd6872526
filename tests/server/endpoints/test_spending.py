from __future__ import annotations

import pytest

from podium.core.workflow import Step
from podium.server.endpoints.accounting import (
    SpendingGroup,
    group_by_worker,
    group_spending,
    total_spending,
)
from podium.server.worker_statistics import measure_run
from podium.store.keys import KeyUsage
from support.runs_on_record import attempt, run_with_calls

DAY, NEXT = "2026-03-04", "2026-03-05"
USED = [
    KeyUsage(key_id="key_a", day=DAY, model="podium-ultra", requests=3, cost_usd=2.0,
             input_tokens=100, output_tokens=20, unknown_cost_count=1, assumed_usd=0.5),
    KeyUsage(key_id="key_a", day=NEXT, model="podium-mini", requests=1, cost_usd=0.25),
    KeyUsage(key_id="key_b", day=NEXT, model="gpt-5", requests=2, cost_usd=1.0),
]  # fmt: skip
UNOWNED = KeyUsage(
    key_id="", day=DAY, model="podium-ultra", requests=4, input_tokens=50, cost_usd=0.5,
    unknown_cost_count=2,
)  # fmt: skip
ENTRIES = [*USED, UNOWNED]


def money(groups: list[SpendingGroup]) -> dict[str, float]:
    return {group.name: group.total.cost_usd for group in groups}


def test_every_grouping_adds_up_to_the_same_total() -> None:
    whole = total_spending(ENTRIES)
    assert (whole.requests, whole.cost_usd, whole.unknown_cost_count, whole.tokens) == (
        10,
        3.75,
        3,
        170,
    )
    assert money(group_spending(ENTRIES, "key")) == {"key_a": 2.25, "key_b": 1.0, "": 0.5}
    assert money(group_spending(ENTRIES, "tier")) == {"ultra": 2.5, "gateway": 1.0, "mini": 0.25}
    assert money(group_spending(ENTRIES, "day")) == {DAY: 2.5, NEXT: 1.25}
    for by in ("key", "tier", "day"):
        groups = group_spending(ENTRIES, by)
        assert sum((group.total for group in groups), start=total_spending([])) == whole
        assert all(
            sum(group.days.values(), start=total_spending([])) == group.total for group in groups
        )


def test_workers_cost_what_their_calls_did_and_what_they_were_asked_by_name() -> None:
    known = run_with_calls(
        "run_0000000000000001",
        (Step("gpt-5", "Do.", ()), (attempt("gpt-5", cost=0.5),)),
        planning=(attempt("planner", cost=0.125),),
    )
    assert money(group_by_worker(ENTRIES, [measure_run(known)], DAY, NEXT)) == {
        "gpt-5": 1.5,
        "planner": 0.125,
    }


def test_calls_are_reported_only_where_runs_tell_of_them() -> None:
    run = run_with_calls(
        "run_0000000000000001", (Step("ada", "Do.", ()), (attempt("ada", cost=0.5),))
    )
    assert {group.total.calls for group in group_spending(ENTRIES, "tier")} == {None}
    assert total_spending(ENTRIES).calls is None
    workers = {
        item.name: item.total for item in group_by_worker(ENTRIES, [measure_run(run)], DAY, NEXT)
    }
    assert (workers["ada"].calls, workers["gpt-5"].calls, workers["gpt-5"].requests) == (1, 0, 2)


def test_a_run_of_which_a_part_is_unknown_is_in_no_sum_but_counted() -> None:
    run = run_with_calls(
        "run_0000000000000001",
        (Step("gpt-5", "Do.", ()), (attempt("gpt-5", cost=0.5),)),
        (Step("free", "Do.", ()), (attempt("free", cost=None),)),
    )
    found = {
        group.name: group.total for group in group_by_worker([], [measure_run(run)], DAY, NEXT)
    }
    assert (found["gpt-5"].cost_usd, found["gpt-5"].unknown_cost_count, found["gpt-5"].calls) == (
        0,
        0,
        1,
    )
    assert (found["free"].cost_usd, found["free"].unknown_cost_count) == (0, 1)
    assert (found["free"].tokens, found["free"].unknown_usage_count) == (110, 0)


def test_a_call_after_midnight_of_the_last_day_is_that_days_as_its_run_is() -> None:
    run = run_with_calls(
        "run_0000000000000001",
        (Step("gpt-5", "Do.", ()), (attempt("gpt-5", 13 * 3600.0),)),
    )
    (group,) = group_by_worker([], [measure_run(run)], DAY, DAY)
    assert list(group.days) == [DAY]
    (group,) = group_by_worker([], [measure_run(run)], DAY, NEXT)
    assert list(group.days) == [NEXT]
    assert group.total.cost_usd == pytest.approx(0.25)
