"""Suites by name or by the path of a file, and the paper's mix of training problems.

Any generator of reasoning-gym is a suite, such as `reasoning-gym:countdown`. An answer is right if
the generator gives it the full score. Some generators evaluate what they are given as an
expression, so that is done in the sandbox.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium._util.lab import ETUDES, EVERYDAY, EVERYDAY_100, lab_extra
from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks.answers import MAX_ANSWER_CHARS, extract_answer, nearest, render_prompt
from podium.tasks.benchmarks import BENCHMARKS, load_records, read_benchmark, resolve_benchmark
from podium.tasks.readers import import_optional
from podium.tasks.records import ENDINGS, LoadedTasks, TaskRecord, read_task_file
from podium.workers.sandbox import ProgramLimits, require_sandbox, run_program

GYM: Final = "reasoning-gym"
_COMPOSED: Final = "composite"
"""A mixture of other generators, which cannot be made by its name alone."""

_LIMITS: Final = ProgramLimits(cpu_seconds=30, wall_seconds=90.0, memory_bytes=4 * 1024**3)
"""Loading the package alone takes more than a second of processor time."""

_SCORER: Final = """\
import base64, json, pickle, sys
sent = json.loads(sys.stdin.read())
import reasoning_gym
dataset = reasoning_gym.create_dataset(sent["generator"], seed=sent["seed"], size=1)
entry = pickle.loads(base64.b64decode(sent["entry"]))
score = dataset.score_answer(answer=sent["answer"], entry=entry)
print("\\n" + ("full" if score >= 0.999 else "less"))
"""
_FULL: Final = "full"


@dataclass(frozen=True, slots=True)
class GymGrader:
    """Accepts a reply with the generator's full score.

    `entry` is the generator's data, None if it only compares with its answer.
    """

    generator: str
    seed: int
    answer: str
    entry: bytes | None

    async def __call__(self, answer: str) -> bool:
        """Score a reply in the sandbox; a failure or a timeout is wrong."""
        text = extract_answer(answer, tagged=True)
        if not text or len(text) > MAX_ANSWER_CHARS:
            return False
        if text == self.answer or self.entry is None:
            return text == self.answer
        sent = {
            "generator": self.generator,
            "seed": self.seed,
            "entry": base64.b64encode(self.entry).decode(),
            "answer": text,
        }
        async with aclosing(run_program(_SCORER, [json.dumps(sent)], limits=_LIMITS)) as outcomes:
            async for outcome in outcomes:
                return outcome.problem is None and outcome.output.split()[-1:] == [_FULL]
        return False


def gym_suite(generator: str, n: int, seed: int = 0) -> list[Task]:
    library, factory = (
        import_optional(module, f"the suite {GYM}:{generator}", "gym")
        for module in ("reasoning_gym", "reasoning_gym.factory")
    )
    known = sorted(set(factory.DATASETS) - {_COMPOSED})
    if generator not in known:
        hint = nearest(generator, known, GYM + ":{}")
        raise ConfigError(f"{GYM} has no generator {generator!r}; {hint}")
    made = library.create_dataset(generator, seed=seed, size=n)
    compares = type(made).score_answer is library.dataset.ProceduralDataset.score_answer
    if not compares:
        require_sandbox()
    return [_task(generator, seed, number, made[number], compares) for number in range(n)]


def _task(generator: str, seed: int, number: int, entry: Mapping[str, Any], compares: bool) -> Task:
    answer = "" if entry["answer"] is None else str(entry["answer"]).strip()
    return Task(
        id=f"{GYM}/{generator}/{seed}/{number}",
        question=render_prompt("generated", question=str(entry["question"]).strip()),
        grader=GymGrader(generator, seed, answer, None if compares else pickle.dumps(dict(entry))),
        kind=generator,
        answer=answer,
    )


DEFAULT_PER_SOURCE: Final = 240
"""Problems of each source, as in the paper."""

DEFAULT_MIX_SEED: Final = 42


class SplitShares(NamedTuple):
    """The shares of a benchmark's splits."""

    train: float = 0.6
    validation: float = 0.2
    test: float = 0.2


PAPER_SHARES: Final = SplitShares()


@dataclass(frozen=True, slots=True)
class TrainingMix:
    """Training records, balanced over their sources and mixed, and the held-out ones."""

    train: tuple[TaskRecord, ...]
    validation: tuple[TaskRecord, ...]
    test: tuple[TaskRecord, ...]


