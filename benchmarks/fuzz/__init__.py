"""Fuzz the server with mutated request bodies."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
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
    """One campaign; `corpus` counts inputs with a new outcome."""

    inputs: int
    seconds: float
    findings: tuple[Finding, ...] = ()
    corpus: int = 0


def fuzz_bodies(count: int, seed: int, processes: int = 1) -> FuzzRow:
    """Send that many mutated requests in each of the three dialects.

    `processes` have a share of them each; of their corpora, the largest counts.
    """
    if processes == 1:
        return _bodies(count, seed)
    began = time.perf_counter()
    counts = [count // processes + (n < count % processes) for n in range(processes)]
    seeds = [seed + n * _SEEDS_APART for n in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(_bodies, counts, seeds))
    return FuzzRow(
        inputs=sum(row.inputs for row in rows),
        seconds=time.perf_counter() - began,
        findings=tuple(finding for row in rows for finding in row.findings)[:MAX_FINDINGS],
        corpus=max(row.corpus for row in rows),
    )


def _bodies(count: int, seed: int) -> FuzzRow:
    from benchmarks.fuzz.server import campaign

    return run_on_fast_loop(campaign(count, seed))
