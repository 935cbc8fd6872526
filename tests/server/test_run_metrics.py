from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from podium.core.budget import recorded_spending
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import NO_USAGE
from podium.core.roles import Role
from podium.core.run import Attempt
from podium.core.workflow import Step
from podium.server.worker_statistics import RunMetricsCache, measure_run
from podium.store.sql.run_store import SqlRunStore
from support.runs_on_record import NOON, attempt, carried_out, run_with_calls

DAY = {"since": "2026-03-04", "until": "2026-03-04"}
SOLVE = Step("solo", "Solve it.", ())


def run_number(number: int) -> str:
    return f"run_{number:016x}"


def hour(number: int) -> str:
    return NOON.replace("12", f"{number:02}")


def test_the_metrics_have_every_call_with_its_end() -> None:
    run = run_with_calls(
        run_number(1),
        (SOLVE, (attempt("solo", 2.0, at=1.0, error="no"), attempt("helper", 1.0, at=3.5))),
        planning=(attempt("planner", 1.0),),
    )
    calls = measure_run(run).calls
    assert [(call.worker, call.is_planning, call.error) for call in calls] == [
        ("planner", True, None),
        ("solo", False, "no"),
        ("helper", False, None),
    ]
    assert [call.at - calls[0].at for call in calls] == [0.0, 2.0, 3.5]
    assert calls[2].seconds == 1.0


def test_a_call_refused_by_an_open_breaker_is_not_counted() -> None:
    refused = Attempt("solo", NO_USAGE, 0.0, 5.0, 5.0, "solo has failed too often")
    run = run_with_calls(run_number(1), (SOLVE, (refused, attempt("helper"))), planning=(refused,))
    assert [call.worker for call in measure_run(run).calls] == ["helper"]
    assert recorded_spending(run).calls == 1


def test_nested_steps_have_the_position_of_their_outer_step() -> None:
    inner = run_with_calls(run_number(2), (SOLVE, (attempt("solo"),)))
    outer = Step("deputy", "Take this over.", ())
    run = run_with_calls(run_number(1), (SOLVE, (attempt("solo"),)), (outer, ()))
    nested = carried_out(outer, 1, nested=(inner,))
    round_ = replace(run.rounds[0], steps=(run.rounds[0].steps[0], nested))
    deputy = replace(run.pool["deputy"], provider=CONDUCTOR_PROVIDER)
    pool = replace(run.pool, workers=(run.pool["solo"], deputy))
    metrics = measure_run(replace(run, rounds=(round_,), pool=pool))
    assert [(use.worker, use.role, use.position) for use in metrics.steps] == [
        ("solo", Role.SOLVE, (0, 0)),
        ("deputy", Role.HAND_OVER, (0, 1)),
        ("solo", Role.SOLVE, (0, 1)),
    ]
    assert len(metrics.calls) == 2


def test_a_skipped_step_counts_for_no_worker() -> None:
    run = run_with_calls(run_number(1), (SOLVE, ()))
    skipped = replace(run.rounds[0].steps[0], status="skipped")
    run = replace(run, rounds=(replace(run.rounds[0], steps=(skipped,)),))
    assert measure_run(run).steps == ()


async def test_an_inconsistent_run_is_left_out_and_counted(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "runs.db")
    run = run_with_calls(run_number(1), (SOLVE, (attempt("solo"),)))
    astray = replace(run.rounds[0].steps[0], index=7)
    of_no_plan = replace(run, id=run_number(2), rounds=(replace(run.rounds[0], steps=(astray,)),))
    of_no_time = replace(run, id=run_number(3), created_at="2026-03-04, at noon")
    endless = attempt("solo", seconds=1e300)
    without_end = run_with_calls(run_number(4), (SOLVE, (endless,)))
    await store.finish(run, of_no_plan, of_no_time, without_end)
    window = await RunMetricsCache().load(store.statistics, **DAY, owner=None, limit=10)
    assert [run.run_id for run in window.runs] == [run.id]
    assert window.unreadable_runs == 3
    await store.close()


async def test_a_run_is_read_once_and_again_when_it_was_written_again(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "runs.db")
    run = run_with_calls(run_number(1), (SOLVE, (attempt("solo"),)))
    await store.finish(run)
    cache = RunMetricsCache()
    first = await cache.load(store.statistics, **DAY, owner=None, limit=10)
    second = await cache.load(store.statistics, **DAY, owner=None, limit=10)
    assert first.runs[0] is second.runs[0]
    again = replace(run, rounds=(replace(run.rounds[0], planning_attempts=(attempt("planner"),)),))
    await store.finish(again)
    third = await cache.load(store.statistics, **DAY, owner=None, limit=10)
    assert len(third.runs[0].calls) == 2
    await store.close()


async def test_the_metrics_of_only_so_many_runs_are_kept_and_only_so_many_runs_looked_at(
    tmp_path: Path,
) -> None:
    store = await SqlRunStore.open(tmp_path / "runs.db")
    runs = [
        run_with_calls(run_number(n), (SOLVE, (attempt("solo"),)), created_at=hour(n))
        for n in range(1, 6)
    ]
    await store.finish(*runs)
    cache = RunMetricsCache(most=2)
    window = await cache.load(store.statistics, **DAY, owner=None, limit=3)
    assert [run.run_id for run in window.runs] == [run_number(n) for n in (5, 4, 3)]
    assert not window.is_complete
    assert len(cache._kept) == 2
    assert (await cache.load(store.statistics, **DAY, owner=None, limit=5)).is_complete
    await store.close()
