"""Fuzzing what reads foreign texts: plans through the parser, bodies through the server.

Both are functions that give one row (`row`), and the same row for the same seed and count
but for its times. How plans are made odd and judged is in `plans`, how requests are, in
`damage` and `judge`, and the server that they are sent to is in `server`.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Final

from podium.bench.fuzz.row import Finding, FuzzRow, gathered
from podium.bench.server_loop import run_on_fast_loop

__all__ = ["Finding", "FuzzRow", "fuzz_bodies", "fuzz_plans"]

_SEEDS_APART: Final = 1_000_003


def fuzz_plans(count: int, seconds: float, seed: int, processes: int = 1) -> FuzzRow:
    """Read so many plan texts made odd, or as many as the seconds allow, in so many processes."""
    from podium.bench.fuzz.plans import campaign

    if processes == 1:
        return campaign(count, seconds, seed)
    began = time.perf_counter()
    with _executor(processes) as executor:
        rows = list(
            executor.map(
                campaign, _shares(count, processes), repeat(seconds), _seeds(seed, processes)
            )
        )
    return gathered("plans", rows, time.perf_counter() - began)


def fuzz_bodies(count: int, seed: int, processes: int = 1) -> FuzzRow:
    """Send so many requests made odd in each of the three dialects, in so many processes."""
    if processes == 1:
        return _bodies(count, seed)
    began = time.perf_counter()
    with _executor(processes) as executor:
        rows = list(executor.map(_bodies, _shares(count, processes), _seeds(seed, processes)))
    return gathered("bodies", rows, time.perf_counter() - began)


def _bodies(count: int, seed: int) -> FuzzRow:
    from podium.bench.fuzz.server import campaign

    return run_on_fast_loop(campaign(count, seed))


def _executor(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _shares(count: int, processes: int) -> list[int]:
    return [count // processes + (index < count % processes) for index in range(processes)]


def _seeds(seed: int, processes: int) -> list[int]:
    return [seed + index * _SEEDS_APART for index in range(processes)]
