"""The workers and conductors that take part in an evaluation.

    async with open_setup(settings, os.environ, cache=cache) as setup:
        ...

Workers are those of the settings, or the études' perfect ones. A cache may answer every call, the
conductor's included. Runs of an evaluation are not written to the store.

A recorded suite has workers that replay results of real models, so that no API key is needed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from podium._util.files import sha256_file
from podium._util.lab import lab_extra
from podium._version import __version__
from podium.client.assembly import assemble, connect_endpoints, default_options
from podium.conductors import Conductor, Length, ModelConductor, RouterConductor
from podium.conductors.evolved.turns import PARAMETERS
from podium.config import ConductorSettings, Settings, WorkerSettings
from podium.core.errors import ConfigError, RequestRefused, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.task import Grader, Task
from podium.core.worker import Worker
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.evals.sample import (
    CountedWorker,
    EvalContext,
    RepeatCachedWorker,
    count_cached_call,
    current_repeat,
)
from podium.tasks import load_records
from podium.tasks.suites import seeded_rank
from podium.workers import Http
from podium.workers.cached import ReplyCache
from podium.workers.local import weights

ADAPTER_OPTIONS: Final = ("adapter", "adapter_scale")
"""A worker's options that turn a base model into a trained one."""

LLAMACPP_SLOTS: Final = 4
"""Requests that llama.cpp works on at a time."""

