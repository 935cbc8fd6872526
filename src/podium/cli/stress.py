"""`podium pool check --stress`: how a pool and its settings bear workers that fail.

Each worker is put behind a `FaultyWorker`, and small workflows are carried out over all of them, by
the engine and with the settings that real runs have. What comes of it is counted by `Stressed`;
nothing is kept.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from podium.cli.formatting import counted, money, seconds
from podium.cli.models import fetch, weights_of
from podium.client.assembly import assemble, default_options
from podium.client.client import AsyncPodium
from podium.config import Settings
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Delta, Reply, Request, ResponseOptions
from podium.core.run import Run
from podium.core.usage import Usage, plausible_usage
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.workers import Faults, FaultyWorker, Http

FAULTS: Final = Faults.evenly(0.2)
AT_ONCE: Final = 8
MOST_TOKENS: Final = 16
"""What an answer may be long, so that a hosted pool is stressed for little money."""

HEADINGS: Final = ("worker", "calls", "faults", "failed", "took over", "breaker opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class StressedWorker:
    """What one worker went through. `failed` are calls that were made: what an open breaker
    refused was none. `took_over` are the steps that it did for another."""

    worker: str
    calls: int
    faults: int
    failed: int
    took_over: int
    openings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stressed:
    """How the pool bore it. `retries` are calls that were made again, `fallbacks` steps that a
    substitute did. `misstated` are calls of which a run says another usage or cost than the worker
    did, `unknown_cost` those of which nobody can know."""

    runs: int
    answered: int
    retries: int
    fallbacks: int
    openings: int
    seconds: float
    cost_usd: float
    unknown_cost: int
    misstated: int
    errors: tuple[str, ...]
    workers: tuple[StressedWorker, ...]

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "answered_share": self.answered / self.runs}

    @property
    def lines(self) -> Iterator[str]:
        """For people."""
        rows = [
            tuple(str(getattr(each, field.name)) for field in fields(each)) for each in self.workers
        ]
        widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
        for row in (HEADINGS, *rows):
            name, *numbers = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield "  ".join((name, *numbers)).rstrip()
        yield ""
        yield (
            f"answered {self.answered} of {counted(self.runs, 'run')} in {seconds(self.seconds)}: "
            f"{counted(self.retries, 'call')} made again, {counted(self.fallbacks, 'step')} taken "
            f"over, {counted(self.openings, 'opening')} of breakers"
        )
        exact = "exact" if not self.misstated else f"WRONG for {counted(self.misstated, 'call')}"
        unknown = f", and unknown for {counted(self.unknown_cost, 'call')}"
        yield f"this cost {money(self.cost_usd)}{unknown if self.unknown_cost else ''}: {exact}"
        for error in self.errors:
            yield f"not answered: {error}"


class Heard:
    """A worker whose replies are noted as they are handed over."""

    def __init__(self, worker: FaultyWorker) -> None:
        self.profile = worker.profile
        self.worker = worker
        self.said: Counter[Usage] = Counter()

    async def reply(self, request: Request) -> Reply:
        """The worker's reply."""
        reply = await self.worker.reply(request)
        self.said[plausible_usage(reply.usage)] += 1
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """The worker's stream."""
        async with aclosing(self.worker.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    self.said[plausible_usage(piece.usage)] += 1
                yield piece


async def stressed(settings: Settings, runs: int, *, offline: bool) -> Stressed:
    """Carry out so many workflows over the pool with faults."""
    for described in settings.workers:
        for model in weights_of(described):
            await fetch(model, offline=offline)
    http = Http()
    assembly = assemble(settings, os.environ, http)
    heard = [
        Heard(FaultyWorker(worker, FAULTS))
        for worker in assembly.workers
        if worker.profile.provider != CONDUCTOR_PROVIDER  # it would have to plan
    ]
    rest: list[Worker] = [
        worker for worker in assembly.workers if worker.profile.provider == CONDUCTOR_PROVIDER
    ]
    try:
        async with AsyncPodium(
            [*heard, *rest],
            assembly.conductor,
            pool=settings.pool,
            options=default_options(settings),
            retry=settings.retry,
            breaker=settings.breaker,
            hedges=settings.hedges,
        ) as podium:
            began = time.perf_counter()
            done = await _performed(podium, [each.profile.name for each in heard], runs)
            took = time.perf_counter() - began
            openings = (await podium.open()).call_policy.breakers.openings
            return _summed(done, heard, openings, took)
    finally:
        await assembly.close()
        await http.close()


async def _performed(podium: AsyncPodium, names: Sequence[str], runs: int) -> list[Run]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Run:
        async with places:
            return await podium.run(
                _workflow(names, number),
                f"This is rehearsal {number}. Reply with the word ok.",
                response_options=ResponseOptions(max_tokens=MOST_TOKENS),
                stream=number % 2 == 1,
            )

    return list(await asyncio.gather(*map(one, range(runs))))


def _workflow(names: Sequence[str], number: int) -> Workflow:
    """Two steps side by side and one that reads both; each worker has every part in turn."""
    one, two, three = (names[(number + shift) % len(names)] for shift in range(3))
    return Workflow(
        (
            Step(one, "Reply with the word ok."),
            Step(two, "Reply with the word fine."),
            Step(three, "Reply with the word done.", (0, 1)),
        )
    )


def _summed(
    runs: Sequence[Run], heard: Sequence[Heard], openings: Counter[str], took: float
) -> Stressed:
    steps = [step for run in runs for step in run.steps]
    calls = [call for run in runs for call in run.calls]
    taken_over = Counter(
        step.answered_by for step in steps if step.answered_by not in ("", step.worker)
    )
    failed = Counter(call.worker for call in calls if call.error is not None and call.was_made)
    prices = {each.profile.name: each.profile.price for each in heard}
    misstated = 0
    for each in heard:
        good = [c for c in calls if c.worker == each.profile.name and c.error is None]
        misstated += (Counter(call.usage for call in good) - each.said).total()
        price = prices[each.profile.name]
        misstated += sum(
            call.cost_usd != (price.cost(call.usage) if price else None) for call in good
        )
    return Stressed(
        runs=len(runs),
        answered=sum(run.status == "answered" for run in runs),
        retries=sum(
            max(0, count - 1)
            for step in steps
            for count in Counter(call.worker for call in step.attempts if call.was_made).values()
        ),
        fallbacks=taken_over.total(),
        openings=openings.total(),
        seconds=took,
        cost_usd=sum(call.cost_usd or 0.0 for call in calls),
        unknown_cost=sum(call.cost_usd is None for call in calls),
        misstated=misstated,
        errors=tuple(sorted({run.error or "" for run in runs if run.status != "answered"})),
        workers=tuple(
            StressedWorker(
                worker=each.profile.name,
                calls=each.worker.calls,
                faults=each.worker.injected.total(),
                failed=failed[each.profile.name],
                took_over=taken_over[each.profile.name],
                openings=openings[each.profile.name],
            )
            for each in heard
        ),
    )
