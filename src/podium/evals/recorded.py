"""Workers that replay recorded results of real models, so that no API key is needed."""

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
from podium.evals.sample import count_cached_call, current_repeat
from podium.evals.setup import EvalSetup
from podium.tasks import load_records
from podium.tasks.suites import seeded_rank

BENCHMARKS_VARIABLE: Final = "PODIUM_BENCHMARKS"
"""The variable with the directory of the benchmarks' files."""

LIVECODEBENCH: Final = ("livecodebench_results", "codegen_2024_02_26.json")
ROUTELLM: Final = ("routellm_results", "routellm_evals.zip")
LIVECODEBENCH_TRIES: Final = 10
_LONGEST_CELL: Final = 2**24


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The number of right answers of a worker to a question, and the text if it was recorded."""

    right: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A question, and the workers' answers, `tries` of each."""

    id: str
    question: str
    answers: Mapping[str, RecordedAnswer]
    tries: int = 1
    kind: str = ""
    difficulty: str | None = None


def read_livecodebench(data: Path | None) -> list[Recording]:
    """Read the share of ten answers that passed, for each model and question.

    One question is not in release 1 and has only its name. One model lacks one outcome.
    """
    directory = _directory(data)
    path = _found(directory, *LIVECODEBENCH)
    answers: dict[str, dict[str, RecordedAnswer]] = {}
    facts: dict[str, tuple[str, str]] = {}
    try:
        raw = path.read_bytes()
        written = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        for row in written["performances"]:
            question = str(row["question_id"])
            answer = RecordedAnswer(_right_answers(row))
            answers.setdefault(question, {})[str(row["model"])] = answer
            facts[question] = (str(row["platform"]), str(row["difficulty"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: expected the results that the LiveCodeBench site shows, a list of "
            f"`performances`: {error}"
        ) from error
    texts = {record.id: record for record in load_records("livecodebench", data=directory)}
    return [
        Recording(
            id=(identity := f"livecodebench/{question}"),
            question=texts[identity].question if identity in texts else question,
            answers=answers[question],
            tries=LIVECODEBENCH_TRIES,
            kind=facts[question][0],
            difficulty=facts[question][1],
        )
        for question in sorted(answers)
    ]


def _right_answers(row: Mapping[str, Any]) -> int:
    percent = float(row["pass@1"])
    right = percent * LIVECODEBENCH_TRIES / 100
    if not right.is_integer() or not 0 <= right <= LIVECODEBENCH_TRIES:
        raise ValueError(f"pass@1 of {row['question_id']} is {percent}, not a share of ten answers")
    return int(right)


def read_mmlu(data: Path | None) -> list[Recording]:
    """Read whether two models were right on MMLU's test split; duplicates are dropped."""
    return _unique(
        _recording(f"mmlu/{_subject(name)}/{number}", row, name, _subject(name))
        for name, number, row in _routellm(data, "mmlu/")
    )


def read_gsm8k(data: Path | None) -> list[Recording]:
    """Read the answers of two models on GSM8K's test split."""
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
    """Yield table name, row number and cells of every row in that folder of the archive."""
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
        position / end
        for position in (directory / folder, directory)
        for end in (f"{name}.gz", name)
    ]
    for path in tried:
        if path.is_file():
            return path
    raise ConfigError(f"{directory}: expected {folder}/{name} or {folder}/{name}.gz in it")


PROVIDER: Final = "recorded"
"""The provider of a worker that replays replies."""

WORDLESS: Final = "recorded-outcomes"
"""The provider of a worker with recorded outcomes and no texts."""

READERS: Final = MappingProxyType(
    {
        "livecodebench-recorded": read_livecodebench,
        "mmlu-recorded": read_mmlu,
        "gsm8k-recorded": read_gsm8k,
    }
)
"""Readers of recorded suites by name."""

Part = Literal["train", "test"]
TESTED: Final = 5
"""One of so many questions is in the split `test`, the others in `train`."""


class RecordedWorker(Worker):
    """Replays the replies of one model, and rejects all other questions."""

    def __init__(self, profile: WorkerProfile, recordings: Mapping[str, Recording]) -> None:
        self.profile = profile
        self._recordings = recordings

    async def reply(self, request: Request) -> Reply:
        """Return the recorded answer for this repeat."""
        asked = "\n\n".join(message.text for message in request.messages)
        recording = self._recordings.get(asked)
        if recording is None:
            raise RequestRefused(
                f"{self.profile.name} only replays records, and this question has no record; use "
                f"strategies that send the question unchanged, such as routers",
            )
        answer = recording.answers.get(self.profile.name)
        if answer is None:
            raise RequestRefused(f"no answer of {self.profile.name} to {recording.id} was recorded")
        count_cached_call()  # its latency is unknown
        return Reply(answer.text or _named(self.profile.name, recording), model=self.profile.model)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPool:
    """The workers and tasks of one recorded suite, and the answers per worker and question."""

    workers: tuple[RecordedWorker, ...]
    tasks: tuple[Task, ...]
    tries: int

    @property
    def setup(self) -> EvalSetup:
        """The setup of an evaluation; its conductor routes, as no worker can plan."""
        return EvalSetup(
            workers={worker.profile.name: worker for worker in self.workers},
            pool=Pool(tuple(worker.profile for worker in self.workers)),
            conductor=RouterConductor(),
            retry=RetryPolicy(attempts=1),
        )


def is_recorded(suite: str) -> bool:
    """True for a recorded suite, which has its own workers."""
    return suite.partition(":")[0] in READERS


def recorded_pool(
    suite: str, *, data: Path | None = None, limit: int | None = None, seed: int = 0
) -> RecordedPool:
    """Read a recorded suite; `:train` and `:test` are four fifths and one fifth of it.

    `data` is the directory of the benchmarks' files. With a `limit`, the seed draws questions.
    """
    name, _, part = suite.partition(":")
    if name not in READERS or part not in ("", "train", "test"):
        raise UsageError(
            f"unknown recorded suite {suite!r}; expected {', '.join(READERS)}, each with the "
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
    """Grade by the recorded answers."""
    right = {
        answer.text or _named(worker, recording, draw): draw < answer.right
        for worker, answer in recording.answers.items()
        for draw in range(recording.tries)
    }

    async def grade(answer: str) -> bool:
        return right.get(answer, False)

    return grade


def _named(worker: str, recording: Recording, draw: int | None = None) -> str:
    """Return the reply of a worker without recorded texts."""
    number = _draw(recording) if draw is None else draw
    return f"answer {number + 1} of {worker} to {recording.id}, as recorded"


def _draw(recording: Recording) -> int:
    """Return which of the recorded answers this repeat is.

    Records count right answers and do not say which; the lowest numbers count as right. Each
    question starts at its own number, so that a single repeat is a fair draw; all workers start
    at the same one, so that the best worker per question is as good as in the records.
    """
    digest = hashlib.blake2b(recording.id.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + current_repeat()) % recording.tries


def _part(question: str) -> Part:
    digest = hashlib.blake2b(f"part\0{question}".encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest) % TESTED == 0 else "train"
