from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.tasks import NAMES, load_suite, read_suite
from podium.tasks.graders import CodeGrader
from podium_lab.etudes.tasks import etude_suite, everyday_suite

REAL = os.environ.get("PODIUM_TEST_DATA", "")

SIZES = {
    "math": 5000,
    "math:train": 7497,
    "math:prm800k": 11497,
    "math500": 500,
    "gsm8k": 1319,
    "gsm8k:train": 7473,
    "mmlu": 14042,
    "mmlu:val": 1531,
    "mmlu:dev": 285,
    "livecodebench": 400,
    "aime24": 30,
    "aime25": 30,
    "gpqa-diamond": 198,
    "humaneval": 164,
    "mbpp": 500,
    "mbpp:sanitized": 257,
    "mbpp:train": 374,
    "bigcodebench": 1140,
}


def test_etudes_are_made_by_the_seed() -> None:
    assert load_suite("etudes", limit=4, seed=7) == etude_suite(4, 7)
    assert load_suite("etudes:train", limit=4, seed=7) == etude_suite(4, 7, "train")


def test_everyday_questions_have_a_name_too() -> None:
    assert [task.id for task in load_suite("everyday")] == [task.id for task in everyday_suite()]
    assert len(load_suite("everyday", limit=7, seed=1)) == 7
    assert len(load_suite("everyday:train")) > len(load_suite("everyday"))


def test_a_benchmark_is_found_by_its_name_and_split(data: Path) -> None:
    assert len(load_suite("gsm8k", data=data)) == 3
    assert len(load_suite("gsm8k:train", data=str(data))) == 2


def test_an_own_file_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    line = {"question": "1 + 1?", "answer": "2", "grader": "number"}
    path.write_text("".join(json.dumps(line) + "\n" for _ in range(9)), "utf-8")
    assert [task.id for task in load_suite(path)] == [f"mine/{number}" for number in range(1, 10)]


def test_an_own_file_is_measured_without_the_lines_that_are_no_tasks(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    good = {"id": "a", "question": "1 + 1?", "answer": "2", "grader": "number"}
    lines = [good, {**good, "question": "2 + 2?"}, {"question": "?", "grader": "exact"}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    loaded = read_suite(path)
    assert [task.question for task in loaded.tasks] == ["1 + 1?"]
    assert [str(line).partition(", ")[2] for line in loaded.skipped] == [
        "line 2: the id 'a' was already used; give each task its own",
        "line 3: the answer is missing: there is nothing to grade replies by",
    ]
    with pytest.raises(ConfigError, match="line 2: the id 'a' was already used"):
        load_suite(path)


def test_a_file_without_a_single_task_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "?", "answer": "1"}\n' * 3, "utf-8")
    with pytest.raises(ConfigError, match=r"line 1: the grader is missing.*none of the 3 in"):
        read_suite(path)


def test_a_task_of_an_own_file_may_say_how_difficult_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("question,answer,grader,difficulty\n1+1?,2,number,easy\n2+2?,4,number,\n")
    assert [task.difficulty for task in load_suite(path)] == ["easy", None]


def test_etudes_are_as_difficult_as_they_have_steps() -> None:
    assert {task.difficulty for task in load_suite("etudes", limit=40)} > {"1", "2"}


def test_a_limit_draws_by_the_seed(data: Path) -> None:
    drawn = {
        seed: [task.id for task in load_suite("math500", data=data, limit=3, seed=seed)]
        for seed in (1, 2)
    }
    again = [task.id for task in load_suite("math500", data=data, limit=3, seed=1)]
    assert drawn[1] == again != drawn[2]
    assert len(load_suite("math500", data=data, limit=99)) == 5
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        load_suite("math500", data=data, limit=0)


def test_a_suite_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match="no suite 'trivia': expected one of everyday-100,"):
        load_suite("trivia")
    benchmarks = {"math", "math500", "gsm8k", "mmlu", "rlpr", "aime24", "aime25", "gpqa-diamond"}
    programs = {"humaneval", "mbpp", "mbpp-one-test", "livecodebench", "bigcodebench"}
    assert {"everyday-100", "etudes", "everyday", "reasoning-gym"} | benchmarks | programs == set(
        NAMES
    )


@pytest.mark.skipif(not REAL, reason="PODIUM_TEST_DATA names no directory of real benchmarks")
@pytest.mark.parametrize("name", SIZES)
async def test_the_real_files_are_read_whole_and_their_answers_are_right(name: str) -> None:
    tasks = load_suite(name, data=REAL)
    assert len(tasks) == len({task.id for task in tasks}) == SIZES[name]
    for task in tasks:
        if task.answer and not isinstance(task.grader, CodeGrader):  # test_agreement runs those
            assert await task.grader(f"<answer>{task.answer}</answer>"), task
