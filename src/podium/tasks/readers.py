"""Rows of benchmarks, from local files or from the Hugging Face hub, and the tasks made of them."""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import json
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from podium.core.errors import ConfigError, needs_extra
from podium.tasks.answers import extract_boxed, render_prompt
from podium.tasks.records import TaskRecord, json_lines, open_text

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


def livecodebench(row: DatasetRow, split: str) -> TaskRecord:
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
        question=render_prompt("function", question=question, starter=starter)
        if function
        else render_prompt("program", question=question),
        answer="",
        grader="code",
        parameters={"tests": tests, "function": function},
        kind=str(row.data.get("platform") or split),
        difficulty=str(row.data.get("difficulty") or "") or None,
    )


def _tests(column: str, written: str) -> list[dict[str, str]]:
    """Test cases: JSON or, as private ones are kept, JSON that was packed and compressed."""
    if not written.lstrip().startswith("["):
        written = _unpack(column, written)
    try:
        return [
            {"input": test["input"], "output": test["output"]} for test in _json(column, written)
        ]
    except (TypeError, KeyError) as error:
        raise ConfigError(f"expected tests with 'input' and 'output' in {column!r}") from error


def _unpack(column: str, packed: str) -> str:
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


def humaneval(row: DatasetRow, split: str) -> TaskRecord:
    """HumanEval: a function to be completed, in a Markdown block, and a test that calls it."""
    code = row.text("prompt")
    name = row.text("entry_point")
    return TaskRecord(
        id=row.text("task_id"),
        question=render_prompt("complete", code=code.strip()),
        answer=code + row.text("canonical_solution"),
        grader="code",
        parameters={
            "check": f"{row.text('test')}\ncheck({name})\n",
            "prelude": code,
            "limits": {**ASSERTIONS_LIMITS},
        },
        kind="humaneval",
    )


def mbpp_one_test(row: DatasetRow, split: str) -> TaskRecord | None:
    """MBPP with the first assertion in the question, graded on all of them."""
    record = mbpp(row, split)
    if record is None:
        return None
    text = row.text("text" if "text" in row.data else "prompt").strip()
    question = render_prompt("block", question=text, tests=str(row.data["test_list"][0]))
    return replace(record, question=question)


def mbpp(row: DatasetRow, split: str) -> TaskRecord | None:
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
        question=render_prompt(
            "asserts",
            question=row.text("text" if "text" in row.data else "prompt").strip(),
            tests="\n".join(map(str, tests)),
        ),
        answer=row.text("code").replace("\r\n", "\n"),
        grader="code",
        parameters={
            "check": "\n".join(filter(None, lines)),
            "limits": {**ASSERTIONS_LIMITS},
        },
        kind="mbpp",
    )


def bigcodebench(row: DatasetRow, split: str) -> TaskRecord:
    """Read BigCodeBench: code to complete or, with `instruct`, to write.

    Its tests replace parts of modules and inspect figures, which works only in one process.
    """
    code = row.text("complete_prompt")
    question = (
        render_prompt("instructed", question=row.text("instruct_prompt").strip())
        if split == "instruct"
        else render_prompt("complete", code=code.strip())
    )
    return TaskRecord(
        id=row.text("task_id"),
        question=question,
        answer=code + row.text("canonical_solution"),
        grader="code",
        parameters={
            "check": row.text("test"),
            "prelude": f"{row.text('code_prompt').rstrip()}\n    pass\n",
            "in_process": True,
            "limits": {**BIGCODEBENCH_LIMITS},
        },
        kind="bigcodebench",
        difficulty="hard" if split == "hard" else None,
    )


MAX_RLPR_ANSWER_CHARS: Final = 30
MATH_TRAINING: Final = ("train", "prm800k")
LETTERS: Final = "ABCDEFGHIJ"
WRONG_CHOICES: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def math(row: DatasetRow, split: str) -> TaskRecord | None:
    if split == "train" and row.data.get("original_split", "train") != "train":
        return None
    answer = row.data["answer"] if "answer" in row.data else extract_boxed(row.text("solution"))
    if not answer and split in MATH_TRAINING:
        return None
    number = row.data.get("idx", row.number)
    return TaskRecord(
        id=str(row.data.get("unique_id") or f"math/{split}/{number}"),
        question=render_prompt("math", question=row.text("problem")),
        answer=str(answer or ""),
        grader="math",
        parameters={"tagged": True},
        kind=str(row.data.get("subject") or row.data.get("type") or ""),
        difficulty=_level(row.data.get("level")),
    )


def _level(written: Any) -> str | None:
    """The level as one of 1 to 5, however a file writes it; some have a question mark."""
    level = str(written).lower().removeprefix("level").strip()
    return f"level {level}" if level in {"1", "2", "3", "4", "5"} else None


