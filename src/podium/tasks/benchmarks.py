"""The benchmarks that conductors are trained on and measured by, by name.

    math            MATH: test, train, and prm800k (train and 4,000 problems of the test split)
    math500         MATH-500
    gsm8k           GSM8K: test, train
    mmlu            MMLU: test, val, dev, auxiliary_train
    aime24, aime25  AIME of 2024 and 2025, both exams of the year
    gpqa-diamond    the Diamond questions of GPQA
    humaneval       HumanEval
    mbpp            MBPP: test, validation, train, prompt, and sanitized (of test)
    livecodebench   LiveCodeBench: release_v1, and v6, which is what release 6 added
    bigcodebench    BigCodeBench: complete, instruct, hard
    rlpr            RLPR's training set, where the answer has at most 30 characters

Questions ask for the result in `<answer>` tags, so a reply without them is wrong. What a row
means is in `readers` and `code_readers`. Which files on this machine are understood, and what a
benchmark is called on the hub, is in the table here.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from podium.core.errors import ConfigError
from podium.tasks import readers
from podium.tasks import readers as code_readers
from podium.tasks.records import LoadedTasks, TaskEntry, TaskRecord, build_tasks, open_text
from podium.tasks.sources import DatasetRow, HubDataset, LocalFiles

MMLU_COLUMNS: Final = ("question", "A", "B", "C", "D", "answer")

GPQA_PASSWORD: Final = b"deserted-untie-orchid"
"""As its authors print it beside the archive: it keeps the questions out of what crawlers read,
and nothing more."""

GPQA_TABLE: Final = "gpqa_diamond.csv"


def mmlu_rows(path: Path) -> Iterator[DatasetRow]:
    """MMLU's own tables, zipped or not: one CSV for each subject, without a header."""
    if path.is_dir():
        tables = ((file.relative_to(path).as_posix(), file) for file in sorted(path.rglob("*.csv")))
        for name, file in tables:
            with open_text(file) as opened:
                yield from _mmlu_table(name, csv.reader(opened))
        return
    with _opened(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".csv"):
                with archive.open(name) as raw:
                    text = io.TextIOWrapper(raw, "utf-8", newline="")
                    yield from _mmlu_table(name, csv.reader(text))


def _mmlu_table(name: str, rows: Iterable[Sequence[str]]) -> Iterator[DatasetRow]:
    path = PurePosixPath(name)
    split = path.parent.name
    subject = path.stem.removesuffix(f"_{split}")
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(MMLU_COLUMNS):
            raise ConfigError(
                f"{name}, row {number}: expected {', '.join(MMLU_COLUMNS)}, and found "
                f"{len(cells)} cells"
            )
        question, *choices, answer = cells
        data = {
            "question": question,
            "choices": choices,
            "answer": answer,
            "subject": subject,
            "split": split,
        }
        yield DatasetRow(f"{name}, row {number}", number, data)


def gpqa_rows(path: Path) -> Iterator[DatasetRow]:
    """GPQA-Diamond, zipped with the authors' password: their own archive of tables, or one file
    of JSON lines."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file, and it is a directory")
    with _opened(path) as archive:
        names = archive.namelist()
        table = next((name for name in names if name.endswith(GPQA_TABLE)), None)
        if table is None and len(names) != 1:
            raise ConfigError(f"{path}: expected {GPQA_TABLE} in it, or one file of JSON lines")
        name = table or names[0]
        try:
            text = archive.read(name, GPQA_PASSWORD).decode("utf-8")
        except (RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot open {name!r} in it: {error}") from error
    found = csv.DictReader(io.StringIO(text)) if table else _json_objects(path, text)
    for number, data in enumerate(found, start=1):
        yield DatasetRow(f"{path}, row {number}", number, data)


def _json_objects(path: Path, text: str) -> Iterator[Mapping[str, Any]]:
    # Split by hand: the questions hold other characters that count as ends of lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, row {number}: not valid JSON: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise ConfigError(f"{path}: not a zip file: {error}") from error


MATH_SUBJECTS: Final = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)


@dataclass(frozen=True, slots=True)
class Split:
    """The local files of a split, and its dataset on the hub if there is one."""

    local: LocalFiles
    hub: HubDataset | None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its splits, the usual one first, and what a row of it means.

    `read` gets a row and the split, and returns None for a row that is not of it.
    """

    splits: Mapping[str, Split]
    read: Callable[[DatasetRow, str], TaskRecord | None]