BASELINE_PROMPTS: Final[tuple[Length, ...]] = ("compact", "full")
"""Prompts for a model that was not trained to plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSetup:
    """Workers by name with their pool, the conductor, and options for every run.

    `baseline_conductors` are the conductor's model without its training, by prompt; empty if the
    conductor is no model. `calls` counts calls by worker. `fingerprint` changes with any worker,
    model or adapter.
    """

    workers: Mapping[str, Worker]
    pool: Pool
    conductor: Conductor
    baseline_conductors: Mapping[str, Conductor] = field(default_factory=dict)
    options: Options = Options()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    calls: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""

    def context(self, seed: int) -> EvalContext:
        """Return the context that all strategies share."""
        call_policy = CallPolicy(self.retry)
        return EvalContext(
            workers=self.workers, call_policy=call_policy, options=self.options, seed=seed
        )

    def with_flaky_workers(self, share: float, seed: int) -> EvalSetup:
        """Return a setup whose specialists decline that share of requests."""
        with lab_extra():
            from podium_lab.etudes import FAMILIES, FlakyWorker
        families = {family.value for family in FAMILIES}
        workers = {
            name: FlakyWorker(worker, share, seed) if name in families else worker
            for name, worker in self.workers.items()
        }
        return replace(self, workers=workers)


@asynccontextmanager
async def open_setup(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    cache: ReplyCache | None = None,
    oracle: bool = False,
    baseline_conductor: WorkerSettings | None = None,
) -> AsyncIterator[EvalSetup]:
    """Connect the workers and the conductor, and close them at the end.

    With `oracle`, perfect workers replace the pool's. `baseline_conductor` plans without training;
    by default it is the conductor's model without its adapter.
    """
    calls = Counter[str]()

    def counted(worker: Worker, fingerprint: str) -> Worker:
        worker = CountedWorker(worker, calls)
        return (
            worker if cache is None else RepeatCachedWorker(worker, cache, fingerprint=fingerprint)
        )

    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        baseline_conductors = dict[str, Conductor]()
        base = baseline_conductor or remove_adapter(settings.conductor.worker)
        if base is not None:
            base = _limit_concurrency(base)
            planner = connect_endpoints(base, environment, http)
            if hasattr(planner, "close"):
                stack.push_async_callback(planner.close)
            baseline_conductors = _baseline_conductors(
                counted(planner, worker_fingerprint(base)), settings.conductor
            )
        conductor, trained = assembly.conductor, settings.conductor.worker
        if isinstance(conductor, ModelConductor) and trained is not None:
            conductor.worker = counted(conductor.worker, worker_fingerprint(trained))
        if oracle:
            with lab_extra():
                from podium_lab.etudes.workers import oracle_workers
            workers: Sequence[Worker] = [
                counted(worker, __version__) for worker in oracle_workers()
            ]
            pool = Pool(tuple(worker.profile for worker in workers))
        else:
            workers = [
                counted(worker, worker_fingerprint(settings[worker.profile.name]))
                for worker in assembly.workers
            ]
            pool = assembly.pool
        yield EvalSetup(
            workers={worker.profile.name: worker for worker in workers},
            pool=pool,
            conductor=conductor,
            baseline_conductors=baseline_conductors,
            options=replace(default_options(settings), budget=settings.budget),
            retry=settings.retry,
            calls=calls,
            fingerprint=_fingerprint(settings, base, oracle=oracle),
        )


def _fingerprint(settings: Settings, base: WorkerSettings | None, *, oracle: bool) -> str:
    """Hash everything that decides the replies and plans of an evaluation."""
    conductor, flow = settings.conductor, settings.conductor.workflow
    workers = () if oracle else settings.workers
    used = [worker for worker in (*workers, conductor.worker, base) if worker is not None]
    known: tuple[object, ...] = (
        [(_profile_document(worker.profile), worker_fingerprint(worker)) for worker in used],
        (conductor.kind, conductor.max_steps, conductor.temperature, conductor.prompt),
        (conductor.few_shot, conductor.fallback, flow and sha256_file(flow)),
        (settings.share_question, settings.mask_names, settings.budget),
    )
    if conductor.coordinator is not None:
        known += (sha256_file(conductor.coordinator / PARAMETERS), conductor.rounds)
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


def _profile_document(profile: WorkerProfile) -> dict[str, object]:
    """Return a profile in a stable order: that of a set differs between processes."""
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}


def worker_fingerprint(worker: WorkerSettings) -> str:
    """Return what decides a worker's replies besides its profile.

    That includes the content of its adapter: the next training writes another one to the same
    name.
    """
    adapter = worker.options.get("adapter")
    sums = [sha256_file(file) for file in _adapter_files(str(adapter), worker)] if adapter else []
    return json.dumps([worker.base_url, dict(worker.options), sums], sort_keys=True, default=str)


def _adapter_files(adapter: str, worker: WorkerSettings) -> list[Path]:
    path = Path(adapter).expanduser()
    if worker.profile.provider == "llamacpp":
        path = weights.find(adapter).path
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def remove_adapter(trained: WorkerSettings | None) -> WorkerSettings | None:
    """Return the conductor's model as it was before training."""
    if trained is None:
        return None
    bare = {key: value for key, value in trained.options.items() if key not in ADAPTER_OPTIONS}
    profile = replace(trained.profile, name=f"{trained.profile.name}-baseline")
    return replace(trained, profile=profile, options=bare)


def _limit_concurrency(worker: WorkerSettings) -> WorkerSettings:
    """Queue calls before llama.cpp: the time limit of a call runs while it waits inside."""
    profile = worker.profile
    if profile.provider != "llamacpp" or profile.limits.concurrency is not None:
        return worker
    limits = replace(profile.limits, concurrency=LLAMACPP_SLOTS)
    return replace(worker, profile=replace(profile, limits=limits))


def _baseline_conductors(worker: Worker, conductor: ConductorSettings) -> dict[str, Conductor]:
    """Return a conductor for each prompt of the baseline model."""
    return {
        prompt: ModelConductor(
            worker,
            prompt=prompt,
            temperature=conductor.temperature,
            fallback=conductor.fallback,
            name=f"baseline-conductor:{prompt}",
        )
        for prompt in BASELINE_PROMPTS
    }


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
        question = "\n\n".join(message.text for message in request.messages)
        recording = self._recordings.get(question)
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
