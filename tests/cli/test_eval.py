from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.support import RULES, MakePool, Podium


def test_one_strategy_over_perfect_workers_is_one_json_object(podium: Podium) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--oracle", "--strategy", "ideal"),
        *("--limit", "8", "--seed", "7", "--json"),
    )
    assert ended.code == 0
    document = ended.json
    assert (document["suite"], document["n"], document["seed"]) == ("etudes", 8, 7)
    (row,) = document["rows"]
    assert (row["strategy"], row["accuracy"]) == ("ideal", 1.0)
    assert ended.err.splitlines()[0] == "podium: ideal: 8 samples measured"


def test_several_strategies_are_one_table(podium: Podium, role_pool: Path) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--pool", role_pool, "--limit", "4"),
        *("--strategy", "conductor,best-single,majority"),
    )
    assert ended.code == 0
    names = [line.split("|")[1].strip() for line in ended.out.splitlines() if line[0] == "|"]
    assert names == ["strategy", "-----------", "conductor", "best-single", "majority"]
    assert "an optimistic choice" in ended.out


def test_two_evaluations_are_compared_task_by_task(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    tasks.write_text("".join(f"{json.dumps(task)}\n" for _ in range(4)), "utf-8")
    for name, reply in (("right", "42"), ("wrong", "41")):
        pool = make_pool({"solver": reply}, head=RULES)
        podium("eval", "run", tasks, "--pool", pool, "--output", tmp_path / name)
    pair = ("eval", "compare", tmp_path / "right", tmp_path / "wrong")
    ended = podium(*pair, "--json")
    assert ended.code == 0
    assert ended.json["difference"]["value"] == -1.0
    ended = podium(*pair, "--within", "0.02")
    assert "more than --within 0.02" in ended.err
    assert ended.code == 1
    assert "| difference" in ended.out
    assert "4 tasks; the second alone is right in 0, the first alone in 4; p = 0.125" in ended.out
    assert podium(*pair, "--within", "1").code == 0


def test_a_pool_without_the_roles_is_refused_before_anything_is_asked(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("eval", "run", "etudes", "--pool", make_pool())
    assert ended.code == 2
    assert "needs a worker named 'arithmetic'" in ended.complaint


def test_everyday_questions_are_graded_by_their_plans_without_executing_them(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    """The rules give the whole question to the best of the pool, which is the first one here."""
    output = tmp_path / "out"
    pool = make_pool({"generalist": "never asked", "words": "never asked"}, head=RULES)
    ended = podium("eval", "run", "everyday", "--pool", pool, "--json", "--output", output)
    assert ended.code == 0, ended.err
    (row,) = ended.json["rows"]
    assert (row["n"], row["errors"]) == (100, 0)
    assert list(row["by_kind"]) == ["everyday"]
    lines = (output / "conductor.jsonl").read_text("utf-8").splitlines()
    runs = [json.loads(line)["run"] for line in lines]
    assert all(run["rounds"][0]["steps"] == [] for run in runs)
    whole = [len(run["rounds"][0]["workflow"]["steps"]) == 1 for run in runs]
    assert row["accuracy"] == sum(whole) / 100 > 0


def test_everyday_questions_need_a_generalist(podium: Podium, make_pool: MakePool) -> None:
    ended = podium("eval", "run", "everyday", "--pool", make_pool())
    assert ended.code == 2
    assert "'everyday' needs a worker named 'generalist'" in ended.complaint


@pytest.mark.parametrize("strategy", ["moa", "recursion", "single:words"])
def test_a_task_that_grades_plans_needs_a_strategy_that_plans(
    podium: Podium, role_pool: Path, strategy: str
) -> None:
    ended = podium("eval", "run", "everyday", "--pool", role_pool, "--strategy", strategy)
    assert ended.code == 2
    assert f"these tasks grade plans, and '{strategy}' writes none" in ended.complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("etude",), "suite not found: 'etude'"),
        (("etudes", "--strategy", "idael"), "did you mean 'ideal'?"),
        (("etudes", "--strategy", ","), "no strategy given"),
        (("etudes", "--baseline-conductor", "nobody"), "unknown conductor 'nobody'"),
    ],
)
def test_unmeasurable_input_is_refused_in_one_line(
    podium: Podium, role_pool: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = podium("eval", "run", *arguments, "--pool", role_pool)
    assert ended.code == 2
    assert complaint in ended.complaint


def test_a_file_of_ones_own_tasks_is_a_suite(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        json.dumps({"question": "6 x 7?", "answer": "42", "grader": "number"}), "utf-8"
    )
    ended = podium("eval", "run", tasks, "--pool", make_pool(head=RULES), "--json")
    assert ended.code == 0
    assert ended.json["rows"][0]["accuracy"] == 1.0


def test_the_table_of_the_etudes_is_made_by_one_command(
    podium: Podium, tmp_path: Path, make_pool: MakePool
) -> None:
    plan = 'model_id = [0]\nsubtasks = ["Do it."]\naccess_list = [[]]'
    pool = make_pool({"planner": plan}, head='[conductor]\nmodel = "planner"\n')
    ended = podium(
        *("lab", "etudes-table", "--oracle", "--pool", pool, "--limit", "5", "--seed", "7"),
        *("-o", tmp_path / "results" / "etudes.json"),
    )
    assert ended.code == 0, ended.err
    document = json.loads((tmp_path / "results" / "etudes.json").read_text("utf-8"))
    assert (document["n"], document["seed"], document["pool"]) == (5, 7, "pool.toml")
    assert document["ceiling"]["value"] == 1.0
    assert str(tmp_path) not in json.dumps(document)
    assert "| ideal plans on the same workers: at least 0.95" in ended.out
