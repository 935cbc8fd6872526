"""The training mix: as many problems of each benchmark, none of which is tested on.

The paper trains on 960 problems, 240 each of MATH-500, MMLU, RLPR and LiveCodeBench. Its code
splits each benchmark 60/20/20 and balances to the smallest training share, which is that of
LiveCodeBench: 60 % of 400. Here the order that decides is a hash of the seed and each task's id,
so that the same seed draws the same problems on every machine, however a file is sorted. These
are not the very problems that the paper's seed drew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from podium.core.errors import ConfigError
from podium.tasks.loaders import load_records
from podium.tasks.record import TaskRecord

PAPER_SOURCES: Final = ("math500", "mmlu:auxiliary_train", "rlpr", "livecodebench")
PAPER_SIZE: Final = 240
"""Problems of each source."""

PAPER_SEED: Final = 42


class Shares(NamedTuple):
    """How a benchmark is divided."""

    train: float = 0.6
    validation: float = 0.2
    test: float = 0.2


PAPER_SHARES: Final = Shares()


@dataclass(frozen=True, slots=True)
class Mix:
    """What is trained on, balanced over its sources and in an order that mixes them; and what of
    each source was kept apart."""

    train: tuple[TaskRecord, ...]
    validation: tuple[TaskRecord, ...]
    test: tuple[TaskRecord, ...]


def paper_mix(
    sources: Sequence[str] = PAPER_SOURCES,
    *,
    data: Path | None = None,
    each: int | None = PAPER_SIZE,
    seed: int = PAPER_SEED,
) -> Mix:
    """The mix of these benchmarks, from the directory `data` or else from the hub."""
    return build_mix({name: load_source(name, data) for name in sources}, each=each, seed=seed)


def load_source(name: str, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark by its name, with a split where one is wanted: `mmlu:auxiliary_train`."""
    benchmark, _, split = name.partition(":")
    return load_records(benchmark, split or None, data)


def build_mix(
    sources: Mapping[str, Sequence[TaskRecord]],
    *,
    each: int | None = PAPER_SIZE,
    seed: int = PAPER_SEED,
    shares: Shares = PAPER_SHARES,
) -> Mix:
    """Divide each source, then take `each` of every training share; with None, as many as the
    smallest has."""
    if not sources:
        raise ConfigError("a mix needs at least one source")
    divided = {name: _divide(records, seed, shares) for name, records in sources.items()}
    smallest = min(divided, key=lambda name: len(divided[name].train))
    available = len(divided[smallest].train)
    wanted = available if each is None else each
    if not 0 < wanted <= available:
        raise ConfigError(
            f"the mix needs {wanted} problems of each source, and {smallest} has {available} to "
            f"train on ({shares.train:.0%} of its {len(sources[smallest])}); "
            f"ask for 1 to {available}, or bring more"
        )
    return Mix(
        tuple(_shuffled([task for part in divided.values() for task in part.train[:wanted]], seed)),
        tuple(task for part in divided.values() for task in part.validation),
        tuple(task for part in divided.values() for task in part.test),
    )


def _divide(records: Sequence[TaskRecord], seed: int, shares: Shares) -> Mix:
    if abs(sum(shares) - 1) > 1e-9 or min(shares) < 0:
        raise ConfigError(f"the shares of a mix must add up to 1, not {sum(shares):g}")
    shuffled = _shuffled(records, seed)
    train_end = round(len(shuffled) * shares.train)
    validation_end = train_end + round(len(shuffled) * shares.validation)
    return Mix(
        tuple(shuffled[:train_end]),
        tuple(shuffled[train_end:validation_end]),
        tuple(shuffled[validation_end:]),
    )


def _shuffled(records: Sequence[TaskRecord], seed: int) -> list[TaskRecord]:
    return sorted(records, key=lambda record: rank(record.id, seed))


def rank(task_id: str, seed: int) -> bytes:
    """The place of a task in the order that a seed stands for."""
    return blake2b(f"{seed}\0{task_id}".encode(), digest_size=16).digest()
