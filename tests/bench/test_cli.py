from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app


@pytest.fixture(scope="module")
def printed() -> str:
    """What a short measurement without peers prints."""
    result = CliRunner().invoke(app, ["engine", "--no-peers", "--repeat", "40"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def document(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def test_the_last_line_is_json_with_the_three_ratios(document: Any) -> None:
    assert {"taskgroup_ratio", "langgraph_ratio", "join_makespan_ratio"} <= set(document)
    assert document["langgraph_ratio"] is None
    assert document["repeat"] == 40


def test_the_table_comes_before_it(printed: str) -> None:
    for name in ("taskgroup", "engine", "engine_watched", "runner"):
        assert f"microseconds: {name}: best" in printed
    assert printed.index("microseconds: engine") < printed.index('{"taskgroup_ratio"')


def test_the_ratios_are_made_of_the_times_printed_with_them(document: Any) -> None:
    best = {name: timing["best"] for name, timing in document["microseconds"].items()}
    assert set(best) == {"taskgroup", "engine", "engine_watched", "runner"}
    assert document["taskgroup_ratio"] == pytest.approx(
        best["engine"] / best["taskgroup"], rel=0.01
    )
    assert document["join_makespan_ratio"] == pytest.approx(
        document["join_milliseconds"] / 400, rel=0.01
    )


def test_the_engine_costs_little_even_on_a_busy_machine(document: Any) -> None:
    assert 1 < document["taskgroup_ratio"] < 4
    assert 1 <= document["join_makespan_ratio"] < 1.25


def test_at_least_one_block_is_asked_for() -> None:
    result = CliRunner().invoke(app, ["engine", "--no-peers", "--repeat", "0"])
    assert result.exit_code == 2
