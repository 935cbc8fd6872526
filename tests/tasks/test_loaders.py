from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import pickle
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.tasks import readers as hub
from podium.tasks.answers import extract_boxed
from podium.tasks.benchmarks import BENCHMARKS, load_records, read_benchmark
from podium.tasks.records import TaskRecord

LEVELS = {f"level {level}" for level in range(1, 6)}


def summary(records: list[TaskRecord]) -> list[tuple[str, str, str]]:
    return [(record.id, record.answer, record.kind) for record in records]


def rewritten(data: Path, source: str, target: Path, **changes: Any) -> None:
    """The first row of a fixture, changed."""
    row = json.loads((data / source).read_text("utf-8").splitlines()[0])
    target.write_text(json.dumps(row | changes), "utf-8")


def test_math_takes_the_answer_from_the_box(data: Path) -> None:
    assert summary(load_records("math", data=data)) == [
        ("math/test/0", "2", "Algebra"),
        ("math/test/1", "10", "Algebra"),
        ("math/test/2", "\\dfrac{9}{7}", "Algebra"),
    ]


def test_math_trains_on_nothing_of_its_test_split_nor_on_what_has_no_answer(data: Path) -> None:
    train = [record.answer for record in load_records("math", "train", data)]
    assert train == ["-37_8", "\\frac{1}{5}"]
    assert len(load_records("math", "prm800k", data)) == 3


def test_math500_keeps_its_ids(data: Path) -> None:
    records = load_records("math500", data=data)
    assert summary(records)[0] == ("test/algebra/1255.json", "6", "Algebra")
    assert len(records) == 5


def test_a_problem_of_math_without_an_answer_is_named(data: Path, tmp_path: Path) -> None:
    rewritten(data, "math/math500.jsonl", tmp_path / "math500.jsonl", answer="")
    with pytest.raises(ConfigError, match="line 1: the answer is missing"):
        load_records("math500", data=tmp_path)


def test_gsm8k_takes_the_answer_from_the_last_line(data: Path) -> None:
    assert summary(load_records("gsm8k", data=data)) == [
        ("gsm8k/test/1", "18", "gsm8k"),
        ("gsm8k/test/2", "3", "gsm8k"),
        ("gsm8k/test/3", "70000", "gsm8k"),
    ]
    assert len(load_records("gsm8k", "train", data / "gsm8k" / "train.jsonl")) == 2


def test_mmlu_lists_the_choices_and_expects_the_letter(data: Path) -> None:
    records = load_records("mmlu", data=data)
    assert summary(records) == [
        ("mmlu/test/abstract_algebra/1", "B", "abstract_algebra"),
        ("mmlu/test/abstract_algebra/2", "C", "abstract_algebra"),
        ("mmlu/test/anatomy/1", "A", "anatomy"),
        ("mmlu/test/anatomy/2", "B", "anatomy"),
    ]
    assert "A) 0\nB) 4\nC) 2\nD) 6" in records[0].question
    assert [record.answer for record in load_records("mmlu", "val", data)] == ["D"]


