"""Foreign texts made odd: plans through the parser, and bodies in every dialect through the server.

How they are made and judged is `benchmarks.fuzz`; here it becomes a row like those of the others.
"""

from __future__ import annotations

from typing import Final

from benchmarks.chaos.row import ChaosRow
from benchmarks.fuzz import FuzzRow, crew_of, fuzz_bodies, fuzz_plans

LONGEST_SECONDS: Final = 3600.0
LONGEST_SHOWN: Final = 300


def measure_fuzz(plans: int, bodies: int, seed: int, processes: int = 1) -> ChaosRow:
    """Read so many plans, and send so many bodies of each dialect, in so many processes."""
    with crew_of(processes) as crew:
        read = fuzz_plans(plans, LONGEST_SECONDS, seed, crew)
        sent = fuzz_bodies(bodies, seed, crew)
    broken = [str(finding)[:LONGEST_SHOWN] for row in (read, sent) for finding in row.findings]
    if read.inputs < plans:
        broken.append(f"only {read.inputs:,} of {plans:,} plans were read in {read.seconds:.0f} s")
    return ChaosRow(
        name="fuzz",
        runs=0,
        seconds=read.seconds + sent.seconds,
        note=f"{read.inputs:,} of {plans:,} plans, {sent.inputs:,} bodies",
        broken=tuple(broken),
        figures={**_figures("plans", read), **_figures("bodies", sent)},
    )


def _figures(name: str, row: FuzzRow) -> dict[str, int | float | str | None]:
    growth = row.slowest_growth
    return {
        name: row.inputs,
        f"{name}_per_second": round(row.per_second, 1),
        f"{name}_findings": len(row.findings),
        f"{name}_corpus": row.corpus,
        f"{name}_covered": row.covered,
        f"{name}_slowest_growth": None if growth is None else round(growth, 2),
    }
