from __future__ import annotations

from pathlib import Path

from cli.support import SCRIPTED_POOL, MakePool, Podium

QUESTION = "Compare tea and coffee"


def test_a_plan_is_printed_and_nothing_is_carried_out(podium: Podium) -> None:
    ended = podium("plan", "--pool", SCRIPTED_POOL, QUESTION)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "3 steps, fan-out/join"
    assert ended.out.splitlines()[3].endswith("(reads 0, 1)")
    assert podium("runs", "list", "--json").json == []


def test_what_plan_prints_as_json_run_carries_out(podium: Podium, tmp_path: Path) -> None:
    planned = podium("plan", "--json", "--pool", SCRIPTED_POOL, QUESTION)
    assert planned.json["question"] == QUESTION
    file = tmp_path / "w.json"
    file.write_text(planned.out, "utf-8")
    ended = podium("run", file, "--pool", SCRIPTED_POOL, "--json")
    assert (ended.code, ended.json["question"]) == (0, QUESTION)
    assert [(step["worker"], step["subtask"], step["access"]) for step in ended.json["steps"]] == [
        (step["worker"], step["subtask"], step["access"]) for step in planned.json["steps"]
    ]


def test_the_cost_of_planning_is_shown(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"p": 'model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]]'})
    ended = podium("plan", "--pool", pool, QUESTION)
    assert ended.out.splitlines()[-1].startswith("planned in 1 call, ")


def test_what_was_wrong_with_a_plan_is_said_apart(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"p": "I would rather not."})
    ended = podium("plan", "--json", "--pool", pool, QUESTION)
    assert ended.code == 0
    assert len(ended.json["steps"]) == 1
    assert "malformed plan" in ended.err


def test_budgets_hold_for_planning(podium: Podium, make_pool: MakePool) -> None:
    ended = podium("plan", "--pool", make_pool(), "--budget-calls", "0", QUESTION)
    assert ended.code == 3
    assert "calls is capped at 0" in ended.complaint