_GSM8K: Final = "openai/gsm8k"
_MATH: Final = "EleutherAI/hendrycks_math"
_MMLU: Final = LocalFiles(("mmlu.zip", "data"), "mmlu", mmlu_rows)
_LIVECODEBENCH: Final = "livecodebench/code_generation_lite"
_MBPP: Final = "google-research-datasets/mbpp"
_BIGCODEBENCH: Final = LocalFiles(("BigCodeBench.jsonl.gz", "BigCodeBench.jsonl"), "bigcodebench")
_BIGCODEBENCH_RELEASE: Final = "v0.1.4"

BENCHMARKS: Final[Mapping[str, Benchmark]] = MappingProxyType(
    {
        "math": Benchmark(
            {
                "test": Split(
                    LocalFiles(("test.jsonl",), "math"), HubDataset(_MATH, "test", MATH_SUBJECTS)
                ),
                "train": Split(
                    LocalFiles(("train_prm800k_split.jsonl",), "math"),
                    HubDataset(_MATH, "train", MATH_SUBJECTS),
                ),
                "prm800k": Split(LocalFiles(("train_prm800k_split.jsonl",), "math"), None),
            },
            readers.math,
        ),
        "math500": Benchmark(
            {
                "test": Split(
                    LocalFiles(("math500.jsonl",), "math"),
                    HubDataset("HuggingFaceH4/MATH-500", "test"),
                )
            },
            readers.math,
        ),
        "gsm8k": Benchmark(
            {
                split: Split(
                    LocalFiles((f"{split}.jsonl",), "gsm8k"), HubDataset(_GSM8K, split, ("main",))
                )
                for split in ("test", "train")
            },
            readers.gsm8k,
        ),
        "mmlu": Benchmark(
            {
                "test": Split(_MMLU, HubDataset("cais/mmlu", "test", ("all",))),
                "val": Split(_MMLU, HubDataset("cais/mmlu", "validation", ("all",))),
                "dev": Split(_MMLU, HubDataset("cais/mmlu", "dev", ("all",))),
                "auxiliary_train": Split(
                    _MMLU, HubDataset("cais/mmlu", "auxiliary_train", ("all",))
                ),
            },
            readers.mmlu,
        ),
        "aime24": Benchmark(
            {
                "test": Split(
                    LocalFiles(("aime24.jsonl",), "aime"),
                    HubDataset("HuggingFaceH4/aime_2024", "train"),
                )
            },
            readers.aime24,
        ),
        "aime25": Benchmark(
            {
                "test": Split(
                    LocalFiles(("aime25.jsonl",), "aime"),
                    HubDataset("yentinglin/aime_2025", "train"),
                )
            },
            readers.aime25,
        ),
        "gpqa-diamond": Benchmark(
            {
                "diamond": Split(
                    LocalFiles(("gpqa_diamond.zip", "dataset.zip", "gpqa.zip"), "gpqa", gpqa_rows),
                    HubDataset("Idavidrein/gpqa", "train", ("gpqa_diamond",)),
                )
            },
            readers.gpqa,
        ),
        "humaneval": Benchmark(
            {
                "test": Split(
                    LocalFiles(("HumanEval.jsonl.gz", "HumanEval.jsonl"), "humaneval"),
                    HubDataset("openai/openai_humaneval", "test"),
                )
            },
            code_readers.humaneval,
        ),
        "mbpp": Benchmark(
            {
                **{
                    split: Split(
                        LocalFiles(("mbpp.jsonl",), "mbpp"), HubDataset(_MBPP, split, ("full",))
                    )
                    for split in ("test", "validation", "train", "prompt")
                },
                "sanitized": Split(
                    LocalFiles(("sanitized-mbpp.json",), "mbpp"),
                    HubDataset(_MBPP, "test", ("sanitized",)),
                ),
            },
            code_readers.mbpp,
        ),
        "bigcodebench": Benchmark(
            {
                "complete": Split(
                    _BIGCODEBENCH, HubDataset("bigcode/bigcodebench", _BIGCODEBENCH_RELEASE)
                ),
                "instruct": Split(
                    _BIGCODEBENCH, HubDataset("bigcode/bigcodebench", _BIGCODEBENCH_RELEASE)
                ),
                "hard": Split(
                    LocalFiles(
                        ("BigCodeBench-Hard.jsonl.gz", "BigCodeBench-Hard.jsonl"), "bigcodebench"
                    ),
                    HubDataset("bigcode/bigcodebench-hard", _BIGCODEBENCH_RELEASE),
                ),
            },
            code_readers.bigcodebench,
        ),
        "rlpr": Benchmark(
            {
                "train": Split(
                    LocalFiles(("rlpr_train.parquet", "rlpr_train.jsonl"), "rlpr"),
                    HubDataset("openbmb/RLPR-Train-Dataset"),
                )
            },
            readers.rlpr,
        ),
        "livecodebench": Benchmark(
            {
                "release_v1": Split(
                    LocalFiles(("lcb_v1_public.jsonl", "test.jsonl"), "livecodebench_v1"),
                    HubDataset(_LIVECODEBENCH, file="test.jsonl"),
                ),
                "v6": Split(
                    LocalFiles(("test6.jsonl",), "livecodebench_v6"),
                    HubDataset(_LIVECODEBENCH, file="test6.jsonl"),
                ),
            },
            code_readers.livecodebench,
        ),
    }
)
"""Every benchmark that can be named, with what it is called on this machine and on the hub."""


