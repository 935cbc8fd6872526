"""What a row of a benchmark means where the answer is a program: as a record of a task.

The answer of a record is the reference solution, where the benchmark has one.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from podium.errors import ConfigError
from podium.tasks.record import TaskRecord
from podium.tasks.sources import Row
from podium.tasks.wording import prompt

MBPP_SPLITS: Final[Mapping[str, range]] = MappingProxyType(
    {
        "test": range(11, 511),
        "validation": range(511, 601),
        "train": range(601, 975),
        "prompt": range(1, 11),
        "sanitized": range(11, 511),
    }
)
"""The ids of each split, as the authors divided them."""

ASSERTIONS_LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {"cpu_seconds": 15, "wall_seconds": 60}
)
"""Some references of MBPP count for seconds, and wait for longer on a busy machine."""

BIGCODEBENCH_LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "cpu_seconds": 60,
        "wall_seconds": 120,
        "memory_bytes": 4 * 1024**3,
        "file_bytes": 128 * 1024**2,
        "disk_bytes": 256 * 1024**2,
        "processes": 64,
    }
)
"""Its programs load pandas, scikit-learn and matplotlib, and start threads and processes."""


def livecodebench(row: Row, split: str) -> TaskRecord:
    """LiveCodeBench, with its public and, where they are, private tests."""
    tests = [
        *_tests("public_test_cases", row.text("public_test_cases")),
        *_tests("private_test_cases", str(row.data.get("private_test_cases") or "[]")),
    ]
    metadata = _json("metadata", row.text("metadata"))
    function = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    question = row.text("question_content")
    starter = str(row.data.get("starter_code") or "").rstrip()
    return TaskRecord(
        id=f"livecodebench/{row.text('question_id')}",
        question=prompt("function", question=question, starter=starter)
        if function
        else prompt("program", question=question),
        answer="",
        grader="code",
        parameters={"tests": tests, "function": function, "tagged": True},
        kind=str(row.data.get("platform") or split),
        difficulty=str(row.data.get("difficulty") or "") or None,
    )


def _tests(column: str, written: str) -> list[dict[str, str]]:
    """Test cases: JSON or, as private ones are kept, JSON that was packed and compressed."""
    if not written.lstrip().startswith("["):
        written = _unpacked(column, written)
    try:
        return [
            {"input": test["input"], "output": test["output"]} for test in _json(column, written)
        ]
    except (TypeError, KeyError) as error:
        raise ConfigError(f"expected tests with 'input' and 'output' in {column!r}") from error


def _unpacked(column: str, packed: str) -> str:
    try:
        text = _TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(packed)))).load()
    except Exception as error:  # what is no pickle makes it raise almost anything
        raise ConfigError(f"cannot unpack {column}: {error}") from error
    return str(text)


class _TextOnly(pickle.Unpickler):
    """The benchmark pickles a text before it compresses it. Nothing but plain values is taken
    from a pickle here, since anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"expected a text, and found {module}.{name}")


def _json(column: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{column}: not valid JSON: {error}") from error


def humaneval(row: Row, split: str) -> TaskRecord:
    """HumanEval: a function to be completed, and a test that calls it."""
    code = row.text("prompt")
    name = row.text("entry_point")
    return TaskRecord(
        id=row.text("task_id"),
        question=prompt("complete", code=code.strip()),
        answer=code + row.text("canonical_solution"),
        grader="code",
        parameters={
            "check": f"{row.text('test')}\ncheck({name})\n",
            "before": code,
            "limits": {**ASSERTIONS_LIMITS},
            "tagged": True,
        },
        kind="humaneval",
    )


def mbpp(row: Row, split: str) -> TaskRecord | None:
    """MBPP: a sentence and three assertions, which are part of the question, as in its paper."""
    number = row.data.get("task_id")
    if not isinstance(number, int):
        raise ConfigError(f"expected an integer in 'task_id', not {number!r}")
    if number not in MBPP_SPLITS[split]:
        return None
    tests = row.data.get("test_list")
    if not isinstance(tests, list) or not tests:
        raise ConfigError("expected a list of assertions in 'test_list'")
    imports = [str(line) for line in row.data.get("test_imports") or ()]
    lines = [*imports, str(row.data.get("test_setup_code") or ""), *map(str, tests)]
    return TaskRecord(
        id=f"mbpp/{split}/{number}",
        question=prompt(
            "asserts",
            question=row.text("text" if "text" in row.data else "prompt").strip(),
            tests="\n".join(map(str, tests)),
        ),
        answer=row.text("code").replace("\r\n", "\n"),
        grader="code",
        parameters={
            "check": "\n".join(filter(None, lines)),
            "limits": {**ASSERTIONS_LIMITS},
            "tagged": True,
        },
        kind="mbpp",
    )


def bigcodebench(row: Row, split: str) -> TaskRecord:
    """BigCodeBench: code to be completed or, with `instruct`, to be written as told. Its tests
    replace parts of modules and look into figures, which only works in one process."""
    code = row.text("complete_prompt")
    question = (
        prompt("instructed", question=row.text("instruct_prompt").strip())
        if split == "instruct"
        else prompt("complete", code=code.strip())
    )
    return TaskRecord(
        id=row.text("task_id"),
        question=question,
        answer=code + row.text("canonical_solution"),
        grader="code",
        parameters={
            "check": row.text("test"),
            "before": f"{row.text('code_prompt').rstrip()}\n    pass\n",
            "together": True,
            "limits": {**BIGCODEBENCH_LIMITS},
            "tagged": True,
        },
        kind="bigcodebench",
        difficulty="hard" if split == "hard" else None,
    )