def test_mmlu_is_read_from_a_zip_just_as_well(data: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mmlu.zip", "w") as archive:
        for file in sorted((data / "mmlu").rglob("*.csv")):
            archive.write(file, file.relative_to(data / "mmlu"))
    assert load_records("mmlu", data=tmp_path) == load_records("mmlu", data=data)


def test_rlpr_keeps_what_has_a_short_answer(data: Path) -> None:
    records = load_records("rlpr", data=data)
    assert summary(records) == [
        ("rlpr/train/1", "3%", "Business"),
        ("rlpr/train/2", "Carbon dioxide", "Biology"),
    ]
    assert "Which gas do plants take in?" in records[1].question
    assert "Think first." not in records[1].question


def test_rlpr_is_read_from_parquet_just_as_well(data: Path, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = (data / "rlpr" / "rlpr_train.jsonl").read_text("utf-8").splitlines()
    table = arrow.Table.from_pylist([json.loads(line) for line in lines])
    parquet.write_table(table, tmp_path / "rlpr_train.parquet")
    assert load_records("rlpr", data=tmp_path) == load_records("rlpr", data=data)


async def test_livecodebench_grades_programs_and_functions(data: Path) -> None:
    program, function = (record.to_task() for record in load_records("livecodebench", data=data))
    assert program.id == "livecodebench/own_a"
    assert await program.grader("<answer>print(sum(map(int, input().split())))</answer>")
    assert not await program.grader("<answer>print(3)</answer>")
    assert "def append(self, values: List[int], value: int)" in function.question
    solution = (
        "class Solution:\n  def append(self, values: List[int], value): return [*values, value]"
    )
    assert await function.grader(f"<answer>{solution}</answer>")


def test_private_tests_are_added_to_the_public_ones(data: Path, tmp_path: Path) -> None:
    hidden = json.dumps([{"input": "7 7\n", "output": "14\n", "testtype": "stdin"}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(hidden))).decode()
    rewritten(
        data,
        "livecodebench_v1/lcb_v1_public.jsonl",
        tmp_path / "test.jsonl",
        private_test_cases=packed,
    )
    (record,) = load_records("livecodebench", data=tmp_path)
    assert [test["output"] for test in record.parameters["tests"]] == ["3\n", "0\n", "14\n"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"public_test_cases": "[1]"}, "expected tests with 'input' and 'output'"),
        ({"public_test_cases": '[{"input": ""}]'}, "expected tests with 'input' and 'output'"),
        ({"public_test_cases": "[]"}, "needs at least one test"),
        ({"private_test_cases": "!"}, "cannot unpack private_test_cases"),
        ({"metadata": "{"}, "metadata: not valid JSON"),
    ],
)
def test_a_problem_with_unreadable_tests_is_skipped_and_named(
    data: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    source = "livecodebench_v1/lcb_v1_public.jsonl"
    rewritten(data, source, tmp_path / "test.jsonl", **changes)
    with pytest.raises(ConfigError, match=f"line 1: .*{said}"):
        load_records("livecodebench", data=tmp_path)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exit, (3,))


def test_private_tests_that_would_run_code_are_refused(data: Path, tmp_path: Path) -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps(Harmful()))).decode()
    source, target = "livecodebench_v1/lcb_v1_public.jsonl", tmp_path / "test.jsonl"
    rewritten(data, source, target, private_test_cases=packed)
    with pytest.raises(ConfigError, match=r"line 1: cannot unpack private_test_cases"):
        load_records("livecodebench", data=tmp_path)


@pytest.mark.parametrize(
    ("name", "asked", "reply"),
    [
        *(
            (name, "\\boxed{}", "So it is $\\boxed{%s}$.")
            for name in ("math", "math500", "gsm8k", "aime24", "aime25")
        ),
        ("rlpr", "<answer></answer>", "<idea>so</idea>\n<answer>%s</answer>"),
        ("mmlu", "the letter", "The right answer is %s)."),
        ("gpqa-diamond", "the letter", "The right answer is %s)."),
    ],
)
async def test_every_question_says_how_to_mark_the_answer_and_such_a_reply_is_right(
    name: str, asked: str, reply: str, data: Path, tmp_path: Path
) -> None:
    if name == "gpqa-diamond":
        data = gpqa_archive(tmp_path)
    for record in load_records(name, data=data):
        task = record.to_task()
        assert asked in task.question
        assert await task.grader(reply % task.answer)
        assert await task.grader(f"<answer>{task.answer}</answer>")
        assert not await task.grader(f"It is not 17.\nIt is not 18.\n{task.answer} it may be")