def gsm8k(row: DatasetRow, split: str) -> TaskRecord:
    """GSM8K: the result stands in the last line of the answer."""
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark:
        raise ConfigError("expected a last line `#### result` in the answer")
    return TaskRecord(
        id=f"gsm8k/{split}/{row.number}",
        question=render_prompt("number", question=row.text("question")),
        answer=answer.strip().replace(",", ""),
        grader="number",
        parameters={"tagged": True},
        kind="gsm8k",
    )


def mmlu(row: DatasetRow, split: str) -> TaskRecord | None:
    if row.data.get("split", split) != split:
        return None
    choices = row.data.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise ConfigError("expected a list of choices in 'choices'")
    letters = LETTERS[: len(choices)]
    answer = row.data.get("answer")
    letter = letters[answer] if isinstance(answer, int) and answer < len(letters) else answer
    if not isinstance(letter, str) or letter not in letters:
        raise ConfigError(f"expected one of {letters} in 'answer', not {answer!r}")
    subject = str(row.data.get("subject") or split)
    return TaskRecord(
        id=f"mmlu/{split}/{subject}/{row.number}",
        question=render_prompt(
            "letter", question=row.text("question"), choices=_list_choices(choices)
        ),
        answer=letter,
        grader="letter",
        kind=subject,
    )


def rlpr(row: DatasetRow, split: str) -> TaskRecord | None:
    """RLPR, where the answer is short."""
    try:
        turns = [turn["content"] for turn in row.data["prompt"] if turn["role"] == "user"]
        answer = str(row.data["reward_model"]["ground_truth"]).strip()
        question = str(turns[-1]).strip()
    except (KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            "expected a user's message in 'prompt' and reward_model.ground_truth"
        ) from error
    if not 0 < len(answer) <= MAX_RLPR_ANSWER_CHARS:
        return None
    return TaskRecord(
        id=f"rlpr/{split}/{row.number}",
        question=render_prompt("short", question=question),
        answer=answer,
        grader="short",
        parameters={"tagged": True},
        kind=str(row.data.get("ability") or "rlpr"),
    )


def aime24(row: DatasetRow, split: str) -> TaskRecord:
    return _aime(row, "aime24")


def aime25(row: DatasetRow, split: str) -> TaskRecord:
    return _aime(row, "aime25")


def _aime(row: DatasetRow, year: str) -> TaskRecord:
    """Every answer is an integer from 0 to 999."""
    question = row.text("problem" if "problem" in row.data else "question")
    written = str(row.data.get("answer", "")).strip()
    if not written.isdecimal() or int(written) > 999:
        raise ConfigError(f"expected an integer from 0 to 999 in 'answer', not {written!r}")
    number = row.data.get("id", row.data.get("question_id", row.number))
    return TaskRecord(
        id=f"{year}/{number}",
        question=render_prompt("number", question=question),
        answer=str(int(written)),
        grader="number",
        parameters={"tolerance": 0, "tagged": True},
        kind=year,
    )


def gpqa(row: DatasetRow, split: str) -> TaskRecord:
    """GPQA-Diamond. The file has the right answer first; here a hash orders the choices, the
    same on every machine."""
    question, right = row.text("Question").strip(), row.text("Correct Answer").strip()
    name = str(row.data.get("Record ID") or row.number)
    choices = sorted(
        [right, *(row.text(column).strip() for column in WRONG_CHOICES)],
        key=lambda choice: blake2b(f"{name}\0{choice}".encode()).digest(),
    )
    difficulty = str(row.data.get("Writer's Difficulty Estimate") or "").strip()
    return TaskRecord(
        id=f"gpqa-diamond/{name}",
        question=render_prompt("letter", question=question, choices=_list_choices(choices)),
        answer=LETTERS[choices.index(right)],
        grader="letter",
        kind=str(row.data.get("High-level domain") or split),
        difficulty=difficulty or None,
    )


def _list_choices(choices: list[str]) -> str:
    return "\n".join(
        f"{letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False)
    )


PROBE_SECONDS: Final = 5.0
"""The timeout of the hub's reachability probe."""

_CLIENTS: Final = ("huggingface_hub.constants", "datasets.config")
_SETTING: Final = "HF_HUB_OFFLINE"


def is_hub_reachable() -> bool:
    """True if the hub responds at the endpoint that its clients use."""
    constants = importlib.import_module("huggingface_hub.constants")
    session = importlib.import_module("huggingface_hub.utils").get_session()
    try:
        session.head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - the client's own kinds change with its version
        return False
    return True


