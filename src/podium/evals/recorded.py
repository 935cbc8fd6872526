"""Recorded outcomes: what real models once replied, so that strategies can be measured with no key.

    pool      workers that reply what was recorded of them, and the tasks that they know
    files     the files that records come from, and what stands in them

Replies that Podium itself keeps from one evaluation to the next are `podium.providers.cached`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from podium.conductors import RouterConductor
from podium.core.errors import ConfigError, RequestRefused, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.task import Grader, Task
from podium.core.worker import Worker
from podium.engine import RetryPolicy
from podium.evals.context import count_cached_call, current_repeat
from podium.evals.setup import EvalSetup
from podium.tasks import load_records
from podium.tasks.suites import seeded_rank

BENCHMARKS_VARIABLE: Final = "PODIUM_BENCHMARKS"
"""Names the directory with the benchmarks' files, where no option does."""

LIVECODEBENCH: Final = ("livecodebench_results", "codegen_2024_02_26.json")
ROUTELLM: Final = ("routellm_results", "routellm_evals.zip")
LIVECODEBENCH_TRIES: Final = 10
_LONGEST_CELL: Final = 2**24


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """Of a worker's answers to a question, how many were right; their words, where there is one
    and it was recorded."""

    right: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One question, and how the workers answered it, each of them `tries` times."""

    id: str
    question: str
    answers: Mapping[str, RecordedAnswer]
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
    answers: dict[str, dict[str, RecordedAnswer]] = {}
    difficulty: dict[str, str] = {}
    platform: dict[str, str] = {}
    for row in rows:
        answers.setdefault(row.question, {})[row.model] = RecordedAnswer(row.right)
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
        answers[worker.rpartition("/")[2]] = RecordedAnswer(int(cell == "True"), text)
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


PROVIDER: Final = "recorded"
"""The provider of a worker that replies what was recorded."""

WORDLESS: Final = "recorded-outcomes"
"""The same where only the outcome was recorded, and no words."""

READERS: Final = MappingProxyType(
    {
        "livecodebench-recorded": read_livecodebench,
        "mmlu-recorded": read_mmlu,
        "gsm8k-recorded": read_gsm8k,
    }
)
"""Every recorded suite by its name."""

Part = Literal["train", "test"]
TESTED: Final = 5
"""Every so many questions, one is in the split `test` and the others are in `train`."""


class RecordedWorker(Worker):
    """Replies to each question what was recorded of one model, and refuses all else."""

    def __init__(self, profile: WorkerProfile, recordings: Mapping[str, Recording]) -> None:
        self.profile = profile
        self._recordings = recordings

    async def reply(self, request: Request) -> Reply:
        """The answer that was recorded for this repeat of the question."""
        asked = "\n\n".join(message.text for message in request.messages)
        recording = self._recordings.get(asked)
        if recording is None:
            raise RequestRefused(
                f"{self.profile.name} is recorded, and this is none of the questions that it was "
                f"recorded with; use strategies that hand a question on as it is, such as routers",
            )
        answer = recording.answers.get(self.profile.name)
        if answer is None:
            raise RequestRefused(f"no answer of {self.profile.name} to {recording.id} was recorded")
        count_cached_call()  # how long it took is not known
        return Reply(answer.text or _named(self.profile.name, recording), model=self.profile.model)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPool:
    """The workers and the tasks of one recorded suite; `tries` is how often each question was
    answered by each worker."""

    workers: tuple[RecordedWorker, ...]
    tasks: tuple[Task, ...]
    tries: int

    @property
    def setup(self) -> EvalSetup:
        """Who takes part in an evaluation. Nobody here can plan, so questions are handed on."""
        return EvalSetup(
            workers={worker.profile.name: worker for worker in self.workers},
            pool=Pool(tuple(worker.profile for worker in self.workers)),
            conductor=RouterConductor(),
            retry=RetryPolicy(attempts=1),
        )


def is_recorded(suite: str) -> bool:
    """Whether that is the name of a recorded suite, which brings its workers along."""
    return suite.partition(":")[0] in READERS


def recorded_pool(
    suite: str, *, data: Path | None = None, limit: int | None = None, seed: int = 0
) -> RecordedPool:
    """A recorded suite by its name; `:train` and `:test` are four fifths and one fifth of it.

    `data` is the directory that the benchmarks' files are in, as everywhere. With a limit, as
    many questions are drawn by the seed.
    """
    name, _, part = suite.partition(":")
    if name not in READERS or part not in ("", "train", "test"):
        raise UsageError(
            f"there is no recorded suite {suite!r}; there are {', '.join(READERS)}, each with the "
            f"splits train and test"
        )
    recordings = [found for found in READERS[name](data) if not part or _part(found.id) == part]
    if limit is not None and limit < len(recordings):
        recordings = sorted(recordings, key=lambda found: seeded_rank(found.id, seed))[:limit]
    return _made(recordings)


def _made(recordings: Sequence[Recording]) -> RecordedPool:
    by_question = {recording.question: recording for recording in recordings}
    names = sorted({worker for recording in recordings for worker in recording.answers})
    worded = all(answer.text for found in recordings for answer in found.answers.values())
    provider = PROVIDER if worded else WORDLESS
    workers = tuple(
        RecordedWorker(
            WorkerProfile(name=name, provider=provider, model=name, description=name), by_question
        )
        for name in names
    )
    tasks = tuple(
        Task(
            id=recording.id,
            question=recording.question,
            grader=_grader(recording),
            kind=recording.kind,
            difficulty=recording.difficulty,
        )
        for recording in recordings
    )
    return RecordedPool(workers, tasks, max(recording.tries for recording in recordings))


def _grader(recording: Recording) -> Grader:
    """Knows by the recorded answers which replies are right."""
    right = {
        answer.text or _named(worker, recording, draw): draw < answer.right
        for worker, answer in recording.answers.items()
        for draw in range(recording.tries)
    }

    async def grade(answer: str) -> bool:
        return right.get(answer, False)

    return grade


def _named(worker: str, recording: Recording, draw: int | None = None) -> str:
    """What a worker replies whose words were not recorded."""
    number = _draw(recording) if draw is None else draw
    return f"answer {number + 1} of {worker} to {recording.id}, as recorded"


def _draw(recording: Recording) -> int:
    """Which of the recorded answers this repeat is.

    Records count how many of the answers were right and not which: those with the lowest numbers
    are taken to be. A question begins with a number of its own, so that one repeat alone is a
    fair draw, and all workers with the same, so that the best worker for a question is no luckier
    in the tasks than in the records.
    """
    digest = hashlib.blake2b(recording.id.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + current_repeat()) % recording.tries


def _part(question: str) -> Part:
    digest = hashlib.blake2b(f"part\0{question}".encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest) % TESTED == 0 else "train"


__all__ = ["RecordedPool", "is_recorded", "recorded_pool"]