def load_source(name: str, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark by its name, with its splits where they are wanted: `mmlu:dev+val`."""
    benchmark, _, splits = name.partition(":")
    return [
        record
        for split in splits.split("+")
        for record in load_records(benchmark, split or None, data)
    ]


def build_mix(
    sources: Mapping[str, Sequence[TaskRecord]],
    *,
    per_source: int | None = DEFAULT_PER_SOURCE,
    seed: int = DEFAULT_MIX_SEED,
    shares: SplitShares = PAPER_SHARES,
) -> TrainingMix:
    """Divide each source, then take `per_source` of every training share; with None, as many as the
    smallest has."""
    if not sources:
        raise ConfigError("a mix needs at least one source")
    divided = {name: _divide(records, seed, shares) for name, records in sources.items()}
    smallest = min(divided, key=lambda name: len(divided[name].train))
    available = len(divided[smallest].train)
    wanted = available if per_source is None else per_source
    if not 0 < wanted <= available:
        raise ConfigError(
            f"the mix needs {wanted} problems of each source, and {smallest} has {available} to "
            f"train on ({shares.train:.0%} of its {len(sources[smallest])}); "
            f"ask for 1 to {available}, or bring more"
        )
    return TrainingMix(
        tuple(_shuffle([task for part in divided.values() for task in part.train[:wanted]], seed)),
        tuple(_shuffle([task for part in divided.values() for task in part.validation], seed)),
        tuple(task for part in divided.values() for task in part.test),
    )


def _divide(records: Sequence[TaskRecord], seed: int, shares: SplitShares) -> TrainingMix:
    if abs(sum(shares) - 1) > 1e-9 or min(shares) < 0:
        raise ConfigError(f"the shares of a mix must add up to 1, not {sum(shares):g}")
    shuffled = _shuffle(records, seed)
    train_end = round(len(shuffled) * shares.train)
    validation_end = train_end + round(len(shuffled) * shares.validation)
    return TrainingMix(
        tuple(shuffled[:train_end]),
        tuple(shuffled[train_end:validation_end]),
        tuple(shuffled[validation_end:]),
    )


def _shuffle(records: Sequence[TaskRecord], seed: int) -> list[TaskRecord]:
    return sorted(records, key=lambda record: seeded_rank(record.id, seed))


def seeded_rank(task_id: str, seed: int) -> bytes:
    """The place of a task in the order that a seed stands for."""
    return blake2b(f"{seed}\0{task_id}".encode(), digest_size=16).digest()


DEFAULT_ETUDES: Final = 1000
"""Tasks that are generated without a limit."""

NAMES: Final = (EVERYDAY_100, ETUDES, EVERYDAY, *BENCHMARKS, GYM)
"""Suites by name. Most have splits, as `mmlu:val`; reasoning-gym has generators."""


def load_suite(
    name: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    judge: Worker | None = None,
) -> list[Task]:
    """The tasks of a suite: `everyday-100`, `etudes`, `everyday`, a benchmark, a generator
    of reasoning-gym, or a user's own `.jsonl` or `.csv` file. A line of the file that is no task
    is an error.

    A benchmark comes from the file or directory `data` or, without one, from the hub. With a
    `limit` as many tasks are drawn by the seed; of what is generated the seed makes them.
    `judge` is the worker that decides where a task is graded by a model.
    """
    return list(
        read_suite(name, data=data, limit=limit, seed=seed, judge=judge).require_complete().tasks
    )


def read_suite(
    name: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    judge: Worker | None = None,
) -> LoadedTasks:
    """Read a suite as `load_suite` does, but skip lines that are no tasks.

    It is an error if nothing is left.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"the limit of a suite must be at least 1, not {limit}")
    text = os.fspath(name)
    kind, _, split = text.partition(":")
    if kind == ETUDES:
        with lab_extra():
            from podium_lab.etudes.tasks import etude_suite
        return LoadedTasks(tuple(etude_suite(limit or DEFAULT_ETUDES, seed, split or "test")))
    if kind == EVERYDAY:
        with lab_extra():
            from podium_lab.etudes.tasks import everyday_suite
        return LoadedTasks(_sample_tasks(everyday_suite(split or "test"), limit, seed))
    if kind == GYM:
        return LoadedTasks(tuple(gym_suite(split, limit or DEFAULT_ETUDES, seed)))
    if text == EVERYDAY_100:
        reading = read_task_file(Path(__file__).with_name(f"{EVERYDAY_100}.jsonl"))
    elif Path(text).suffix in ENDINGS:
        reading = read_task_file(Path(text), judge)
    elif resolve_benchmark(kind) is not None:
        reading = read_benchmark(kind, split or None, None if data is None else Path(data))
    else:
        raise ConfigError(
            f"there is no suite {text!r}: expected one of {', '.join(NAMES)}, or the path of a "
            f"{' or '.join(ENDINGS)} file"
        )
    return LoadedTasks(_sample_tasks(reading.tasks, limit, seed), reading.skipped)


def _sample_tasks(tasks: Sequence[Task], limit: int | None, seed: int) -> tuple[Task, ...]:
    if limit is None or limit >= len(tasks):
        return tuple(tasks)
    return tuple(sorted(tasks, key=lambda task: seeded_rank(task.id, seed))[:limit])
