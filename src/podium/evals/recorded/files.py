"""The files that recorded outcomes come from, and what stands in them.

    livecodebench-recorded    the LiveCodeBench site's results of 2024-02-26, 16 models, 10 answers
                              to each question; the questions from LiveCodeBench release 1
    mmlu-recorded             RouteLLM's results of two models on MMLU
    gsm8k-recorded            RouteLLM's results of two models on GSM8K, with their words

None of them is part of Podium. Name the directory that they are in, or set PODIUM_BENCHMARKS.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.errors import ConfigError
from podium.tasks import load_records

BENCHMARKS_VARIABLE: Final = "PODIUM_BENCHMARKS"
"""Names the directory with the benchmarks' files, where no option does."""

LIVECODEBENCH: Final = ("livecodebench_results", "codegen_2024_02_26.json")
ROUTELLM: Final = ("routellm_results", "routellm_evals.zip")
LIVECODEBENCH_TRIES: Final = 10
_LONGEST_CELL: Final = 2**24


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a worker's answers to a question, how many were right; their words, where there is one
    and it was recorded."""

    right: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One question, and how the workers answered it, each of them `tries` times."""

    id: str
    question: str
    answers: Mapping[str, Answer]
    tries: int = 1
    kind: str = ""
    difficulty: str | None = None


def read_livecodebench(data: Path | None) -> list[Recording]:
    """The share of ten answers that passed, for each model and question.

    One of the questions is not in release 1; it is known by its name alone. One model has no
    outcome for one question.
    """
    directory = _directory(data)
    path = _found(directory, *LIVECODEBENCH)
    try:
        raw = path.read_bytes()
        written = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        rows = [_performance(row) for row in written["performances"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: expected the results that the LiveCodeBench site shows, a list of "
            f"`performances`: {error}"
        ) from error
    texts = {record.id: record for record in load_records("livecodebench", data=directory)}
    answers: dict[str, dict[str, Answer]] = {}
    difficulty: dict[str, str] = {}
    platform: dict[str, str] = {}
    for row in rows:
        answers.setdefault(row.question, {})[row.model] = Answer(row.right)
        difficulty[row.question], platform[row.question] = row.difficulty, row.platform
    return [
        Recording(
            id=(identity := f"livecodebench/{question}"),
            question=texts[identity].question if identity in texts else question,
            answers=answers[question],
            tries=LIVECODEBENCH_TRIES,
            kind=platform[question],
            difficulty=difficulty[question],
        )
        for question in sorted(answers)
    ]


@dataclass(frozen=True, slots=True)
class _Performance:
    question: str
    model: str
    right: int
    difficulty: str
    platform: str


def _performance(row: Mapping[str, Any]) -> _Performance:
    percent = float(row["pass@1"])
    right = percent * LIVECODEBENCH_TRIES / 100
    if not right.is_integer() or not 0 <= right <= LIVECODEBENCH_TRIES:
        raise ValueError(f"pass@1 of {row['question_id']} is {percent}, not a share of ten answers")
    return _Performance(
        str(row["question_id"]),
        str(row["model"]),
        int(right),
        str(row["difficulty"]),
        str(row["platform"]),
    )


def read_mmlu(data: Path | None) -> list[Recording]:
    """Whether each of two models was right on each question of MMLU's test split. Of a question
    that MMLU has in two subjects, the first is taken."""
    return _unique(
        _recording(f"mmlu/{_subject(name)}/{number}", row, name, _subject(name))
        for name, number, row in _routellm(data, "mmlu/")
    )


def read_gsm8k(data: Path | None) -> list[Recording]:
    """What two models answered on each question of GSM8K's test split, and whether rightly."""
    return _unique(
        _recording(f"gsm8k/{number}", row, name, "gsm8k")
        for name, number, row in _routellm(data, "gsm8k/")
    )


def _recording(identity: str, row: Mapping[str, str], name: str, kind: str) -> Recording:
    answers = {}
    for worker, cell in row.items():
        if worker == "prompt" or worker.endswith("_response"):
            continue
        if cell not in ("True", "False"):
            raise ConfigError(f"{name}: expected True or False for {worker}, not {cell!r}")
        text = row.get(f"{worker}_response", "")
        answers[worker.rpartition("/")[2]] = Answer(int(cell == "True"), text)
    return Recording(id=identity, question=row["prompt"].strip(), answers=answers, kind=kind)


def _unique(recordings: Iterator[Recording]) -> list[Recording]:
    found: dict[str, Recording] = {}
    for recording in recordings:
        found.setdefault(recording.question, recording)
    return list(found.values())


def _routellm(data: Path | None, folder: str) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Every row of the tables in that folder of the archive: the table, the row's number, and
    its cells by their columns."""
    path = _found(_directory(data), *ROUTELLM)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in sorted(archive.namelist()) if n.startswith(folder)]
            for name in names:
                with archive.open(name) as raw:
                    rows = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
                    for number, row in enumerate(rows, start=1):
                        if not row.get("prompt"):
                            raise ConfigError(f"{path}, {name}: row {number} has no prompt")
                        yield name, number, row
    except (zipfile.BadZipFile, csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as RouteLLM's results: {error}") from error


def _subject(name: str) -> str:
    return Path(name).stem.removeprefix("mmlu_")


def _directory(data: Path | None) -> Path:
    named = data or os.environ.get(BENCHMARKS_VARIABLE)
    if named is None:
        raise ConfigError(
            f"recorded outcomes are not part of Podium: name the directory with their files by "
            f"--data, or set {BENCHMARKS_VARIABLE}"
        )
    return Path(named)


def _found(directory: Path, folder: str, name: str) -> Path:
    tried = [
        place / end for place in (directory / folder, directory) for end in (f"{name}.gz", name)
    ]
    for path in tried:
        if path.is_file():
            return path
    raise ConfigError(f"{directory}: expected {folder}/{name} or {folder}/{name}.gz in it")
