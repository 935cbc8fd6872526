"""Kill the process of runs at random moments, again and again, until all runs are done.

Process, signal and store are real. The upstream is another process, which survives and counts how
often each step was called. A step recorded as done at a kill must not be called again.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import ENDED, EXACT_USD, Kills, has_ended, overruns
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import (
    CallCounts,
    chaos_upstream,
    read_counts,
    tokens_of,
)
from benchmarks.chaos.workload import (
    CONFIGURATION,
    STEPS,
    STORE,
    budget_of,
    cost_of,
    every_run,
    in_turns,
    mark_of,
    question_of,
    runs_by_mark,
    steps_done,
    workflow_of,
    write_configuration,
)
from benchmarks.processes import inherited
from podium.client.client import AsyncPodium
from podium.config import discover_settings
from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.store import open_store

IN_FLIGHT: Final = 4
LATENCY_SECONDS: Final = 0.05
MAX_CALLS_A_LIFE: Final = 24
"""A process is killed after a random number of calls, so it makes progress on any machine."""

LONGEST_WHILE_SECONDS: Final = 2 * LATENCY_SECONDS
LONGEST_LIFE_SECONDS: Final = 30.0
BETWEEN_LOOKS_SECONDS: Final = 0.005
SHARE_KILLED_AT_START: Final = 0.15
LONGEST_START_SECONDS: Final = 60.0

MAX_KILLS_A_RUN: Final = 1
"""After so many kills for each run, the process may live."""

LONGEST_REST_SECONDS: Final = 120.0
"""A run that is not done by then, without a kill, is stuck."""

READY: Final = "ready"


async def drive(directory: Path, runs: int, seed: int) -> None:
    """Resume the stored runs and start the others; this is the process that is killed."""
    settings = await discover_settings(os.environ, config=directory / CONFIGURATION)
    async with AsyncPodium(settings=settings, store=directory / STORE) as podium:
        store = (await podium.open()).store
        begun = {mark_of(run.question): run async for run in every_run(store)}

        async def perform(index: int) -> None:
            question, workflow = question_of(index), workflow_of(index, seed)
            run = begun.get(mark_of(question))
            if run is None:
                await podium.run(workflow, question, budget=budget_of(workflow))
            elif run.status not in ENDED:
                await podium.resume(run.id)

        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await in_turns(runs, IN_FLIGHT, perform)


async def measure_kills(runs: int, seed: int) -> ChaosRow:
    """Run `runs` questions to their end, however often the process is killed."""
    chance = random.Random(seed)  # noqa: S311 -- repeatable, not unguessable
    kills, is_done = Kills(), False
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as name:
        directory = Path(name)
        async with chaos_upstream(LATENCY_SECONDS) as port:
            write_configuration(directory, port)
            while not is_done and kills.count < MAX_KILLS_A_RUN * runs:
                async with _driving(directory, runs, seed) as process:
                    is_done = await _live(process, port, chance)
                if not is_done:
                    await _look(directory, port, kills)
            if not is_done:
                async with _driving(directory, runs, seed) as process:
                    await _ends(process, LONGEST_REST_SECONDS)
            kept, counts = await _kept(directory), await read_counts(port)
    return judged(runs, kept, counts, kills, time.perf_counter() - started)


@asynccontextmanager
async def _driving(
    directory: Path, runs: int, seed: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the process of the runs, and kill it in the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "benchmarks.chaos.kills", str(directory)),
        *(str(runs), str(seed)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**inherited(), "PODIUM_HOME": str(directory)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _ends(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _live(process: asyncio.subprocess.Process, port: int, chance: random.Random) -> bool:
    """Let the process run until it is to be killed; return whether it finished before."""
    assert process.stdout is not None, "the process was started with a pipe"
    calls = chance.randint(0, MAX_CALLS_A_LIFE)
    if chance.random() >= SHARE_KILLED_AT_START:
        async with asyncio.timeout(LONGEST_START_SECONDS):
            line = await process.stdout.readline()
        if line.decode().strip() != READY:
            raise ConfigError("the process to be killed did not start; its output is above")
        await _until_asked(port, calls, process)
    is_done = await _ends(process, chance.uniform(0, LONGEST_WHILE_SECONDS))
    if is_done and process.returncode != 0:
        raise ConfigError("the process to be killed ended by itself; its output is above")
    return is_done


async def _until_asked(port: int, calls: int, process: asyncio.subprocess.Process) -> None:
    """Wait until the upstream was called that often, or the process has ended."""
    until = time.monotonic() + LONGEST_LIFE_SECONDS
    enough = (await read_counts(port)).total + calls
    while process.returncode is None and time.monotonic() < until:
        if (await read_counts(port)).total >= enough:
            return
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


async def _look(directory: Path, port: int, kills: Kills) -> None:
    """Record what is stored after a kill, and how often each step was called."""
    kills.count += 1
    kept, counts = await _kept(directory), await read_counts(port)
    for mark, of_mark in kept.items():
        for run in of_mark:
            kills.journal.note(steps_done(run, mark), counts.steps)
            kills.hit[mark] += not has_ended(run)


async def _kept(directory: Path) -> dict[str, list[Run]]:
    store = await open_store(directory / STORE)
    try:
        return await runs_by_mark(store)
    finally:
        await store.close()


def judged(
    runs: int, kept: Mapping[str, list[Run]], counts: CallCounts, kills: Kills, seconds: float
) -> ChaosRow:
    """Compare the stored runs with what the upstream observed."""
    marks = [mark_of(question_of(index)) for index in range(runs)]
    performed = [(mark, run) for mark in marks for run in kept.get(mark, ())]
    recorded = sum(len(list(run.calls)) for _, run in performed)
    twice = sum(len(kept.get(mark, ())) > 1 for mark in marks)
    return ChaosRow(
        name="kills",
        runs=runs,
        lost=sum(not kept.get(mark) for mark in marks),
        stuck=sum(not has_ended(run) for _, run in performed),
        answered_share=sum(run.status == "answered" for _, run in performed) / runs,
        usage_mismatch=sum(misbilled(run, mark) for mark, run in performed),
        repeated_steps=len(kills.journal.repeated(counts.steps)),
        budget_overruns=sum(
            overspent(run, counts.calls(mark), kills.hit[mark]) for mark, run in performed
        ),
        seconds=seconds,
        note=f"killed {kills.count} times with {len(kills.journal):,} steps on record",
        broken=(f"{twice} questions have more than one run",) if twice else (),
        figures={
            "kills": kills.count,
            "calls": counts.total,
            "calls_that_a_kill_hid": counts.total - recorded,
            "steps_on_record_at_kills": len(kills.journal),
        },
    )


def misbilled(run: Run, mark: str) -> bool:
    """True if a recorded call has another usage or cost than the upstream reported."""
    return any(
        call.error is None
        and (
            (call.usage.input_tokens, call.usage.output_tokens) != tokens_of(mark)
            or call.cost_usd is None
            or abs(call.cost_usd - cost_of(mark)) > EXACT_USD
        )
        for call in run.calls
    )


def overspent(run: Run, calls: int, hits: int) -> bool:
    """True if a run exceeded its cap, less the calls in flight at its kills."""
    return overruns(run, max(0, calls - (hits + 1) * len(STEPS)))


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    asyncio.run(drive(Path(where), *map(int, numbers)))
