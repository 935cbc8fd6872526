"""Show which isolation layers are active and what a sandboxed run costs.

python -m podium.workers.sandbox.doctor
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from podium.workers.sandbox import IsolationLayer, isolation_layers, run_check, run_program


class RunCost(NamedTuple):
    """Milliseconds of wall-clock time and of CPU time."""

    wall_ms: float
    cpu_ms: float

    def minus(self, other: RunCost) -> RunCost:
        """Subtract another cost."""
        return RunCost(self.wall_ms - other.wall_ms, self.cpu_ms - other.cpu_ms)


def format_layers(layers: Sequence[IsolationLayer]) -> list[str]:
    """Return a line for each layer, with the reason if it is missing."""
    width = max(len(layer.name) for layer in layers)
    return [
        f"{'active ' if layer.is_active else 'MISSING'}  {layer.name:{width}}  {layer.purpose}"
        + ("" if layer.missing is None else f"\n{'':{width + 11}}because: {layer.missing}")
        for layer in layers
    ]


async def measure_overhead(times: int = 20) -> dict[str, RunCost]:
    """Measure the median cost of starting Python, and what each kind of run adds to it."""
    bare = await _cost(_start_python, times)
    program = await _cost(lambda: _print(1), times)
    ten_inputs = (await _cost(lambda: _print(11), times)).minus(program)
    apart = await _cost(lambda: _double(together=False), times)
    together = await _cost(lambda: _double(together=True), times)
    return {
        "start of Python": bare,
        "program with one input": program.minus(bare),
        "each further input": RunCost(ten_inputs.wall_ms / 10, ten_inputs.cpu_ms / 10),
        "check in its own process": apart.minus(bare),
        "check in the program's process": together.minus(bare),
    }


async def _cost(work: Callable[[], Awaitable[None]], times: int) -> RunCost:
    costs = []
    for _ in range(times):
        begun, used = time.perf_counter(), _used_by_children()
        await work()
        seconds = time.perf_counter() - begun, _used_by_children() - used
        costs.append(RunCost(seconds[0] * 1000, seconds[1] * 1000))
    wall_ms, cpu_ms = zip(*costs, strict=True)
    return RunCost(statistics.median(wall_ms), statistics.median(cpu_ms))


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
    lines = format_layers(await isolation_layers())
    costs = await measure_overhead()
    lines += ["", f"{'milliseconds':36}{'wall clock':>14}{'CPU':>15}"]
    lines += [f"{name:36}{one.wall_ms:14.1f}{one.cpu_ms:15.1f}" for name, one in costs.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(_report()) + "\n")
