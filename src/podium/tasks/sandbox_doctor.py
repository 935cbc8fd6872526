"""What protects this machine from the programs that it grades, for a person to read.

    python -m podium.tasks.sandbox_doctor      which walls stand, and what a run costs

`wall_lines` and `overhead` are for whoever shows the same elsewhere. No program of a model's is
run here.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from podium.tasks.sandbox import Wall, run_check, run_program, standing_walls


@dataclass(frozen=True, slots=True)
class Overhead:
    """Milliseconds, the median of several: a bare start of Python, and what runs took beside it."""

    bare: float
    program: float
    each_further_input: float
    check_apart: float
    check_together: float


def wall_lines(walls: Sequence[Wall]) -> list[str]:
    """A line for each wall, and for one that does not stand the reason."""
    width = max(len(wall.name) for wall in walls)
    return [
        f"{'stands ' if wall.stands else 'MISSING'}  {wall.name:{width}}  {wall.purpose}"
        + ("" if wall.missing is None else f"\n{'':{width + 11}}because: {wall.missing}")
        for wall in walls
    ]


async def overhead(times: int = 20) -> Overhead:
    """Run the smallest programs, and see how long that takes."""
    bare = await _milliseconds(_start_python, times)
    program = await _milliseconds(lambda: _print(1), times)
    eleven = await _milliseconds(lambda: _print(11), times)
    apart = await _milliseconds(lambda: _double(together=False), times)
    together = await _milliseconds(lambda: _double(together=True), times)
    return Overhead(
        bare=bare,
        program=program - bare,
        each_further_input=(eleven - program) / 10,
        check_apart=apart - bare,
        check_together=together - bare,
    )


async def _milliseconds(work: Callable[[], Awaitable[None]], times: int) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


async def _start_python() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", "pass", stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    await process.wait()


async def _print(inputs: int) -> None:
    async for outcome in run_program("print(input())", ["a"] * inputs):
        assert outcome.output == "a\n"


async def _double(*, together: bool) -> None:
    program, check = "def double(number): return 2 * number", "assert double(2) == 4"
    outcome = await run_check(program, check, together=together)
    assert outcome.problem is None


async def _report() -> str:
    lines = wall_lines(await standing_walls())
    cost = await overhead()
    lines += [
        "",
        f"a bare start of Python takes {cost.bare:.0f} ms; beside it",
        f"  a program for one input          {cost.program:.0f} ms",
        f"  each further input               {cost.each_further_input:.1f} ms",
        f"  a check apart from its program   {cost.check_apart:.0f} ms",
        f"  a check together with it         {cost.check_together:.0f} ms",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(_report()) + "\n")
