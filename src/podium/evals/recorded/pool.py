"""Recorded pools: workers that reply what was recorded, so that routers are trained and compared
on real outcomes with no key and no model.

    pool = recorded_pool("livecodebench-recorded", data=Path("benchmarks"))
    pool.ensemble, pool.tasks

A recorded worker knows the questions of its suite and nothing else. Where the records hold its
words, it replies them; else it replies which answer that was, by a name from which nobody can
tell whether it is right. Where a question was answered several times, each repeat of a task is
the next of those answers.

Which files hold records is `podium.evals.recorded.files`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from podium.conductor import RouterConductor
from podium.engine import RetryPolicy
from podium.errors import RequestRefused, UsageError
from podium.evals.ensemble import Ensemble
from podium.evals.occasion import current_repeat, note_recalled
from podium.evals.recorded.files import Recording, read_gsm8k, read_livecodebench, read_mmlu
from podium.pool import Pool, WorkerProfile
from podium.request import Reply, Request
from podium.task import Grader, Task
from podium.tasks.mix import rank
from podium.worker import Worker

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
        note_recalled()  # how long it took is not known
        return Reply(answer.text or _named(self.profile.name, recording), model=self.profile.model)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPool:
    """The workers and the tasks of one recorded suite; `tries` is how often each question was
    answered by each worker."""

    workers: tuple[RecordedWorker, ...]
    tasks: tuple[Task, ...]
    tries: int

    @property
    def ensemble(self) -> Ensemble:
        """Who takes part in an evaluation. Nobody here can plan, so questions are handed on."""
        return Ensemble(
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
        recordings = sorted(recordings, key=lambda found: rank(found.id, seed))[:limit]
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
