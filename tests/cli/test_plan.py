from __future__ import annotations

from pathlib import Path

from cli.support import SCRIPTED_POOL, MakePool, Podium

QUESTION = "Compare tea and coffee"


def test_a_plan_is_printed_and_nothing_is_executed(podium: Podium) -> None:
    ended = podium("plan", "--pool", SCRIPTED_POOL, QUESTION)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "3 steps, fan-out/join"
    assert ended.out.splitlines()[3].endswith("(reads 0, 1)")
    assert podium("runs", "list", "--json").json == []


def test_run_executes_the_json_of_plan(podium: Podium, tmp_path: Path) -> None:
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
    pool = make_pool({"p": 'model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]]', "q": "42"})
    ended = podium("plan", "--tier", "ultra", "--pool", pool, QUESTION)
    assert ended.out.splitlines()[-1].startswith("planned in 1 call, ")


def test_a_pool_of_one_model_is_never_planned_for(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"p": "42"}, tail='[[worker]]\nname = "python"\nprovider = "python"\n')
    planned = podium("plan", "--json", "--tier", "ultra", "--pool", pool, QUESTION).json
    assert [(step["worker"], step["subtask"]) for step in planned["steps"]] == [("p", QUESTION)]
    ended = podium("ask", "--json", "--tier", "ultra", "--rounds", "3", "--pool", pool, QUESTION)
    assert ended.json["answer"] == "42"
    assert ended.json["usage"]["orchestration_input_tokens"] == 0
    shown = podium("ask", "--tier", "ultra", "--rounds", "2", "--pool", pool, QUESTION).out
    assert shown.startswith("round 1: p answers directly, the only model of the pool\n")
    assert "round 2: answer accepted\n" in shown


def test_a_plan_is_by_the_conductor_only_where_it_was_asked(
    podium: Podium, make_pool: MakePool
) -> None:
    pool = make_pool({"p": 'model_id = [1]\nsubtasks = ["x"]\naccess_list = [[]]', "q": "42"})
    asked = podium("ask", "--tier", "ultra", "--pool", pool, QUESTION)
    assert asked.out.startswith("plan by model(p): 1 step, one-shot\n")
    simple = podium("ask", "--pool", pool, "What is the capital of Japan?")
    assert simple.out.startswith("plan: p answers directly\n")
    assert podium("runs", "show", "last").out.splitlines()[3] == "plan: p answers directly"


def test_plan_warnings_are_reported_separately(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"p": "I would rather not.", "q": "42"})
    ended = podium("plan", "--json", "--tier", "ultra", "--pool", pool, QUESTION)
    assert ended.code == 0
    assert len(ended.json["steps"]) == 1
    assert "malformed plan" in ended.err


def test_budgets_hold_for_planning(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"p": "?", "q": "42"})
    ended = podium("plan", "--tier", "ultra", "--pool", pool, "--budget-calls", "0", QUESTION)
    assert ended.code == 3
    assert "the cap on calls is 0" in ended.complaint