@contextmanager
def hub_offline() -> Iterator[None]:
    """Make the hub's clients use only their caches."""
    clients = [importlib.import_module(name) for name in _CLIENTS]
    before = [getattr(client, _SETTING) for client in clients]
    for client in clients:
        setattr(client, _SETTING, True)
    try:
        yield
    finally:
        for client, setting in zip(clients, before, strict=True):
            setattr(client, _SETTING, setting)


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row of a benchmark."""

    where: str
    number: int
    data: Mapping[str, Any]

    def text(self, column: str) -> str:
        value = self.data.get(column)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(
                f"expected a text in {column!r}; there are {', '.join(self.data) or 'no columns'}"
            )
        return value


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset of the hub: its name, and configurations with a split, or one file.

    A file avoids running a dataset that is a script.
    """

    name: str
    split: str = "train"
    configurations: tuple[str | None, ...] = (None,)
    file: str | None = None

    def rows(self) -> Iterator[DatasetRow]:
        """Yield every row; the package `datasets` caches them."""
        datasets = import_optional("datasets", f"fetching {self.name} from the hub")
        reachable = is_hub_reachable()
        with nullcontext() if reachable else hub_offline():
            loaded = [
                self._load(datasets, configuration, reachable)
                for configuration in self.configurations
            ]
        for number, data in enumerate(chain.from_iterable(loaded), start=1):
            yield DatasetRow(f"{self.name}, row {number}", number, data)

    def _load(
        self, datasets: Any, configuration: str | None, is_hub_reachable: bool
    ) -> Iterable[Mapping[str, Any]]:
        try:
            if self.file is not None:
                address = f"hf://datasets/{self.name}/{self.file}"
                loaded = datasets.load_dataset("json", data_files=address, split="train")
            else:
                loaded = datasets.load_dataset(self.name, configuration, split=self.split)
        except Exception as error:  # the clients below it raise errors of their own
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            if not is_hub_reachable:
                reason = "it does not answer, and nothing of it was kept"
            raise ConfigError(
                f"cannot fetch {self.name} from the hub: {reason}; with its files on this "
                f"machine, name their directory: podium eval run --data DIR, or in a recipe "
                f"data.mix.path or data.suite.path"
            ) from error
        rows: Iterable[Mapping[str, Any]] = loaded
        return rows


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A benchmark's local files: `names` are tried in a directory and in `folder` inside it.

    `archive` reads directories and zip files.
    """

    names: tuple[str, ...]
    folder: str
    archive: Callable[[Path], Iterator[DatasetRow]] | None = None

    def rows(self, data: Path) -> Iterator[DatasetRow]:
        """Yield every row of the file, which is `data` or in it."""
        path = self._find(data)
        if self.archive is not None and (path.is_dir() or path.suffix == ".zip"):
            return self.archive(path)
        if path.suffix == ".parquet":
            return _parquet_rows(path)
        if path.suffix == ".json":
            return _json_rows(path)
        return _jsonl_rows(path)

    def _find(self, data: Path) -> Path:
        if data.is_file():
            return data
        if not data.is_dir():
            raise ConfigError(f"{data}: there is no such file or directory")
        tried = [folder / name for folder in (data, data / self.folder) for name in self.names]
        for path in tried:
            if path.exists():
                return path
        raise ConfigError(
            f"{data}: expected {' or '.join(self.names)} in it, or in {self.folder} inside it; "
            f"without a directory the hub is asked"
        )


def import_optional(module: str, purpose: str, extra: str = "eval") -> Any:
    """Import a module; ConfigError names the extra if it is missing."""
    with needs_extra(extra, purpose):
        return importlib.import_module(module)


def _jsonl_rows(path: Path) -> Iterator[DatasetRow]:
    with _open_gzip(path) if path.suffix == ".gz" else open_text(path) as file:
        for number, data in json_lines(path, file):
            if not isinstance(data, Mapping):
                raise ConfigError(f"{path}, line {number}: expected an object")
            yield DatasetRow(f"{path}, line {number}", number, data)


@contextmanager
def _open_gzip(path: Path) -> Iterator[io.TextIOBase]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            assert isinstance(file, io.TextIOBase)
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _json_rows(path: Path) -> Iterator[DatasetRow]:
    with open_text(path) as file:
        try:
            listed = json.load(file)
        except ValueError as error:
            raise ConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(data, Mapping) for data in listed):
        raise ConfigError(f"{path}: expected a list of objects")
    for number, data in enumerate(listed, start=1):
        yield DatasetRow(f"{path}, object {number}", number, data)


def _parquet_rows(path: Path) -> Iterator[DatasetRow]:
    parquet = import_optional("pyarrow.parquet", f"reading {path.name}")
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches():
        for data in batch.to_pylist():
            number += 1
            yield DatasetRow(f"{path}, row {number}", number, data)
