from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from podium.errors import ConfigError
from podium.tasks import NAMES, etude_suite, everyday_suite, suite

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
}


def test_etudes_are_made_by_the_seed() -> None:
    assert suite("etudes", limit=4, seed=7) == etude_suite(4, 7)
    assert suite("etudes:train", limit=4, seed=7) == etude_suite(4, 7, "train")


def test_everyday_questions_have_a_name_too() -> None:
    assert [task.id for task in suite("everyday")] == [task.id for task in everyday_suite()]
    assert len(suite("everyday", limit=7, seed=1)) == 7
    assert len(suite("everyday:train")) > len(suite("everyday"))


def test_a_benchmark_is_found_by_its_name_and_split(data: Path) -> None:
    assert len(suite("gsm8k", data=data)) == 3
    assert len(suite("gsm8k:train", data=str(data))) == 2


def test_an_own_file_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    line = {"question": "1 + 1?", "answer": "2", "grader": "number"}
    path.write_text("".join(json.dumps(line) + "\n" for _ in range(9)), "utf-8")
    assert [task.id for task in suite(path)] == [f"mine/{number}" for number in range(1, 10)]


def test_a_limit_draws_by_the_seed(data: Path) -> None:
    drawn = {
        seed: [task.id for task in suite("math500", data=data, limit=3, seed=seed)]
        for seed in (1, 2)
    }
    again = [task.id for task in suite("math500", data=data, limit=3, seed=1)]
    assert drawn[1] == again != drawn[2]
    assert len(suite("math500", data=data, limit=99)) == 5
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        suite("math500", data=data, limit=0)


def test_a_suite_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match="no suite 'trivia': expected one of etudes, every"):
        suite("trivia")
    benchmarks = {"math", "math500", "gsm8k", "mmlu", "rlpr", "livecodebench"}
    assert {"etudes", "everyday"} | benchmarks == set(NAMES)


@pytest.mark.skipif(not REAL, reason="PODIUM_TEST_DATA names no directory of real benchmarks")
@pytest.mark.parametrize("name", SIZES)
async def test_the_real_files_are_read_whole_and_their_answers_are_right(name: str) -> None:
    tasks = suite(name, data=REAL)
    assert len(tasks) == len({task.id for task in tasks}) == SIZES[name]
    for task in tasks:
        if task.answer:
            assert await task.grader(f"<answer>{task.answer}</answer>"), task
