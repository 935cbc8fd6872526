"""The benchmarks that conductors are trained on and measured by, as tasks.

    math            MATH: test, train, and prm800k (train and 4,000 problems of the test split)
    math500         MATH-500
    gsm8k           GSM8K: test, train
    mmlu            MMLU: test, val, dev, auxiliary_train
    rlpr            RLPR's training set, where the answer has at most 30 characters
    livecodebench   LiveCodeBench release 1, with its public and, where they are, private tests

Questions ask for the result in `<answer>` tags, so a reply without them is wrong. The words are
the text files in `prompts/`. Which files on this machine are understood, and what a benchmark is
called on the hub, is in the table at the end.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any, Final

from podium.errors import ConfigError
from podium.tasks.record import TaskRecord
from podium.tasks.sources import Hub, Local, Row

LONGEST_RLPR_ANSWER: Final = 30
"""Characters; longer ones cannot be graded by comparing them."""

MATH_SUBJECTS: Final = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
LETTERS: Final = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Split:
    """Where the rows of one split are: as files on this machine, and on the hub if it has them."""

    local: Local
    hub: Hub | None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its splits, the usual one first, and what a row of it means.

    `read` gets a row and the split, and returns None for a row that is not of the split, or that
    nobody could grade: two problems of the train split of MATH have no answer.
    """

    splits: Mapping[str, Split]
    read: Callable[[Row, str], TaskRecord | None]


def load_records(name: str, split: str | None = None, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark from the file or directory `data` or, without one, from the hub."""
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    split = split or next(iter(benchmark.splits))
    source = benchmark.splits.get(split)
    if source is None:
        raise ConfigError(f"{name} has no split {split!r}; it has {', '.join(benchmark.splits)}")
    if data is not None:
        rows = source.local.rows(data)
    elif source.hub is not None:
        rows = source.hub.rows()
    else:
        raise ConfigError(f"{name}:{split} is not on the hub; name the directory that has its file")
    records = [record for row in rows if (record := benchmark.read(row, split)) is not None]
    if not records:
        raise ConfigError(f"{data or name}: there are no tasks of {name}:{split} in it")
    return records


def _math(row: Row, split: str) -> TaskRecord | None:
    if split == "train" and row.data.get("original_split", "train") != "train":
        return None
    answer = row.data["answer"] if "answer" in row.data else boxed(row.text("solution"))
    if not answer:
        return None
    number = row.data.get("idx", row.number)
    return TaskRecord(
        id=str(row.data.get("unique_id") or f"math/{split}/{number}"),
        question=_prompt("math", question=row.text("problem")),
        answer=str(answer),
        grader="math",
        parameters={"tagged": True},
        kind=str(row.data.get("subject") or row.data.get("type") or ""),
    )


def boxed(solution: str) -> str:
    """What stands in the last box of a solution, empty where there is none."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return ""
    rest = solution[start:].partition("box")[2].removeprefix("ed").lstrip()
    if not rest.startswith("{"):
        first, *_ = [*rest.partition("$")[0].split(), ""]
        return first
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:place].strip()
    return ""


def _gsm8k(row: Row, split: str) -> TaskRecord:
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark:
        raise ConfigError(f"{row.where}: expected a last line `#### result` in the answer")
    return TaskRecord(
        id=f"gsm8k/{split}/{row.number}",
        question=_prompt("number", question=row.text("question")),
        answer=answer.strip().replace(",", ""),
        grader="number",
        parameters={"tagged": True},
        kind="gsm8k",
    )


def _mmlu(row: Row, split: str) -> TaskRecord | None:
    if row.data.get("split", split) != split:
        return None
    choices = row.data.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise ConfigError(f"{row.where}: expected a list of choices in 'choices'")
    letters = LETTERS[: len(choices)]
    answer = row.data.get("answer")
    letter = letters[answer] if isinstance(answer, int) and answer < len(letters) else answer
    if not isinstance(letter, str) or letter not in letters:
        raise ConfigError(f"{row.where}: expected one of {letters} in 'answer', not {answer!r}")
    subject = str(row.data.get("subject") or split)
    listed = "\n".join(
        f"{letter}) {choice}" for letter, choice in zip(letters, choices, strict=True)
    )
    return TaskRecord(
        id=f"mmlu/{split}/{subject}/{row.number}",
        question=_prompt("letter", question=row.text("question"), choices=listed),
        answer=letter,
        grader="letter",
        parameters={"tagged": True},
        kind=subject,
    )


