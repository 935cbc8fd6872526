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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import (
    ENDED,
    EXACT_USD,
    Journal,
    every_run,
    has_ended,
    in_turns,
    overruns,
)
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import (
    CallCounts,
    UpstreamOptions,
    chaos_upstream,
    read_counts,
    tokens_of,
)
from benchmarks.chaos.workload import (
    CONFIGURATION,
    PRICE,
    STEPS,
    STORE,
    budget_of,
    mark_of,
    question_of,
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
MOST_CALLS_A_LIFE: Final = 24
"""A process is killed after a random number of calls, so it makes progress on any machine."""

LONGEST_WHILE_SECONDS: Final = 2 * LATENCY_SECONDS
LONGEST_LIFE_SECONDS: Final = 30.0
BETWEEN_LOOKS_SECONDS: Final = 0.005
SHARE_KILLED_AT_START: Final = 0.15
LONGEST_START_SECONDS: Final = 60.0

MOST_KILLS_A_RUN: Final = 1
"""After so many kills for each run, the process may live."""

LONGEST_REST_SECONDS: Final = 120.0
"""A run that is not done by then, without a kill, is stuck."""


READY: Final = "ready"


async def drive(directory: Path, runs: int, seed: int, in_flight: int) -> None:
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
        await in_turns(runs, in_flight, perform)


@dataclass(slots=True)
class Kills:
    """What was found after each kill. `hit` counts how often each run was in progress."""

    journal: Journal = field(default_factory=Journal)
    hit: Counter[str] = field(default_factory=Counter)
    count: int = 0


async def measure_kills(runs: int, seed: int) -> ChaosRow:
    """Run `runs` questions to their end, however often the process is killed."""
    chance = random.Random(seed)  # noqa: S311 -- repeatable, not unguessable
    kills = Kills()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as name:
        directory = Path(name)
        async with chaos_upstream(UpstreamOptions(latency_seconds=LATENCY_SECONDS)) as port:
            write_configuration(directory, port)
            is_done = False
            while not is_done and kills.count < MOST_KILLS_A_RUN * runs:
                is_done = await _live(directory, port, runs, seed, chance)
                if not is_done:
                    await _look(directory, port, kills)
            if not is_done:
                await _rest(directory, runs, seed)
            kept = await _kept(directory)
            counts = await read_counts(port)
    return judged(runs, kept, counts, kills, time.perf_counter() - started)


async def _started(directory: Path, runs: int, seed: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "benchmarks.chaos.kills"),
        *(str(directory), str(runs), str(seed), str(IN_FLIGHT)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**inherited(), "PODIUM_HOME": str(directory)},
    )


async def _live(directory: Path, port: int, runs: int, seed: int, chance: random.Random) -> bool:
    """Run the process until it is killed; return whether it finished before."""
    process = await _started(directory, runs, seed)
    assert process.stdout is not None, "the process was started with a pipe"
    calls = chance.randint(0, MOST_CALLS_A_LIFE)
    try:
        if chance.random() >= SHARE_KILLED_AT_START:
            async with asyncio.timeout(LONGEST_START_SECONDS):
                line = await process.stdout.readline()
            if line.decode().strip() != READY:
                raise ConfigError("the process to be killed did not start; what it said is above")
            await _until_asked(port, calls, process)
        try:
            async with asyncio.timeout(chance.uniform(0, LONGEST_WHILE_SECONDS)):
                await process.wait()
        except TimeoutError:
            return False
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    if process.returncode != 0:
        raise ConfigError("the process to be killed ended by itself; what it said is above")
    return True


async def _until_asked(port: int, calls: int, process: asyncio.subprocess.Process) -> None:
    """Wait until the upstream was called that often, or the process has ended."""
    until = time.monotonic() + LONGEST_LIFE_SECONDS
    enough = (await read_counts(port)).total + calls
    while process.returncode is None and time.monotonic() < until:
        if (await read_counts(port)).total >= enough:
            return
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


async def _rest(directory: Path, runs: int, seed: int) -> None:
    """Let the process run to its end, or to a timeout."""
    process = await _started(directory, runs, seed)
    try:
        async with asyncio.timeout(LONGEST_REST_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


async def _look(directory: Path, port: int, kills: Kills) -> None:
    """Record what is stored after a kill, and how often each step was called."""
    kills.count += 1
    kept = await _kept(directory)
    counts = await read_counts(port)
    for mark, of_mark in kept.items():
        for run in of_mark:
            kills.journal.note(steps_done(run, mark), counts.steps)
            kills.hit[mark] += not has_ended(run)


async def _kept(directory: Path) -> dict[str, list[Run]]:
    """Return every stored run by the mark of its question."""
    store = await open_store(directory / STORE)
    found: dict[str, list[Run]] = {}
    try:
        async for summary in every_run(store):
            found.setdefault(mark_of(summary.question), []).append(await store.load(summary.id))
    finally:
        await store.close()
    return found


def judged(
    runs: int, kept: Mapping[str, list[Run]], counts: CallCounts, kills: Kills, seconds: float
) -> ChaosRow:
    """Compare the stored runs with what the upstream observed."""
    marks = [mark_of(question_of(index)) for index in range(runs)]
    performed = {mark: kept.get(mark, []) for mark in marks}
    all_runs = [run for of_mark in performed.values() for run in of_mark]
    repeated = kills.journal.repeated(counts.steps)
    recorded = sum(len(list(run.calls)) for run in all_runs)
    twice = sum(len(of_mark) > 1 for of_mark in performed.values())
    return ChaosRow(
        name="kills",
        runs=runs,
        lost=sum(not of_mark for of_mark in performed.values()),
        stuck=sum(not has_ended(run) for run in all_runs),
        answered_share=sum(run.status == "answered" for run in all_runs) / runs,
        usage_mismatch=sum(misbilled(run, mark_of(run.question)) for run in all_runs),
        repeated_steps=len(repeated),
        budget_overruns=sum(
            overspent(run, counts.calls(mark), kills.hit[mark])
            for mark, of_mark in performed.items()
            for run in of_mark
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
    read, written = tokens_of(mark)
    cost = (read * PRICE.input + written * PRICE.output) / 1_000_000
    return any(
        call.error is None
        and (
            (call.usage.input_tokens, call.usage.output_tokens) != (read, written)
            or call.cost_usd is None
            or abs(call.cost_usd - cost) > EXACT_USD
        )
        for call in run.calls
    )


def overspent(run: Run, calls: int, hits: int) -> bool:
    """True if a run exceeded its cap, less the calls in flight at its kills."""
    return overruns(run, max(0, calls - (hits + 1) * len(STEPS)))


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    asyncio.run(drive(Path(where), *map(int, numbers)))