class BenchmarkSplit(NamedTuple):
    """A benchmark and one of its splits."""

    name: str
    benchmark: Benchmark
    split: str


def load_records(name: str, split: str | None = None, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark from the file or directory `data` or, without one, from the hub. A row that
    cannot be graded is an error."""
    return list(read_benchmark(name, split, data).whole().records)


def read_benchmark(name: str, split: str | None = None, data: Path | None = None) -> LoadedTasks:
    """As `load_records`, but what cannot be graded is left out and named."""
    chosen = choose(name, split)
    source = f"{data or chosen.name}, read as {chosen.name}:{chosen.split}"
    return build_tasks(_entries(chosen, data), source)


def choose(name: str, split: str | None = None) -> BenchmarkSplit:
    """The benchmark of that name, however it is spelt: MATH-500 is math500."""
    spelt = resolve_benchmark(name)
    if spelt is None:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[spelt]
    split = split or next(iter(benchmark.splits))
    if split not in benchmark.splits:
        raise ConfigError(f"{spelt} has no split {split!r}; it has {', '.join(benchmark.splits)}")
    return BenchmarkSplit(spelt, benchmark, split)


def resolve_benchmark(name: str) -> str | None:
    """Return the canonical name of a benchmark; None if it is unknown."""
    return _SPELT.get(_folded(name))


def _folded(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")


_SPELT = {_folded(name): name for name in BENCHMARKS}


def _entries(chosen: BenchmarkSplit, data: Path | None) -> Iterator[TaskEntry]:
    for row in _rows(chosen, data):
        yield TaskEntry(row.where, partial(chosen.benchmark.read, row, chosen.split))


def _rows(chosen: BenchmarkSplit, data: Path | None) -> Iterator[DatasetRow]:
    source = chosen.benchmark.splits[chosen.split]
    if data is not None:
        return source.local.rows(data)
    if source.hub is None:
        raise ConfigError(
            f"{chosen.name}:{chosen.split} is not on the hub; name the directory that has its file"
        )
    return source.hub.rows()
