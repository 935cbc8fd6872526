"""Fuzz the plan parser and the server with mutated plans and request bodies."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from benchmarks.fuzz.report import Finding, FuzzRow, gathered
from benchmarks.processes import run_on_fast_loop

__all__ = ["Crew", "Finding", "FuzzRow", "crew_of", "fuzz_bodies", "fuzz_plans"]

_SEEDS_APART: Final = 1_000_003


@dataclass(frozen=True, slots=True)
class Crew:
    """Processes that share campaigns; without an executor, this process alone."""

    processes: int = 1
    executor: ProcessPoolExecutor | None = None

    def shares(self, count: int) -> list[int]:
        quotient, rest = divmod(count, self.processes)
        return [quotient + (index < rest) for index in range(self.processes)]

    def seeds(self, seed: int) -> list[int]:
        return [seed + index * _SEEDS_APART for index in range(self.processes)]


ALONE: Final = Crew()


@contextmanager
def crew_of(processes: int) -> Iterator[Crew]:
    """Start the processes once for all campaigns."""
    if processes == 1:
        yield ALONE
        return
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning) as executor:
        yield Crew(processes, executor)


def fuzz_plans(count: int, seconds: float, seed: int, crew: Crew = ALONE) -> FuzzRow:
    """Parse that many mutated plans, or as many as the seconds allow."""
    from benchmarks.fuzz.plans import campaign

    if crew.executor is None:
        return campaign(count, seconds, seed)
    began = time.perf_counter()
    shared = crew.executor.map(campaign, crew.shares(count), repeat(seconds), crew.seeds(seed))
    return gathered("plans", list(shared), time.perf_counter() - began)


def fuzz_bodies(count: int, seed: int, crew: Crew = ALONE) -> FuzzRow:
    """Send that many mutated requests in each of the three dialects."""
    if crew.executor is None:
        return _bodies(count, seed)
    began = time.perf_counter()
    shared = crew.executor.map(_bodies, crew.shares(count), crew.seeds(seed))
    return gathered("bodies", list(shared), time.perf_counter() - began)


def _bodies(count: int, seed: int) -> FuzzRow:
    from benchmarks.fuzz.server import campaign

    return run_on_fast_loop(campaign(count, seed))
