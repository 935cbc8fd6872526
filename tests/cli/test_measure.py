from __future__ import annotations

import json
from pathlib import Path

from cli.support import RULES, MakePool, Podium, Vendor


def test_a_worker_that_does_not_answer_is_named_and_counted_and_the_rest_is_finished(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    tasks.write_text("".join(f"{json.dumps(task)}\n" for _ in range(3)), "utf-8")
    vendor.status = 400
    pool = vendor.pool("ann", directory=tmp_path)
    output = tmp_path / "out"
    command = ("eval", "run", tasks, "--pool", pool, "--json", "--output", output)
    ended = podium(*command, "--strategy", "single:ann")
    assert ended.code == 0
    (problem,) = ended.json["errors"]
    assert (problem["strategy"], problem["error_source"], problem["count"]) == (
        "single:ann",
        "ann",
        3,
    )
    assert ended.json["rows"][0]["errors"] == 3
    assert "single:ann: ann failed in 3 samples, first with: worker" in ended.err
    vendor.status = 200
    vendor.replies["ann"] = "42"
    asked = len(vendor.asked)
    assert podium(*command, "--strategy", "single:ann").json["rows"][0]["accuracy"] == 0.0
    assert len(vendor.asked) == asked
    again = podium(*command, "--strategy", "single:ann", "--retry-errors")
    assert again.json["rows"][0]["accuracy"] == 1.0
    assert again.json["errors"] == []


def test_a_cap_on_money_needs_everybodys_price(podium: Podium, tmp_path: Path) -> None:
    pool, tasks = tmp_path / "unpriced.toml", tmp_path / "tasks.csv"
    worker = 'name = "ann"\nprovider = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
    pool.write_text(f"{RULES}[[worker]]\n{worker}", "utf-8")
    tasks.write_text("question,answer,grader\n6 x 7?,42,number\n", "utf-8")
    ended = podium("eval", "run", tasks, "--pool", pool, "--budget-usd", "1")
    assert ended.code == 2
    assert "the budget caps money, but no price is known for ann" in ended.complaint


def test_at_its_cap_an_evaluation_stops_and_says_so_and_a_higher_one_continues(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    """A reply of the vendor costs 10 x 1 + 5 x 2 dollars a million."""
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    lines = [json.dumps({**task, "question": f"{n} x 7?"}) for n in range(9)]
    tasks.write_text("\n".join(lines), "utf-8")
    pool = vendor.pool("ann", directory=tmp_path)
    command = (
        *("eval", "run", tasks, "--pool", pool, "--strategy", "single:ann", "--json"),
        *("--output", tmp_path / "out", "--concurrency", "2"),
    )
    ended = podium(*command, "--budget-usd", "0.0001")
    assert ended.code == 3
    assert ended.json["rows"] == []
    assert ended.json["stopped"]["unfinished"] == {"single:ann": 5}
    assert "stopped before the cap of 0.0001 USD, 0.0001 spent: single:ann has 5" in ended.err
    ended = podium(*command, "--budget-usd", "1")
    assert (ended.code, len(vendor.asked)) == (0, 9)


def test_lines_that_are_no_tasks_are_named_and_counted_and_the_rest_is_measured(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    good = {"id": "one", "question": "6 x 7?", "answer": "42", "grader": "number"}
    lines = [good, {**good, "id": "two", "answer": ""}, good]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    ended = podium("eval", "run", tasks, "--pool", make_pool(head=RULES), "--json")
    assert ended.code == 0
    assert ended.json["rows"][0]["n"] == 1
    assert [line["where"].rpartition(", ")[2] for line in ended.json["skipped"]] == [
        "line 2",
        "line 3",
    ]
    assert "line 3: the id 'one' was already used" in ended.err


def test_output_of_a_custom_strategy_stays_out_of_the_json(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks, mine = tmp_path / "tasks.jsonl", tmp_path / "mine.py"
    tasks.write_text(json.dumps({"question": "Why?", "answer": "So.", "grader": "exact"}), "utf-8")
    mine.write_text("print('loaded')\nasync def answer(case, stage):\n    print('asked')\n")
    pool = make_pool(head=RULES)
    ended = podium("eval", "run", tasks, "--pool", pool, "--json", "--strategy", f"{mine}:answer")
    assert ended.json["rows"][0]["errors"] == 1
    assert "loaded\n" in ended.err
    assert "asked\n" in ended.err


def test_a_worker_of_the_pool_is_the_judge_where_a_task_has_one_decide(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "Why?", "answer": "It rains.", "grader": "judge"}
    tasks.write_text(json.dumps(task), "utf-8")
    pool = make_pool({"ann": "It is raining.", "ben": "<verdict>right</verdict>"}, head=RULES)
    command = ("eval", "run", tasks, "--pool", pool, "--json", "--strategy", "single:ann")
    ended = podium(*command, "--judge", "ben")
    assert ended.code == 0, ended.err
    assert "calls to workers: 2\n" in ended.err
    ended = podium(*command, "--judge", "bne")
    assert "the judge 'bne' is no worker of this pool; did you mean 'ben'?" in ended.complaint


def test_command_line_options_override_the_file(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    make_pool({"ann": "42", "ben": "41"}, head=RULES)
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("question,answer,grader\n6 x 7?,42,number\n2 + 2?,4,number\n", "utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(
        'suite = "tasks.csv"\npool = "pool.toml"\noutput = "measured"\nrepeats = 2\n'
        'strategies = ["single:ann", "best-single"]\nlimit = 1\nseed = 3\n',
        "utf-8",
    )
    ended = podium("eval", "run", file, "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["n"], ended.json["seed"], ended.json["repeats"]) == (1, 3, 2)
    assert [row["strategy"] for row in ended.json["rows"]] == ["single:ann", "best-single"]
    assert (tmp_path / "measured" / "summary.json").is_file()
    ended = podium(
        *("eval", "run", file, "--json", "--strategy", "single:ben", "--repeats", "1"),
        *("--limit", "2", "--output", tmp_path / "other"),
    )
    assert [row["n"] for row in ended.json["rows"]] == [2]
    assert ended.json["rows"][0]["accuracy"] == 0.0