def _rlpr(row: Row, split: str) -> TaskRecord | None:
    try:
        asked = [message["content"] for message in row.data["prompt"] if message["role"] == "user"]
        answer = str(row.data["reward_model"]["ground_truth"]).strip()
        question = str(asked[-1]).strip()
    except (KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            f"{row.where}: expected a user's message in 'prompt' and reward_model.ground_truth"
        ) from error
    if not 0 < len(answer) <= LONGEST_RLPR_ANSWER:
        return None
    return TaskRecord(
        id=f"rlpr/{split}/{row.number}",
        question=_prompt("short", question=question),
        answer=answer,
        grader="short",
        parameters={"tagged": True},
        kind=str(row.data.get("ability") or "rlpr"),
    )


def _livecodebench(row: Row, split: str) -> TaskRecord:
    tests = [
        *_tests(row, row.text("public_test_cases")),
        *_tests(row, str(row.data.get("private_test_cases") or "[]")),
    ]
    function = _json(row, row.text("metadata")).get("func_name")
    question = row.text("question_content")
    starter = str(row.data.get("starter_code") or "").rstrip()
    return TaskRecord(
        id=f"livecodebench/{row.text('question_id')}",
        question=_prompt("function", question=question, starter=starter)
        if function
        else _prompt("program", question=question),
        answer="",
        grader="code",
        parameters={"tests": tests, "function": function, "tagged": True},
        kind=str(row.data.get("difficulty") or split),
    )


def _tests(row: Row, written: str) -> list[dict[str, str]]:
    """Test cases: JSON or, as private ones are kept, JSON that was packed and compressed."""
    if not written.lstrip().startswith("["):
        written = _unpacked(row, written)
    return [{"input": test["input"], "output": test["output"]} for test in _json(row, written)]


def _unpacked(row: Row, packed: str) -> str:
    try:
        text = _TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(packed)))).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise ConfigError(f"{row.where}: cannot unpack private_test_cases: {error}") from error
    return str(text)


class _TextOnly(pickle.Unpickler):
    """The benchmark pickles a text before it compresses it. Nothing but plain values is taken
    from a pickle here, since anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"expected a text, and found {module}.{name}")


def _json(row: Row, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{row.where}: not valid JSON: {error}") from error


def _prompt(name: str, **texts: str) -> str:
    return _template(name).substitute(texts).strip()


@cache
def _template(name: str) -> Template:
    return Template(
        resources.files("podium.tasks").joinpath("prompts", f"{name}.txt").read_text("utf-8")
    )


_GSM8K: Final = "openai/gsm8k"
_MATH: Final = "EleutherAI/hendrycks_math"
_MMLU: Final = Local(("mmlu.zip", "data"), "mmlu")

BENCHMARKS: Final[Mapping[str, Benchmark]] = MappingProxyType(
    {
        "math": Benchmark(
            {
                "test": Split(Local(("test.jsonl",), "math"), Hub(_MATH, "test", MATH_SUBJECTS)),
                "train": Split(
                    Local(("train_prm800k_split.jsonl",), "math"),
                    Hub(_MATH, "train", MATH_SUBJECTS),
                ),
                "prm800k": Split(Local(("train_prm800k_split.jsonl",), "math"), None),
            },
            _math,
        ),
        "math500": Benchmark(
            {
                "test": Split(
                    Local(("math500.jsonl",), "math"), Hub("HuggingFaceH4/MATH-500", "test")
                )
            },
            _math,
        ),
        "gsm8k": Benchmark(
            {
                split: Split(Local((f"{split}.jsonl",), "gsm8k"), Hub(_GSM8K, split, ("main",)))
                for split in ("test", "train")
            },
            _gsm8k,
        ),
        "mmlu": Benchmark(
            {
                "test": Split(_MMLU, Hub("cais/mmlu", "test", ("all",))),
                "val": Split(_MMLU, Hub("cais/mmlu", "validation", ("all",))),
                "dev": Split(_MMLU, Hub("cais/mmlu", "dev", ("all",))),
                "auxiliary_train": Split(_MMLU, Hub("cais/mmlu", "auxiliary_train", ("all",))),
            },
            _mmlu,
        ),
        "rlpr": Benchmark(
            {
                "train": Split(
                    Local(("rlpr_train.parquet", "rlpr_train.jsonl"), "rlpr"),
                    Hub("openbmb/RLPR-Train-Dataset"),
                )
            },
            _rlpr,
        ),
        "livecodebench": Benchmark(
            {
                "release_v1": Split(
                    Local(("lcb_v1_public.jsonl", "test.jsonl"), "livecodebench_v1"),
                    Hub("livecodebench/code_generation_lite", file="test.jsonl"),
                )
            },
            _livecodebench,
        ),
    }
)
"""Every benchmark that can be named, with what it is called on this machine and on the hub."""
