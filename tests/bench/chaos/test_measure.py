"""The whole command, in a very small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.chaos import run
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.run import (
    QUICK,
    USUAL,
    ChaosSize,
    Part,
    missing_for,
    parse_parts,
)
from benchmarks.cli import app
from podium.core.errors import ConfigError

TINY = ChaosSize(faults=3, replica_seconds=1.0, soak=40, bodies=4)


def test_quick_does_a_tenth() -> None:
    for name in ("faults", "replica_seconds", "soak", "bodies"):
        assert getattr(USUAL, name) == 10 * getattr(QUICK, name)


def test_the_command_prints_text_and_last_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "QUICK", TINY)
    words = ["chaos", "--quick", "--part", "fuzz,faults,overlap", "--seed", "3"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout.splitlines()[-1])
    assert [part["name"] for part in document["parts"]] == ["faults", "overlap", "fuzz"]
    assert (document["runs"], document["lost"], document["seed"]) == (6, 0, 3)
    assert result.stdout.index("| part ") < result.stdout.index('{"runs"')


def test_the_exit_code_is_1_where_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ChaosRow(name="faults", runs=1, lost=1)
    monkeypatch.setattr(run, "run_part", lambda *_: broken)
    result = CliRunner().invoke(app, ["chaos", "--quick", "--part", "faults"])
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["lost"] == 1


def lack(monkeypatch: pytest.MonkeyPatch, *, postgres: bool = False, extra: bool = False) -> None:
    """Make the machine one that has just so much of what replicas need."""
    monkeypatch.setattr(run, "programs", lambda: Path("/bin") if postgres else None)
    monkeypatch.setattr(run, "find_spec", lambda _: object() if extra else None)


def test_a_part_that_cannot_run_here_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lack(monkeypatch, postgres=True)
    result = CliRunner().invoke(app, ["chaos", "--quick", "--part", "replicas"])
    assert result.exit_code == 0, result.output
    text, document = result.stdout, json.loads(result.stdout.splitlines()[-1])
    assert "not tried: needs the extra postgres (" in text
    assert "[postgres]'" in text, "the command can be copied as it stands"
    assert document["holds"] is True
    assert document["not_tried"] == ["replicas"]
    assert document["parts"][0]["not_tried"].startswith("needs the extra postgres (")


def test_everything_that_a_part_lacks_is_listed_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lack(monkeypatch)
    monkeypatch.setattr(run, "PROCESS_MEMORY", tmp_path / "statm")
    assert missing_for("replicas").startswith("needs Postgres (apt-get install postgresql) and the")
    assert missing_for("soak").startswith("needs Linux")
    others: tuple[Part, ...] = ("faults", "overlap", "fuzz")
    assert [missing_for(part) for part in others] == [""] * 3
    lack(monkeypatch, postgres=True, extra=True)
    assert missing_for("replicas") == ""


def test_a_part_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"faults,overlap,replicas,soak,fuzz; got typhoons"):
        parse_parts("faults,typhoons")
    with pytest.raises(ConfigError, match="got none"):
        parse_parts(",")
    assert parse_parts("soak, faults") == ("faults", "soak")


def test_a_part_that_fails_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> ChaosRow:
        raise ConfigError("the upstream did not start")

    monkeypatch.setattr(run, "measure_soak", fail)
    assert run.run_part("soak", TINY, 1).broken == ("the upstream did not start",)
