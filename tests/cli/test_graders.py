from __future__ import annotations

import json
import re
from pathlib import Path

from cli.support import REPOSITORY, Podium
from podium.cli.eval_tables import agreement_table

DATA = REPOSITORY / "tests" / "tasks" / "data"


def test_the_graders_are_tried_and_the_figures_written(podium: Podium, tmp_path: Path) -> None:
    file = tmp_path / "graders.json"
    ended = podium("eval", "graders", "math500", "humaneval", "--data", DATA, "--file", file)
    assert ended.code == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ended.out.splitlines()]
    assert rows[0] == ["suite", "answers", "are", "graded", "mistakes", "not run"]
    assert ["math500", "reference", "right", "5", "0", "0"] in rows
    assert ["humaneval", "emptied solution", "wrong", "2", "0", "0"] in rows
    written = json.loads(file.read_text("utf-8"))
    assert agreement_table(written) == ended.out.strip()


def test_mistakes_are_told(podium: Podium, tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    grader = {"name": "code", "check": "assert f() == 2, 'not two'"}
    line = {"question": "?", "answer": "def f(): return 1", "grader": grader}
    suite.write_text(json.dumps(line), "utf-8")
    ended = podium("eval", "graders", suite)
    assert ended.code == 0
    assert re.search(r"mine/1, reference solution, graded wrong: .*not two", ended.out)


def test_a_suite_that_cannot_be_had_is_named_and_the_rest_is_finished(
    podium: Podium,
) -> None:
    ended = podium("eval", "graders", "mbpp:absent", "gsm8k", "--data", DATA, "--json")
    assert ended.code == 1
    assert ended.json["unavailable"] == {
        "mbpp:absent": "mbpp has no split 'absent'; it has test, validation, train, prompt, "
        "sanitized"
    }
    assert {row["suite"] for row in ended.json["rows"]} == {"gsm8k"}
