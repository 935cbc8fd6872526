"""Fuzzing what reads foreign texts: plans through the parser, bodies through the server.

Both are functions that give one row (`fuzz_row`), and the same row for the same seed and count
but for its times. How plans are made odd and judged is in `fuzz_plans`.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from podium.bench.fuzz_row import Finding, FuzzRow, gathered

__all__ = ["Finding", "FuzzRow", "fuzz_plans"]

_SEEDS_APART: Final = 1_000_003


def fuzz_plans(count: int, seconds: float, seed: int, processes: int = 1) -> FuzzRow:
    """Read so many plan texts made odd, or as many as the seconds allow, in so many processes."""
    from podium.bench.fuzz_plans import campaign

    if processes == 1:
        return campaign(count, seconds, seed)
    began = time.perf_counter()
    shares = [count // processes + (index < count % processes) for index in range(processes)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as executor:
        rows = list(
            executor.map(
                campaign,
                shares,
                [seconds] * processes,
                [seed + index * _SEEDS_APART for index in range(processes)],
            )
        )
    return gathered("plans", rows, time.perf_counter() - began)
