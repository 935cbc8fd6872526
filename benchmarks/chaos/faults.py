"""Runs over workers of which every call may go wrong: do they all end, and is their bill right?

Each worker is scripted, behind a `FaultyWorker`, and a witness stands before both. The runs are
kept in SQLite by the journal, as they are everywhere; each is read back by a reader of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import Billed, has_ended, is_lost, misreports, overruns
from benchmarks.chaos.improvising import LONE, Improviser, Wanted, wanted_run
from benchmarks.chaos.row import ChaosRow
from benchmarks.chaos.turns import every_run, in_turns
from benchmarks.chaos.witness import CALLS, Witness
from podium.client.client import AsyncPodium
from podium.core.errors import NotFound, PodiumError
from podium.core.events import Event, StepDelta
from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.core.run import Run
from podium.core.usage import Price
from podium.engine import RetryPolicy
from podium.engine.runner import ConductorWorker
from podium.store import RunStore, open_store
from podium.workers.faulty import Faults, FaultyWorker
from podium.workers.scripted import ScriptedWorker

SHARE: Final = 0.2
IN_FLIGHT: Final = 64

LONGEST_RUN_SECONDS: Final = 60.0
"""A run that takes longer is stuck: one takes milliseconds, and its faults tens of them."""

RETRY: Final = RetryPolicy(first_wait=0.005, longest_wait=0.1)
"""Waits are short, for these faults are over at once; how often is tried is as usual."""

PRICES: Final = {
    "anna": Price(input=3.0, output=15.0),
    "bert": Price(input=0.25, output=1.25, cached=0.03),
    "cora": Price(input=1.1, output=4.4),
    LONE: Price(input=2.0, output=8.0),
    "planner": Price(input=5.0, output=25.0),
}
FALLBACKS: Final = {"anna": "bert", "bert": "cora", "cora": "anna"}


@dataclass(slots=True)
class Findings:
    """What is found as runs end. `to_be_answered` had a fallback and no cap."""

    runs: int = 0
    lost: int = 0
    stuck: int = 0
    to_be_answered: int = 0
    answered: int = 0
    misreported: int = 0
    overran: int = 0
    calls: int = 0
    hidden: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)


async def measure_faults(runs: int, seed: int, in_flight: int = IN_FLIGHT) -> ChaosRow:
    """So many runs, so many of them at once, with faults drawn from that seed."""
    found = Findings()
    workers = {name: _faulty(name, seed) for name in PRICES}
    planner = Witness(workers["planner"])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as directory:
        place = Path(directory) / "runs.db"
        async with AsyncPodium(
            [
                *(Witness(worker) for name, worker in workers.items() if name != "planner"),
                ConductorWorker(WorkerProfile(name="deeper", fallback="anna")),
            ],
            Improviser(planner, seed),
            retry=RETRY,
            store=place,
        ) as podium:
            reader = await open_store(place)
            try:
                rehearsal = Rehearsal(podium, reader, found)
                await in_turns(runs, in_flight, lambda n: rehearsal.perform(wanted_run(n, seed)))
            finally:
                await reader.close()
        store = await open_store(place)
        try:
            kept = {summary.id async for summary in every_run(store)}
        finally:
            await store.close()
        found.lost += len(found.ids - kept)
    injected = sum((worker.injected for worker in workers.values()), Counter[str]())
    return _row(found, injected, time.perf_counter() - started)


def _faulty(name: str, seed: int) -> FaultyWorker:
    profile = WorkerProfile(
        name=name, provider="scripted", price=PRICES[name], fallback=FALLBACKS.get(name)
    )
    return FaultyWorker(
        ScriptedWorker(profile, _said, chunk=3, keep_requests=0), Faults.evenly(SHARE), seed
    )


def _said(request: Request) -> str:
    """A reply that differs from question to question, and so does its length."""
    words = request.text.split()
    return f"As to {words[0]}: " + " ".join(words[-(len(request.text) % 40 + 3) :])


class Hearer:
    """Whoever watches a run: keeps what is streamed to them, by run and round."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, int], list[str]] = {}

    def __call__(self, event: Event) -> None:
        """Hear what happens."""
        if isinstance(event, StepDelta) and not event.thinking:
            self._pieces.setdefault((event.run_id, event.round), []).append(event.text)

    def answer_of(self, run: Run) -> str:
        """What was told of the round that answers the run."""
        finals = [round_ for round_ in run.rounds if round_.final is not None]
        return "".join(self._pieces.get((run.id, finals[-1].index), ())) if finals else ""


class Rehearsal:
    """Performs runs one by one, and looks at each when it has ended."""

    def __init__(self, podium: AsyncPodium, reader: RunStore, found: Findings) -> None:
        self._podium = podium
        self._reader = reader
        self._found = found

    async def perform(self, wanted: Wanted) -> None:
        """Ask, wait for the end, and check it."""
        found, hearer = self._found, Hearer()
        calls: list[Billed] = []
        CALLS.set(calls)
        found.runs += 1
        found.to_be_answered += wanted.must_be_answered
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                run = await self._podium.ask(
                    wanted.question,
                    rounds=wanted.rounds,
                    budget=wanted.budget,
                    emit=hearer,
                    stream=wanted.streams,
                )
        except TimeoutError:
            found.stuck += 1
            return
        except PodiumError as error:
            found.lost += 1
            found.broken[f"a run raised {type(error).__name__}: {error}"] += 1
            return
        found.answered += wanted.must_be_answered and run.status == "answered"
        await self._judge(run, calls, hearer.answer_of(run) if wanted.streams else None)

    async def _judge(self, run: Run, calls: list[Billed], told: str | None) -> None:
        found = self._found
        found.statuses[run.status] += 1
        found.calls += len(calls)
        found.hidden += sum(call.cost_usd is None for call in calls)
        found.ids.add(run.id)
        if not has_ended(run):
            found.broken[f"a run ended as {run.status} without a cause"] += 1
        try:
            kept = await self._reader.load(run.id)
        except NotFound:
            kept = None
        found.lost += is_lost(run, kept, told)
        found.misreported += misreports(run, calls)
        found.overran += overruns(run, len(calls))


def _row(found: Findings, injected: Counter[str], seconds: float) -> ChaosRow:
    ended = ", ".join(f"{count:,} {status}" for status, count in found.statuses.most_common())
    return ChaosRow(
        name="faults",
        runs=found.runs,
        lost=found.lost,
        stuck=found.stuck,
        answered_share=found.answered / found.to_be_answered if found.to_be_answered else None,
        usage_mismatch=found.misreported,
        budget_overruns=found.overran,
        seconds=seconds,
        note=f"{injected.total():,} faults in {found.calls:,} calls; {ended}",
        broken=tuple(f"{words} ({count})" for words, count in found.broken.items()),
        figures={
            "calls": found.calls,
            "faults": injected.total(),
            "to_be_answered": found.to_be_answered,
            "calls_of_unknown_usage": found.hidden,
            "runs_per_second": round(found.runs / seconds, 1),
            **{f"fault_{kind}": count for kind, count in sorted(injected.items())},
        },
    )
