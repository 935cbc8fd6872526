r"""The benchmarks that conductors are trained on and measured by, by name.

    math            MATH: test, train, and prm800k (train and 4,000 problems of the test split)
    math500         MATH-500
    gsm8k           GSM8K: test, train
    mmlu            MMLU: test, val, dev, auxiliary_train
    aime24, aime25  AIME of 2024 and 2025, both exams of the year
    gpqa-diamond    the Diamond questions of GPQA
    humaneval       HumanEval
    mbpp            MBPP: test, validation, train, prompt, and sanitized (of test)
    mbpp-one-test   MBPP with one of its tests in the question, graded on all
    livecodebench   LiveCodeBench: release_v1, and v6, which is what release 6 added
    bigcodebench    BigCodeBench: complete, instruct, hard
    rlpr            RLPR's training set, where the answer has at most 30 characters

Results of mathematics are asked for in `\boxed{}` and code in a Markdown block, which small models
write too; the paper asks for all in `<answer>` tags. What a row means is in `readers`. Which files
on this machine are understood, and what a benchmark is called on the hub, is in `benchmarks.toml`.
"""

from __future__ import annotations

import csv
import io
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from podium.core.errors import ConfigError
from podium.tasks import readers
from podium.tasks.readers import DatasetRow, HubDataset, LocalFiles
from podium.tasks.records import (
    LoadedTasks,
    TaskEntry,
    TaskRecord,
    build_tasks,
    json_lines,
    open_text,
)

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
    with _open_zip(path) as archive:
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
    with _open_zip(path) as archive:
        names = archive.namelist()
        table = next((name for name in names if name.endswith(GPQA_TABLE)), None)
        if table is None and len(names) != 1:
            raise ConfigError(f"{path}: expected {GPQA_TABLE} in it, or one file of JSON lines")
        name = table or names[0]
        try:
            text = archive.read(name, GPQA_PASSWORD).decode("utf-8")
        except (RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot open {name!r} in it: {error}") from error
    # Split by hand: the questions hold other characters that count as ends of lines.
    lines = (line.data for line in json_lines(path, iter(text.split("\n"))))
    found: Iterable[Any] = csv.DictReader(io.StringIO(text)) if table else lines
    for number, data in enumerate(found, start=1):
        yield DatasetRow(f"{path}, row {number}", number, data)


@contextmanager
def _open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise ConfigError(f"{path}: not a zip file: {error}") from error


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


ARCHIVES: Final = MappingProxyType({"mmlu_rows": mmlu_rows, "gpqa_rows": gpqa_rows})


def _read_benchmarks() -> dict[str, Benchmark]:
    text = resources.files(__package__).joinpath("benchmarks.toml").read_text("utf-8")
    return {name: _benchmark(table) for name, table in tomllib.loads(text).items()}


def _benchmark(table: Mapping[str, Any]) -> Benchmark:
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    inner = {key: {**shared, **value} for key, value in table.items() if isinstance(value, dict)}
    splits = {name: _split(name, keys) for name, keys in inner.items()}
    return Benchmark(splits, getattr(readers, shared["reader"]))


def _split(name: str, keys: Mapping[str, Any]) -> Split:
    archive = ARCHIVES.get(keys.get("archive", ""))
    local = LocalFiles(tuple(keys["files"]), keys["folder"], archive)
    if not keys["hub"]:
        return Split(local, None)
    configurations = tuple(keys.get("configurations", (None,)))
    hub = HubDataset(keys["hub"], keys.get("split", name), configurations, keys.get("file"))
    return Split(local, hub)


BENCHMARKS: Final[Mapping[str, Benchmark]] = MappingProxyType(_read_benchmarks())


def load_records(name: str, split: str | None = None, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark from the file or directory `data` or, without one, from the hub. A row that
    cannot be graded is an error."""
    return list(read_benchmark(name, split, data).require_complete().records)


def read_benchmark(name: str, split: str | None = None, data: Path | None = None) -> LoadedTasks:
    """As `load_records`, but what cannot be graded is left out and named."""
    spelt = resolve_benchmark(name)
    if spelt is None:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[spelt]
    split = split or next(iter(benchmark.splits))
    if split not in benchmark.splits:
        raise ConfigError(f"{spelt} has no split {split!r}; it has {', '.join(benchmark.splits)}")
    local, hub = benchmark.splits[split].local, benchmark.splits[split].hub
    if data is not None:
        rows = local.rows(data)
    elif hub is not None:
        rows = hub.rows()
    else:
        raise ConfigError(
            f"{spelt}:{split} is not on the hub; name the directory that has its file"
        )
    entries = (TaskEntry(row.where, partial(benchmark.read, row, split)) for row in rows)
    return build_tasks(entries, f"{data or spelt}, read as {spelt}:{split}")


def resolve_benchmark(name: str) -> str | None:
    """Return the canonical name of a benchmark, however it is spelt: MATH-500 is math500."""
    return next(
        (known for known in BENCHMARKS if _normalize_name(known) == _normalize_name(name)), None
    )


def _normalize_name(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")
