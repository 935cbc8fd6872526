"""Reading a benchmark by its name, from files on this machine or from the hub."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podium.core.errors import ConfigError
from podium.tasks.benchmarks import BENCHMARKS, Benchmark
from podium.tasks.reading import Entry, Reading, read
from podium.tasks.record import TaskRecord
from podium.tasks.sources import Row


class Chosen(NamedTuple):
    """A benchmark and one of its splits."""

    name: str
    benchmark: Benchmark
    split: str


def load_records(name: str, split: str | None = None, data: Path | None = None) -> list[TaskRecord]:
    """A benchmark from the file or directory `data` or, without one, from the hub. A row that
    cannot be graded is an error."""
    return list(read_benchmark(name, split, data).whole().records)


def read_benchmark(name: str, split: str | None = None, data: Path | None = None) -> Reading:
    """As `load_records`, but what cannot be graded is left out and named."""
    chosen = choose(name, split)
    source = f"{data or chosen.name}, read as {chosen.name}:{chosen.split}"
    return read(_entries(chosen, data), source)


def choose(name: str, split: str | None = None) -> Chosen:
    """The benchmark of that name, however it is spelt: MATH-500 is math500."""
    spelt = benchmark_named(name)
    if spelt is None:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[spelt]
    split = split or next(iter(benchmark.splits))
    if split not in benchmark.splits:
        raise ConfigError(f"{spelt} has no split {split!r}; it has {', '.join(benchmark.splits)}")
    return Chosen(spelt, benchmark, split)


def benchmark_named(name: str) -> str | None:
    """How the benchmark is spelt here, None where there is none of that name."""
    return _SPELT.get(_folded(name))


def _folded(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")


_SPELT = {_folded(name): name for name in BENCHMARKS}


def _entries(chosen: Chosen, data: Path | None) -> Iterator[Entry]:
    for row in _rows(chosen, data):
        yield Entry(row.where, partial(chosen.benchmark.read, row, chosen.split))


def _rows(chosen: Chosen, data: Path | None) -> Iterator[Row]:
    source = chosen.benchmark.splits[chosen.split]
    if data is not None:
        return source.local.rows(data)
    if source.hub is None:
        raise ConfigError(
            f"{chosen.name}:{chosen.split} is not on the hub; name the directory that has its file"
        )
    return source.hub.rows()