def test_levels_and_difficulties_are_kept_however_they_are_written(data: Path) -> None:
    assert {record.difficulty for record in load_records("math500", data=data)} <= LEVELS
    assert {record.difficulty for record in load_records("math", data=data)} <= LEVELS
    assert [record.difficulty for record in load_records("livecodebench", data=data)] == [
        "easy",
        "medium",
    ]
    assert [record.difficulty for record in load_records("gsm8k", data=data)] == [None] * 3


def test_aime_has_integers_for_answers(data: Path, tmp_path: Path) -> None:
    assert summary(load_records("aime24", data=data)) == [("aime24/60", "7", "aime24")]
    assert summary(load_records("aime25", data=data)) == [("aime25/1", "32", "aime25")]
    rewritten(data, "aime/aime25.jsonl", tmp_path / "aime25.jsonl", answer="\\pi")
    with pytest.raises(ConfigError, match="line 1: expected an integer from 0 to 999"):
        load_records("aime25", data=tmp_path)


def gpqa_archive(where: Path, rows: int = 8) -> Path:
    """Questions in the form of GPQA, as one file of JSON lines."""
    asked = [
        {
            "Record ID": f"rec{number}",
            "Question": f"Which number follows {number}?",
            "Correct Answer": str(number + 1),
            "Incorrect Answer 1": str(number + 2),
            "Incorrect Answer 2": str(number + 3),
            "Incorrect Answer 3": str(number + 4),
            "High-level domain": "Counting",
            "Writer's Difficulty Estimate": "Easy undergraduate level",
        }
        for number in range(rows)
    ]
    with zipfile.ZipFile(where / "gpqa_diamond.zip", "w") as archive:
        archive.writestr("-", "\n".join(map(json.dumps, asked)))
    with zipfile.ZipFile(where / "dataset.zip", "w") as archive:
        table = io.StringIO()
        writer = csv.DictWriter(table, list(asked[0]))
        writer.writeheader()
        writer.writerows(asked)
        archive.writestr("dataset/gpqa_diamond.csv", table.getvalue())
        archive.writestr("dataset/gpqa_main.csv", "")
    return where


def test_gpqa_lists_the_choices_in_an_order_that_gives_nothing_away(tmp_path: Path) -> None:
    records = load_records("gpqa-diamond", data=gpqa_archive(tmp_path))
    assert len({record.answer for record in records}) > 1
    first = records[0]
    assert (first.id, first.kind) == ("gpqa-diamond/rec0", "Counting")
    assert first.difficulty == "Easy undergraduate level"
    assert f"{first.answer}) 1\n" in first.question + "\n"
    assert load_records("gpqa-diamond", data=tmp_path / "dataset.zip") == records


def test_an_archive_of_something_else_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "gpqa_diamond.zip"
    path.write_text("no archive")
    with pytest.raises(ConfigError, match="not a zip file"):
        load_records("gpqa-diamond", data=tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "")
        archive.writestr("b.txt", "")
    with pytest.raises(ConfigError, match=r"expected gpqa_diamond\.csv in it"):
        load_records("gpqa-diamond", data=tmp_path)


@pytest.mark.parametrize(
    "name",
    ["humaneval", "mbpp:test", "mbpp:sanitized", "bigcodebench:complete", "bigcodebench:hard"],
)
async def test_reference_solutions_pass_their_tests_and_empty_ones_fail(
    name: str, data: Path
) -> None:
    benchmark, _, split = name.partition(":")
    for record in load_records(benchmark, split or None, data):
        task = record.to_task()
        assert await task.grader(f"<answer>{task.answer}</answer>"), task.id
        assert not await task.grader("<answer>pass</answer>"), task.id
        assert not await task.grader("<answer>raise SystemExit(0)</answer>"), task.id
        assert "one Markdown block" in task.question
        fenced = f"Here it is:\n```python\n{task.answer}\n```\nIt works."
        assert await task.grader(fenced), task.id


