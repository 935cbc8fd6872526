"""Fuzz the plan parser and the server with mutated plans and request bodies."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from benchmarks.processes import run_on_fast_loop

MAX_FINDINGS: Final = 20
"""A campaign stops after so many findings."""

LONGEST_SHOWN: Final = 2000
_SEEDS_APART: Final = 1_000_003


class Finding(NamedTuple):
    """A broken promise and the input that shows it."""

    broken: str
    input: str

    def __str__(self) -> str:
        return f"{self.broken}: {self.input[:LONGEST_SHOWN]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRow:
    """One campaign.

    `corpus` counts inputs with a new outcome. `slowest_growth` is the largest cost of doubling the
    length.
    """

    inputs: int
    seconds: float
    findings: tuple[Finding, ...] = ()
    corpus: int = 0
    slowest_growth: float | None = None

    @property
    def per_second(self) -> float:
        return self.inputs / self.seconds if self.seconds else 0.0


def fuzz_plans(count: int, seconds: float, seed: int, processes: int = 1) -> FuzzRow:
    """Parse that many mutated plans, or as many as the seconds allow."""
    from benchmarks.fuzz.plans import campaign

    return _share(partial(campaign, seconds=seconds), count, seed, processes)


def fuzz_bodies(count: int, seed: int, processes: int = 1) -> FuzzRow:
    """Send that many mutated requests in each of the three dialects."""
    return _share(_bodies, count, seed, processes)


def fuzz_histories(count: int, seed: int, processes: int = 1) -> FuzzRow:
    """Make that many edits of conversations with servers with and without a memory."""
    return _share(_histories, count, seed, processes)


def _histories(count: int, seed: int) -> FuzzRow:
    from benchmarks.fuzz.histories import campaign

    return run_on_fast_loop(campaign(count, seed))


def _bodies(count: int, seed: int) -> FuzzRow:
    from benchmarks.fuzz.server import campaign

    return run_on_fast_loop(campaign(count, seed))


def _share(campaign: Callable[..., FuzzRow], count: int, seed: int, processes: int) -> FuzzRow:
    """Run a campaign, in so many processes with a share of the inputs each."""
    if processes == 1:
        return campaign(count, seed=seed)
    quotient, rest = divmod(count, processes)
    began = time.perf_counter()
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(campaign, quotient + (index < rest), seed=seed + index * _SEEDS_APART)
            for index in range(processes)
        ]
        rows = [future.result() for future in futures]
    return combine(rows, time.perf_counter() - began)


def combine(rows: Sequence[FuzzRow], seconds: float) -> FuzzRow:
    """Combine the rows of several processes; of corpora, the largest counts."""
    growths = [row.slowest_growth for row in rows if row.slowest_growth is not None]
    return FuzzRow(
        inputs=sum(row.inputs for row in rows),
        seconds=seconds,
        findings=tuple(finding for row in rows for finding in row.findings)[:MAX_FINDINGS],
        corpus=max(row.corpus for row in rows),
        slowest_growth=max(growths, default=None),
    )
