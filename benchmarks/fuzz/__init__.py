"""Fuzz the plan parser and the server with mutated plans and request bodies."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from benchmarks.fuzz.report import Finding, FuzzRow, gathered
from benchmarks.processes import run_on_fast_loop

__all__ = ["Finding", "FuzzRow", "fuzz_bodies", "fuzz_plans"]

_SEEDS_APART: Final = 1_000_003


def fuzz_plans(count: int, seconds: float, seed: int, processes: int = 1) -> FuzzRow:
    """Parse that many mutated plans, or as many as the seconds allow."""
    from benchmarks.fuzz.plans import campaign

    return _share("plans", partial(campaign, seconds=seconds), count, seed, processes)


def fuzz_bodies(count: int, seed: int, processes: int = 1) -> FuzzRow:
    """Send that many mutated requests in each of the three dialects."""
    return _share("bodies", _bodies, count, seed, processes)


def _bodies(count: int, seed: int) -> FuzzRow:
    from benchmarks.fuzz.server import campaign

    return run_on_fast_loop(campaign(count, seed))


def _share(
    name: str, campaign: Callable[..., FuzzRow], count: int, seed: int, processes: int
) -> FuzzRow:
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
    return gathered(name, rows, time.perf_counter() - began)