async def test_code_from_the_question_may_be_omitted(data: Path) -> None:
    _, decode = (record.to_task() for record in load_records("humaneval", data=data))
    assert "def encode_cyclic" in decode.question
    alone = "def decode_cyclic(s: str):\n    return encode_cyclic(encode_cyclic(s))"
    assert await decode.grader(f"<answer>{alone}</answer>")


def test_mbpp_is_divided_by_its_ids(data: Path) -> None:
    ids = {split: [r.id for r in load_records("mbpp", split, data)] for split in ("test", "train")}
    assert ids == {"test": ["mbpp/test/11", "mbpp/test/14"], "train": ["mbpp/train/601"]}


async def test_mbpp_may_show_one_test_and_grades_by_all(data: Path) -> None:
    shown = load_records("mbpp", data=data)[0].question
    (hidden, *_) = load_records("mbpp-one-test", data=data)
    assert (shown.count("assert "), hidden.question.count("assert ")) == (3, 1)
    (check,) = (line for line in hidden.question.splitlines() if line.startswith("assert "))
    call, _, value = check.removeprefix("assert ").partition("==")
    name = call.partition("(")[0]
    cheat = f"```python\ndef {name}(*_): return {value}\n```"
    task = hidden.to_task()
    assert await task.grader(f"Here it is:\n```python\n{task.answer}\n```\nIt works.")
    assert not await task.grader(cheat)


def test_bigcodebench_is_asked_in_two_ways(data: Path) -> None:
    (complete,) = load_records("bigcodebench", data=data)
    (instruct,) = load_records("bigcodebench", "instruct", data)
    assert "Complete the Python 3 code" in complete.question
    assert "You should write self-contained code" in instruct.question
    (hard,) = load_records("bigcodebench", "hard", data)
    assert (complete.difficulty, hard.difficulty) == (None, "hard")


def test_files_may_be_compressed(data: Path, tmp_path: Path) -> None:
    text = (data / "humaneval" / "HumanEval.jsonl").read_bytes()
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(text))
    assert load_records("humaneval", data=tmp_path) == load_records("humaneval", data=data)
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(ConfigError, match=r"cannot read .*HumanEval\.jsonl\.gz"):
        load_records("humaneval", data=tmp_path)


def test_names_may_be_spelt_as_papers_spell_them(data: Path) -> None:
    assert load_records("MATH-500", data=data) == load_records("math500", data=data)
    assert load_records("HumanEval", data=data) == load_records("humaneval", data=data)


def test_rows_that_cannot_be_graded_are_left_out_and_named(data: Path, tmp_path: Path) -> None:
    good, other = (data / "gsm8k" / "test.jsonl").read_text("utf-8").splitlines()[:2]
    bad = json.dumps({"question": "How many?", "answer": "no last line"})
    (tmp_path / "test.jsonl").write_text("\n".join([good, bad, other]), "utf-8")
    reading = read_benchmark("gsm8k", data=tmp_path)
    assert [record.id for record in reading.records] == ["gsm8k/test/1", "gsm8k/test/3"]
    (skipped,) = reading.skipped
    assert str(skipped).endswith(
        "test.jsonl, line 2: expected a last line `#### result` in the answer"
    )
    with pytest.raises(ConfigError, match="line 2: expected a last line"):
        load_records("gsm8k", data=tmp_path)


