from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.tasks import load_suite, read_records

GOOD = '{"question": "1 + 1?", "answer": 2, "grader": "number"}\n'


def written(tmp_path: Path, text: str, name: str = "mine.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


async def test_json_lines_become_tasks(tmp_path: Path) -> None:
    path = written(
        tmp_path, GOOD + '\n{"id": "x", "question": "?", "answer": "a", "grader": "exact"}'
    )
    first, second = load_suite(path)
    assert (first.id, first.question, first.answer) == ("mine/1", "1 + 1?", "2")
    assert await first.grader("two is 2")
    assert second.id == "x"


async def test_a_table_becomes_tasks(tmp_path: Path) -> None:
    text = (
        "\ufeffid,question,answer,grader,kind\n"
        'q1,"Which, of\nthem?",B,letter,choice\n'
        ",2*3?,6,number,\n"
    )
    first, second = load_suite(written(tmp_path, text, "mine.csv"))
    assert (first.id, first.question, first.kind) == ("q1", "Which, of\nthem?", "choice")
    assert await first.grader("(B)")
    assert second.id == "mine/4"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": "?", "grader": "exact"}', "the answer is missing"),
        ('{"question": "?", "answer": "", "grader": "exact"}', "the answer is missing"),
        ('{"question": "?", "answer": null, "grader": "short"}', "the answer is missing"),
        ('{"question": "?", "answer": "a"}', "parameters; there are exact, letter"),
        ('{"question": "?", "answer": "a", "grader": "exactly"}', "did you mean `exact`"),
        ('{"question": "?", "answer": "a", "grader": {"tagged": true}}', "the grader is missing"),
        ('{"question": "", "answer": "a", "grader": "exact"}', "the question is missing"),
        ('{"question": ["?"], "answer": "a", "grader": "exact"}', "question: expected a text"),
        ('{"quesiton": "?", "answer": "a", "grader": "exact"}', "did you mean 'question'"),
        ('["?", "a", "exact"]', "expected an object"),
        ('{"question": "?"', "not valid JSON"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, f"{GOOD}\n{line}\n")
    with pytest.raises(ConfigError, match=r"mine\.jsonl, line 3: ") as caught:
        read_records(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question,answer,grader\n?,,exact\n", "line 2: the answer is missing"),
        ("question,answer,grader\n?,a,exact,more\n", "line 2: more cells than columns"),
        ("question,answer\n?,a\n", "line 2: the grader is missing"),
        ("question,answer,grader\n?,a\n", "line 2: the grader is missing"),
        ('question,answer,grader\n?,"a"b,exact\n', "line 2: not valid CSV"),
    ],
)
def test_an_error_in_a_table_names_the_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_records(written(tmp_path, text, "mine.csv"))


def test_an_id_that_is_used_twice_is_an_error(tmp_path: Path) -> None:
    line = '{"id": "x", "question": "?", "answer": "a", "grader": "exact"}\n'
    with pytest.raises(ConfigError, match="line 2: the id 'x' was already used"):
        read_records(written(tmp_path, line * 2))


def test_a_file_that_is_empty_missing_or_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tasks in it"):
        read_records(written(tmp_path, "\n"))
    with pytest.raises(ConfigError, match="cannot read .*nowhere.jsonl: No such file"):
        read_records(tmp_path / "nowhere.jsonl")
    with pytest.raises(ConfigError, match=r"\.jsonl or \.csv"):
        read_records(written(tmp_path, GOOD, "mine.txt"))
    (tmp_path / "latin.jsonl").write_bytes("é".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_records(tmp_path / "latin.jsonl")
