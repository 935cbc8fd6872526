"""How an evaluation was made: a command that measures the same, and the workers it was made with.

The command is put together of what is on record: of a pool's file just its name. The files of a
configuration and of data are not, so it names none of them. Which workers there were is said beside
it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from podium._util.lab import ORACLE
from podium.core.pool import WorkerProfile
from podium.evals.page.markup import Markup, element
from podium.evals.page.tables import table
from podium.evals.tables.measured import Measured
from podium.evals.written import EMBEDDED

MOST_RUNS_READ: Final = 40
"""A run of the études has some of the workers; in so many, all of them are met."""


def making(measured: Measured) -> Iterator[Markup]:
    """The command and the workers, where the evaluation says what it set out to measure."""
    names = measured.begun.get("workers")
    if not names:
        return
    met = _workers_met(measured)
    yield element("pre", shlex.join(_command(measured, met)))
    cells = [(name, met[name].provider, _shown(met[name].model)) for name in names if name in met]
    listed = table("The workers", ("worker", "provider", "model"), cells)
    yield element("div", listed, class_="words")
    if unmet := [name for name in names if name not in met]:
        yield element("p", f"In none of the runs looked at: {', '.join(unmet)}.", class_="aside")


def _shown(model: str) -> str:
    """The model; of one that is a file here, just the file's name, for pages are sent to others."""
    path = model.removeprefix("file:")
    return Path(path).name if path.startswith("/") else model


def _workers_met(measured: Measured) -> dict[str, WorkerProfile]:
    """The workers in the pools of some runs, by name."""
    samples = ((row.strategy, sample) for row in measured.measured for sample in row.samples)
    return {
        profile.name: profile
        for strategy, sample in islice(samples, MOST_RUNS_READ)
        for profile in measured.run(strategy, sample).pool
    }


def _command(measured: Measured, met: Mapping[str, WorkerProfile]) -> Iterator[str]:
    begun = measured.begun
    yield from ("podium", "eval", "run", measured.suite)
    if met and all(worker.provider == ORACLE for worker in met.values()):
        yield "--oracle"
    yield from _given("--pool", None if measured.pool in ("", EMBEDDED) else measured.pool)
    yield from _given("--conductor", begun.get("conductor"))
    yield from _given("--untrained", begun.get("untrained"))
    yield from _given("--limit", begun.get("limit"))
    yield from _given("--seed", begun.get("seed"))
    repeats = int(measured.told.get("repeats") or 1)
    yield from _given("--repeats", repeats if repeats > 1 else None)
    yield from _varied(begun.get("variant") or {})
    yield from _given("--judge", begun.get("judge"))
    yield from _given("--strategy", ",".join(row.strategy for row in measured.rows))


def _varied(variant: Mapping[str, Any]) -> Iterator[str]:
    """What is changed about the études."""
    yield from _given("--shapes", ",".join(variant.get("shapes") or ()) or None)
    if variant.get("pool_order", "drawn") != "drawn":
        yield from _given("--pool-order", variant["pool_order"])
    if variant.get("drop_one"):
        yield "--drop-one"
    yield from _given("--flaky", variant.get("flaky") or None)


def _given(option: str, value: object) -> Iterator[str]:
    if value is not None:
        yield from (option, str(value))
