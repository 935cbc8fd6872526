"""The whole command, in a very small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from podium.bench.chaos import measure
from podium.bench.chaos.measure import QUICK, USUAL, measure_chaos, parts_named
from podium.bench.chaos.part import Extent, Order
from podium.bench.cli import app
from podium.errors import ConfigError

TINY = Extent(
    faults=3, kills=1, replica_seconds=1.0, soak=40, plans=200, bodies=4, requests=2, processes=1
)


def test_quick_does_a_tenth() -> None:
    for name in ("faults", "kills", "replica_seconds", "soak", "plans", "bodies", "requests"):
        assert getattr(USUAL, name) == 10 * getattr(QUICK, name)


def test_the_command_prints_a_table_and_last_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measure, "QUICK", TINY)
    monkeypatch.setenv("COLUMNS", "200")
    output = tmp_path / "chaos.json"
    words = ["chaos", "--quick", "--part", "fuzz,faults", "--seed", "3", "--output", str(output)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout.splitlines()[-1])
    assert [part["name"] for part in document["parts"]] == ["faults", "fuzz"]
    assert (document["runs"], document["lost"], document["seed"]) == (3, 0, 3)
    assert json.loads(output.read_text("utf-8")) == document
    assert result.stdout.index("what held") < result.stdout.index('{"runs"')


def test_the_exit_code_is_1_where_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "QUICK", TINY)
    monkeypatch.setenv("PATH", "")
    words = ["chaos", "--quick", "--part", "peer", "--litellm", "/no/such/python", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    document = json.loads(result.stdout.splitlines()[-1])
    assert "/no/such/python is not a Python" in document["parts"][0]["broken"][0]


def test_a_part_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"faults,kills,replicas,soak,fuzz,peer; got typhoons"):
        parts_named("faults,typhoons")
    with pytest.raises(ConfigError, match="got none"):
        parts_named(",")
    assert parts_named("peer, faults") == ("faults", "peer")


async def test_a_part_whose_process_ends_without_a_word_is_a_row_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/no/such/place")
    figures = await measure_chaos(["faults"], Order(extent=TINY, seed=1), lambda line: None)
    assert not figures.holds
    assert "the part ended with exit code" in figures.parts[0].broken[0]
