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
from typing import NamedTuple

from podium.workers.sandbox.sandbox import Wall, run_check, run_program, standing_walls


class Cost(NamedTuple):
    """Milliseconds: by the clock, and of processors, for which it matters less who else works."""

    clock: float
    processor: float

    def beside(self, other: Cost) -> Cost:
        """How much more it is than another."""
        return Cost(self.clock - other.clock, self.processor - other.processor)


@dataclass(frozen=True, slots=True)
class Overhead:
    """A bare start of Python, and what runs cost beside it; each the median of several."""

    bare: Cost
    program: Cost
    each_further_input: Cost
    check_apart: Cost
    check_together: Cost


def wall_lines(walls: Sequence[Wall]) -> list[str]:
    """A line for each wall, and for one that does not stand the reason."""
    width = max(len(wall.name) for wall in walls)
    return [
        f"{'stands ' if wall.stands else 'MISSING'}  {wall.name:{width}}  {wall.purpose}"
        + ("" if wall.missing is None else f"\n{'':{width + 11}}because: {wall.missing}")
        for wall in walls
    ]


async def overhead(times: int = 20) -> Overhead:
    """Run the smallest programs, and see what that takes."""
    bare = await _cost(_start_python, times)
    program = await _cost(lambda: _print(1), times)
    eleven = (await _cost(lambda: _print(11), times)).beside(program)
    apart = await _cost(lambda: _double(together=False), times)
    together = await _cost(lambda: _double(together=True), times)
    return Overhead(
        bare=bare,
        program=program.beside(bare),
        each_further_input=Cost(eleven.clock / 10, eleven.processor / 10),
        check_apart=apart.beside(bare),
        check_together=together.beside(bare),
    )


async def _cost(work: Callable[[], Awaitable[None]], times: int) -> Cost:
    taken = []
    for _ in range(times):
        begun, used = time.perf_counter(), _used_by_children()
        await work()
        seconds = time.perf_counter() - begun, _used_by_children() - used
        taken.append(Cost(seconds[0] * 1000, seconds[1] * 1000))
    clock, processor = zip(*taken, strict=True)
    return Cost(statistics.median(clock), statistics.median(processor))


def _used_by_children() -> float:
    import resource  # which not every system has on which this module can be imported

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    rows = {
        "a bare start of Python": cost.bare,
        "beside it a program for one input": cost.program,
        "each further input": cost.each_further_input,
        "a check apart from its program": cost.check_apart,
        "a check together with it": cost.check_together,
    }
    lines += ["", f"{'milliseconds':36}{'by the clock':>14}{'of processors':>15}"]
    lines += [f"{name:36}{one.clock:14.1f}{one.processor:15.1f}" for name, one in rows.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(_report()) + "\n")