@pytest.mark.parametrize(
    ("solution", "result"),
    [
        ("so $\\boxed{1}$ and then $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("$\\boxed 7$.", "7"),
        ("\\fbox{3}", "3"),
        ("no box", ""),
        ("\\boxed{never closed", ""),
        ("\\boxed", ""),
    ],
)
def test_the_last_box_is_the_result(solution: str, result: str) -> None:
    assert extract_boxed(solution) == result


def test_a_file_of_another_benchmark_is_an_error_that_names_the_line(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"test\.jsonl, line 1: expected a text in 'problem'"):
        load_records("math", data=data / "gsm8k")
    with pytest.raises(ConfigError, match="line 1: expected a list of choices"):
        load_records("mmlu", data=data / "gsm8k" / "test.jsonl")
    with pytest.raises(ConfigError, match="line 1: expected a user's message"):
        load_records("rlpr", data=data / "gsm8k" / "test.jsonl")


def test_missing_files_are_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected rlpr_train\.parquet or rlpr_train\.jsonl"):
        load_records("rlpr", data=tmp_path)
    with pytest.raises(ConfigError, match="no such file or directory"):
        load_records("rlpr", data=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="read as mmlu:auxiliary_train: there are no tasks"):
        load_records("mmlu", "auxiliary_train", data)
    with pytest.raises(ConfigError, match="it has test, train, prm800k"):
        load_records("math", "validation", data)
    with pytest.raises(ConfigError, match="there are math, math500"):
        load_records("trivia", data=data)
    with pytest.raises(ConfigError, match="not on the hub"):
        load_records("math", "prm800k")


@pytest.fixture(autouse=True)
def hub_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "is_hub_reachable", lambda: True)


class Shelf(ModuleType):
    """Stands for the package `datasets`: hands out rows, and remembers what was asked for."""

    def __init__(self, rows: list[Mapping[str, Any]]) -> None:
        super().__init__("datasets")
        self.rows = rows
        self.asked: list[tuple[Any, ...]] = []

    def load_dataset(self, *names: Any, **options: Any) -> list[Mapping[str, Any]]:
        self.asked.append((*names, *options.values()))
        return self.rows


def test_the_hub_is_asked_by_the_usual_names(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"question": "Which?", "choices": ["a", "b", "c", "d"], "answer": 3, "subject": ""}
    shelf = Shelf([row])
    monkeypatch.setitem(sys.modules, "datasets", shelf)
    (record,) = load_records("mmlu", "auxiliary_train")
    assert (record.id, record.answer) == ("mmlu/auxiliary_train/auxiliary_train/1", "D")
    assert shelf.asked == [("cais/mmlu", "all", "auxiliary_train")]


def test_a_dataset_that_is_a_script_is_read_by_its_file(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    lines = (data / "livecodebench_v1" / "lcb_v1_public.jsonl").read_text("utf-8").splitlines()
    shelf = Shelf([json.loads(line) for line in lines])
    monkeypatch.setitem(sys.modules, "datasets", shelf)
    assert load_records("livecodebench") == load_records("livecodebench", data=data)
    file = "hf://datasets/livecodebench/code_generation_lite/test.jsonl"
    assert shelf.asked == [("json", file, "train")]


def test_math_on_the_hub_is_one_configuration_for_each_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {"problem": "?", "solution": "\\boxed{1}", "type": "Algebra", "level": "Level 1"}
    shelf = Shelf([row])
    monkeypatch.setitem(sys.modules, "datasets", shelf)
    assert len({record.id for record in load_records("math")}) == len(shelf.asked) == 7


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"openai/gsm8k.*\[eval\]"):
        load_records("gsm8k")


class ClientError(Exception):
    """As HTTP clients have their own."""


@pytest.mark.parametrize("kind", [ConnectionError, ValueError, ClientError])
def test_a_hub_that_does_not_answer_is_a_clear_error(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf([])

    def refuse(*_: Any, **__: Any) -> list[Mapping[str, Any]]:
        raise kind("nobody there.\nand more")

    monkeypatch.setattr(shelf, "load_dataset", refuse)
    monkeypatch.setitem(sys.modules, "datasets", shelf)
    with pytest.raises(
        ConfigError, match="cannot fetch openai/gsm8k.*nobody there; with its files"
    ):
        load_records("gsm8k")


def test_an_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr(hub, "is_hub_reachable", lambda: False)
    with pytest.raises(ConfigError, match=r"it does not answer, and nothing.* --data DIR"):
        load_records("gsm8k")


def test_every_benchmark_has_a_split() -> None:
    assert all(benchmark.splits for benchmark in BENCHMARKS.values())
