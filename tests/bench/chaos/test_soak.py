from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chaos import soak
from benchmarks.chaos.soak import (
    MAX_BYTES,
    MAX_OBJECTS,
    MIB,
    MIN_GROWTH_BYTES,
    MIN_GROWTH_OBJECTS,
    SLOPE_RUNS,
    ResourceReading,
    find_growth,
    measure_soak,
    slope,
)

STILL = ResourceReading(runs=0, bytes=100 * MIB, objects=100_000, files=9, tasks=2, threads=3)


def over_time(name: str, by: int, every: int = 10_000) -> list[ResourceReading]:
    """Ten moments, at each of which there is so much more of it."""
    return [
        STILL._replace(runs=every * n, **{name: getattr(STILL, name) + by * n}) for n in range(10)
    ]


async def test_many_runs_of_the_server_leave_nothing_behind() -> None:
    row = await measure_soak(160, slices=4)
    assert row.lost == 0
    assert row.runs == 160
    assert row.note.endswith("MiB in all (less than 4 is no growth)")
    for name in ("files", "tasks", "threads"):
        assert row.figures[f"{name}_end"] == row.figures[f"{name}_warm"]


async def test_an_answer_that_is_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object, **__: object) -> str:
        return ""

    monkeypatch.setattr(soak, "ask_app", silent)
    row = await measure_soak(40, slices=2)
    assert row.lost == 40
    assert not row.holds


def test_a_constant_series_has_no_growth() -> None:
    assert find_growth(over_time("bytes", 0)) == ()
    assert slope(over_time("bytes", 0), "bytes") == 0


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("bytes", MIB),
        ("objects", 1_000),
        ("files", 1),
        ("tasks", 1),
        ("threads", 1),
    ],
)
def test_a_leak_of_any_kind_is_found(name: str, by: int) -> None:
    found = find_growth(over_time(name, by))
    assert len(found) == 1
    assert found[0].startswith(name)


def test_a_steep_slope_with_a_small_total_is_no_growth() -> None:
    assert find_growth(over_time("bytes", MIB // 3, every=1_000)) == ()
    assert find_growth(over_time("bytes", MIB, every=1_000))


def test_the_page_says_from_where_on_growth_counts() -> None:
    page = " ".join(
        (Path(__file__).parents[3] / "benchmarks" / "chaos" / "README.md")
        .read_text("utf-8")
        .split()
    )
    slopes = f"{MAX_BYTES / MIB:g} MiB in {SLOPE_RUNS:,} runs and objects not by more than"
    least = f"{MIN_GROWTH_BYTES // MIB} MiB in all, or objects by less than"
    assert f"{slopes} {MAX_OBJECTS}," in page
    assert f"{least} {MIN_GROWTH_OBJECTS:,}, did not grow" in page


def test_one_moment_that_stands_out_is_no_growth() -> None:
    readings = over_time("files", 0)
    readings[5] = readings[5]._replace(files=90, bytes=900 * MIB)
    assert find_growth(readings) == ()


def test_the_slope_is_of_ten_thousand_runs() -> None:
    assert slope(over_time("objects", 7, every=20_000), "objects") == pytest.approx(3.5)
