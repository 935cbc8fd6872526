"""The runs of the chaos parts. A question begins with its mark, such as `chaos-000001`."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
from fastapi import FastAPI

from benchmarks.chaos.upstream import MARK, StepName, tokens_of
from podium.config import discover_settings
from podium.core.errors import ConfigError
from podium.core.request import Price
from podium.core.run import Run
from podium.core.workflow import Access, Step, Workflow
from podium.server.startup import create_application
from podium.store import RunStore, RunSummary

PAGE: Final = 500
DEEPER: Final = "deeper"
"""The worker that is a run of its own."""

PRICE: Final = Price(input=1.0, output=4.0)
"""The price of a call of the upstream."""


EXACT_USD: Final = 1e-9
"""Tolerance for money: sums of fractions depend on their order."""

ENDED: Final = frozenset({"answered", "partial", "failed", "exhausted"})


def has_ended(run: Run) -> bool:
    """True if the run ended: answered, or failed with a named cause."""
    if run.status not in ENDED:
        return False
    return run.answer is not None if run.status == "answered" else bool(run.error)


def read_data(name: str) -> str:
    """Read a file beside this module."""
    return Path(__file__).with_name(name).read_text("utf-8")


@asynccontextmanager
async def application_in_process(
    directory: Path, configuration: str
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Run the server's application in this process, with a client; only the socket is missing."""
    path = directory / "podium.toml"
    path.write_text(configuration, "utf-8")
    app = create_application(lambda: discover_settings(os.environ, config=path))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield app, client


async def run_concurrently(
    count: int, in_flight: int, perform: Callable[[int], Awaitable[None]]
) -> None:
    """Run `perform` for `count` numbers, `in_flight` at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await perform(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(work())


async def every_run(store: RunStore) -> AsyncIterator[RunSummary]:
    before = None
    while page := await store.list(limit=PAGE, before=before):
        for summary in page:
            yield summary
        before = page[-1].id


async def runs_by_mark(store: RunStore) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    async for summary in every_run(store):
        found.setdefault(mark_of(summary.question), []).append(await store.load(summary.id))
    return found


def seeded_random(*of: object) -> random.Random:
    return random.Random(":".join(map(str, of)))  # noqa: S311 -- seeded_random, not unguessable


def mark_of(question: str) -> str:
    found = MARK.search(question)
    if found is None:
        raise ConfigError(f"expected a question with a mark such as chaos-000001, got {question!r}")
    return found[0]


def cost_of(mark: str) -> float:
    read, written = tokens_of(mark)
    return (read * PRICE.input + written * PRICE.output) / 1_000_000


def connect_steps(workers: list[str], subtask: str, shape: str, rng: random.Random) -> Workflow:
    """Return a workflow of these workers; the shape decides which earlier steps each one reads."""

    def access(index: int) -> Access:
        before = tuple(range(index))
        match shape:
            case "chain":
                return before[-1:]
            case "join":
                return before if index == len(workers) - 1 else ()
            case "all":
                return "all"
            case _:
                return tuple(step for step in before if rng.random() < 0.5)

    steps = [Step(name, f"{subtask} {n}", access(n)) for n, name in enumerate(workers)]
    return Workflow(tuple(steps))


def steps_done(run: Run, mark: str) -> list[StepName]:
    return [StepName(mark, step.worker) for step in run.steps if step.status == "done"]
