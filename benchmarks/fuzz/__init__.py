"""Fuzz the server with mutated request bodies and edited conversations."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
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


def _share(campaign: Callable[[int, int], FuzzRow], count: int, seed: int, n: int) -> FuzzRow:
    """Run a campaign, in `n` processes with a share of the inputs each.

    Of corpora, the largest counts.
    """
    if n == 1:
        return campaign(count, seed)
    began = time.perf_counter()
    counts = [count // n + (index < count % n) for index in range(n)]
    seeds = [seed + index * _SEEDS_APART for index in range(n)]
    with ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(campaign, counts, seeds))
    return FuzzRow(
        inputs=sum(row.inputs for row in rows),
        seconds=time.perf_counter() - began,
        findings=tuple(finding for row in rows for finding in row.findings)[:MAX_FINDINGS],
        corpus=max(row.corpus for row in rows),
    )
