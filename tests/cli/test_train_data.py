"""`podium train data --from-runs` and `--from-evaluation`: from a question asked to files that
training reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.support import MakePool, Podium
from podium.conductors.routing.router import read_log


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


@pytest.fixture
def judged(podium: Podium, make_pool: MakePool) -> str:
    """The id of a run that a person thinks well of."""
    run: str = podium("ask", "--json", "--pool", make_pool(), "--tier", "mini", "How many?").json[
        "run_id"
    ]
    podium("runs", "feedback", run, "1")
    return run


def test_one_command_makes_data_for_router_and_conductor_of_judged_runs(
    podium: Podium, judged: str
) -> None:
    ended = podium(
        *("train", "data", "--from-runs", "-o", "log.jsonl"),
        *("--tasks", "tasks.jsonl", "--plans", "plans.jsonl"),
    )
    assert ended.out.splitlines() == [
        "1 outcome in log.jsonl",
        "1 task in tasks.jsonl",
        "1 plan in plans.jsonl",
    ]
    (outcome,) = lines("log.jsonl")
    assert (outcome["question"], outcome["worker"], outcome["reward"]) == ("How many?", "solver", 1)
    assert set(outcome) == {
        *("question", "worker", "model", "reward", "cost", "output_tokens", "source"),
    }
    assert lines("tasks.jsonl") == [
        {"id": judged, "kind": "use", "question": "How many?", "answer": "42", "grader": "contains"}
    ]
    (plan,) = lines("plans.jsonl")
    assert plan["reply"].startswith("model_id = [0]")
    entry = podium("audit", "list", "--json", "-n", "1").json[0]
    assert entry["action"] == "training data written"
    assert entry["details"] == {"outcomes": 1, "tasks": 1, "plans": 1}


def test_skipped_runs_are_counted(podium: Podium, judged: str, make_pool: MakePool) -> None:
    bad = podium("ask", "--json", "--pool", make_pool(), "--tier", "mini", "Why?").json["run_id"]
    podium("runs", "feedback", bad, "0")
    result = podium(
        "train", "data", "--from-runs", "-o", "log.jsonl", "--tasks", "t.jsonl", "--json"
    )
    assert result.json == {
        "written": {
            "outcomes": {"file": "log.jsonl", "lines": 2},
            "tasks": {"file": "t.jsonl", "lines": 1},
        },
        "left_out": {},
        "unused": {
            "outcomes": {},
            "tasks": {
                "no short right answer to compare with": 1,
            },
        },
    }


def test_an_evaluation_gives_a_router_what_each_worker_earned(
    podium: Podium, make_pool: MakePool
) -> None:
    task = {"id": "one", "question": "How many?", "answer": "42", "grader": "number"}
    Path("mine.jsonl").write_text(json.dumps(task), "utf-8")
    pool = make_pool({"solver": "42", "guesser": "7"})
    podium(
        *("eval", "run", "mine.jsonl", "--pool", pool, "--output", "measured"),
        *("--strategy", "single:solver,single:guesser"),
    )
    podium("train", "data", "--from-evaluation", "measured", "-o", "log.jsonl")
    evidence = read_log([Path("log.jsonl")]).reward_matrix(costs={"solver": 0.2, "guesser": 0.1})
    assert evidence.questions == ("How many?",)
    assert {known.name for known in evidence.workers} == {"solver", "guesser"}
    assert {(item["worker"], item["reward"], item["source"]) for item in lines("log.jsonl")} == {
        ("solver", 1.0, "evaluation:measured/single:solver"),
        ("guesser", 0.0, "evaluation:measured/single:guesser"),
    }


def test_an_evaluation_without_comparable_answers_says_where_tasks_are(
    podium: Podium, make_pool: MakePool
) -> None:
    task = {"id": "one", "question": "How many?", "answer": "42", "grader": "number"}
    Path("mine.jsonl").write_text(json.dumps(task), "utf-8")
    podium(
        *("eval", "run", "mine.jsonl", "--pool", make_pool({"guesser": "7"})),
        *("--output", "measured", "--strategy", "single:guesser"),
    )
    ended = podium("train", "data", "--from-evaluation", "measured", "--tasks", "t.jsonl")
    assert ended.code == 2
    assert "samples of an evaluation hold no correct answers" in ended.complaint


def test_perfect_workers_teach_a_router_nothing_for_no_pool_has_them(podium: Podium) -> None:
    podium(
        *("eval", "run", "etudes", "--oracle", "--limit", "1", "--output", "measured"),
        *("--strategy", "ideal,single:arithmetic"),
    )
    ended = podium("train", "data", "--from-evaluation", "measured", "-o", "log.jsonl")
    assert ended.code == 2
    assert "1 run: answered by the perfect workers of --oracle" in ended.complaint
    assert "podium eval run TASKS.jsonl --strategy best-single" in ended.complaint
    assert not Path("log.jsonl").exists()


def test_a_correction_becomes_a_task(podium: Podium, judged: str) -> None:
    podium("runs", "feedback", judged, "0", "--answer", "43")
    podium("train", "data", "--from-runs", "--tasks", "tasks.jsonl")
    assert [(item["answer"], item["grader"]) for item in lines("tasks.jsonl")] == [
        ("43", "contains")
    ]


def test_a_question_with_line_breaks_is_one_line(podium: Podium, make_pool: MakePool) -> None:
    question = "One\u2028two\x85three\nfour?"
    run = podium("ask", "--json", "--pool", make_pool(), "--tier", "mini", question).json["run_id"]
    podium("runs", "feedback", run, "1")
    podium("train", "data", "--from-runs", "-o", "log.jsonl")
    assert [item["question"] for item in lines("log.jsonl")] == [question]


def test_unjudged_runs_write_nothing_and_say_what_to_do(
    podium: Podium, make_pool: MakePool
) -> None:
    podium("ask", "--pool", make_pool(), "How many?")
    ended = podium("train", "data", "--from-runs", "-o", "log.jsonl")
    assert ended.code == 2
    assert "no run has feedback" in ended.complaint
    assert not Path("log.jsonl").exists()


def test_a_file_that_would_be_empty_says_why_and_none_is_written(
    podium: Podium, make_pool: MakePool
) -> None:
    run = podium("ask", "--json", "--pool", make_pool(), "--tier", "mini", "Why?").json["run_id"]
    podium("runs", "feedback", run, "0")
    ended = podium("train", "data", "--from-runs", "-o", "log.jsonl", "--tasks", "tasks.jsonl")
    assert ended.code == 2
    assert "no tasks; skipped 1 run: no short right answer" in ended.complaint
    assert "podium runs feedback ID SCORE --answer TEXT, or leave out --tasks" in ended.complaint
    assert not Path("log.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give a recipe"),
        (("--from-runs",), "nothing to write"),
        (("recipe.toml", "--from-runs", "-o", "log.jsonl"), "a recipe has its own tasks"),
        (("recipe.toml", "-o", "log.jsonl", "--plans", "plans.jsonl"), "a recipe has tasks alone"),
        (("--from-evaluation", ".", "-o", "log.jsonl"), "holds no evaluation"),
    ],
)
def test_conflicting_options_are_refused(
    podium: Podium, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = podium("train", "data", *arguments)
    assert ended.code == 2
    assert complaint in ended.complaint
