from __future__ import annotations

import json
import os
import platform

from benchmarks.engine import engine_figures
from benchmarks.environment import LANGGRAPH
from benchmarks.planning import THRESHOLDS
from benchmarks.report import Figures
from benchmarks.timing import Timing

OURS = {
    "taskgroup": Timing(20.0, 30.0),
    "engine": Timing(50.0, 70.0),
    "engine_watched": Timing(60.0, 80.0),
    "runner": Timing(90.0, 95.0),
}


def figures(
    *, langgraph: Timing | None = None, engine: float = 50.0, join_seconds: float = 0.41
) -> Figures:
    timings = OURS | {"engine": Timing(engine, engine)}
    if langgraph is not None:
        timings["langgraph"] = langgraph
    return engine_figures(timings, join_seconds, 7)


def test_ratios_are_those_of_the_quickest_blocks() -> None:
    measured = figures(langgraph=Timing(1500.0, 9000.0)).document
    assert measured["taskgroup_ratio"] == 50.0 / 20.0
    assert measured["langgraph_ratio"] == 1500.0 / 50.0
    assert measured["join_makespan_ratio"] == 0.41 / 0.4


def test_the_json_line_holds_the_ratios_and_what_they_were_made_of() -> None:
    line = figures(langgraph=Timing(1500.0, 9000.0)).as_json()
    assert "\n" not in line
    document = json.loads(line)
    assert document["taskgroup_ratio"] == 2.5
    assert document["langgraph_ratio"] == 30.0
    assert document["join_makespan_ratio"] == 1.025
    assert document["microseconds"]["langgraph"] == {"best": 1500.0, "median": 9000.0}
    assert document["join_milliseconds"] == 410.0
    assert document["repeat"] == 7
    assert document["langgraph"] == LANGGRAPH.version
    assert document["python"] == platform.python_version()
    assert document["cpus"] == os.cpu_count()


def test_without_langgraph_its_ratio_is_null_and_the_table_says_why() -> None:
    assert json.loads(figures().as_json())["langgraph_ratio"] is None
    assert "not measured" in figures().as_text()


def test_each_bar_stands_beside_its_ratio_and_says_whether_it_is_met() -> None:
    table = figures(langgraph=Timing(440.0, 440.0), engine=44.0, join_seconds=0.42).as_text()
    assert "<= 2.2  met" in table
    assert ">= 10  met" in table
    assert "<= 1.05  met" in table
    assert "MISSED" not in table
    table = figures(langgraph=Timing(507.0, 507.0), engine=50.8, join_seconds=0.421).as_text()
    assert "<= 2.2  MISSED" in table
    assert ">= 10  MISSED" in table
    assert "<= 1.05  MISSED" in table


def test_a_slow_local_decision_and_a_late_first_token_miss_their_bars() -> None:
    figures = {"prompt_tokens": 157, "cached_share": 0.907, "decision_ms": 541.4}
    figures |= {"first_token_seconds": 2.0, "first_token_ratio": 1.6}
    lines = Figures(figures, THRESHOLDS).as_text().splitlines()
    missed = [line.split()[1] for line in lines if "MISSED" in line]
    assert missed == ["decision_ms", "first_token_ratio"]
