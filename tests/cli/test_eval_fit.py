from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.support import RULES, MakePool, Podium


def test_a_strategy_that_learns_is_fitted_and_then_measured_by_its_file(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    pytest.importorskip("numpy")
    tasks = tmp_path / "tasks.jsonl"
    lines = [
        {"question": f"What is {n} x 7?", "answer": "42", "grader": "number"} for n in range(8)
    ]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    pool = make_pool({"wrong": "41", "right": "42"}, head=RULES)
    ended = podium("eval", "fit", "constant", tasks, "--pool", pool)
    assert ended.code == 0, ended.err
    assert "measure it with --strategy constant:fitted/constant.json" in ended.out
    ended = podium(
        *("eval", "run", tasks, "--pool", pool, "--json"),
        *("--strategy", "constant:fitted/constant.json"),
    )
    (row,) = ended.json["rows"]
    assert row["accuracy"] == 1.0
    assert row["note"] == "it learned from 8 of these 8 tasks: an optimistic figure"
    ended = podium(
        "eval",
        "cross-validate",
        tasks,
        "--pool",
        pool,
        "--strategy",
        "constant",
        "--fold-count",
        "4",
    )
    assert ended.code == 0, ended.err
    assert "| constant " in ended.out
    assert "calls to workers: none, all cached" in ended.err
    asked = (
        "eval",
        "cross-validate",
        tasks,
        tasks,
        "--pool",
        pool,
        "--fold-count",
        "4",
        "--file",
        "all.json",
    )
    assert podium(*asked, "--strategy", "constant").code == 0
    suites = json.loads(Path("all.json").read_text("utf-8"))["suites"]
    assert [suite["apgr"]["constant"]["value"] for suite in suites] == [0.5, 0.5]


def test_lines_that_are_no_tasks_are_named_where_strategies_learn_too(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    pytest.importorskip("numpy")
    tasks = tmp_path / "tasks.jsonl"
    lines: list[dict[str, str]] = [{"question": "What?"}]
    lines += [{"question": f"{n} x 7?", "answer": "42", "grader": "number"} for n in range(4)]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    pool = make_pool({"right": "42"}, head=RULES)
    for command in (("fit", "constant", tasks), ("cross-validate", tasks, "--fold-count", "2")):
        ended = podium("eval", *command, "--pool", pool)
        assert ended.code == 0, ended.err
        assert "left out: " in ended.err
        assert "line 1" in ended.err


def test_folds_take_as_many_tasks_as_the_help_says(podium: Podium) -> None:
    pytest.importorskip("numpy")
    ended = podium(
        "eval", "cross-validate", "etudes", "--oracle", "--strategy", "constant", "--json"
    )
    assert ended.json["n"] == 100
