"""The measurement behind `benchmarks server`: Podium and the LiteLLM proxy over one upstream.

One process each. They take turns, in several rounds, so that what disturbs one disturbs all.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from benchmarks.environment import InstallCommands, Say, install_commands
from benchmarks.server_client import Call, first_tokens, flood
from benchmarks.server_contestants import (
    TIER,
    litellm_python,
    litellm_server,
    litellm_version,
    podium_server,
)
from benchmarks.server_figures import Costs, ServerFigures, Start
from benchmarks.server_processes import Started, upstream_process
from benchmarks.server_upstream import MODEL

IN_FLIGHT: Final = 32

IDLE_SECONDS: Final = 0.1
IDLE_SHARE: Final = 0.02
MOST_IDLE_TRIES: Final = 100
"""A server is idle when it had less than this share of a core for so long: it looks around ten
times a second even then. What it keeps it may write later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured: rounds, seconds of each contestant in a round, streams, starts."""

    rounds: int
    seconds: float
    streams: int
    starts: int


USUAL: Final = Extent(rounds=5, seconds=2.0, streams=60, starts=3)
QUICK: Final = Extent(rounds=1, seconds=0.2, streams=3, starts=1)


class Spending(Protocol):
    """Whatever has had CPU time."""

    @property
    def cpu_seconds(self) -> float:
        """How much so far."""
        ...


class Contestant(NamedTuple):
    """A server, and what is asked of it."""

    server: Started
    call: Call


async def measure_server(
    extent: Extent,
    *,
    peers: bool,
    litellm: Path | None,
    say: Say,
    install: InstallCommands = install_commands,
) -> ServerFigures:
    """Measure Podium's server and, with `peers`, the LiteLLM proxy, run by the Python `litellm`
    or by that of an environment made for it. Where none can be made, Podium is measured alone."""
    python = await litellm_python(litellm, say, install) if peers else None
    version = await litellm_version(python) if python is not None else None
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        say(f"starting podium serve {1 + extent.starts} times …")
        starts = [await _start(upstream, directory) for _ in range(extent.starts)]
        ours = await stack.enter_async_context(podium_server(upstream, directory))
        starts.append(_start_of(ours))
        their_start = None
        contestants = {
            "podium": Contestant(ours, Call(ours.port, MODEL)),
            "one_step": Contestant(ours, Call(ours.port, TIER)),
        }
        if python is not None:
            say("starting the LiteLLM proxy …")
            theirs = await stack.enter_async_context(litellm_server(python, upstream, directory))
            their_start = _start_of(theirs)
            contestants["litellm"] = Contestant(theirs, Call(theirs.port, MODEL))
        say(f"measuring {extent.rounds} rounds, {extent.seconds:g} s of each in turn …")
        load_before = os.getloadavg()[0]
        costs = await _take_turns(contestants, extent)
        calls = {name: contestant.call for name, contestant in contestants.items()}
        waits = await first_tokens({"upstream": Call(upstream, MODEL), **calls}, extent.streams)
    return ServerFigures(
        costs=costs,
        first_tokens=waits,
        starts=tuple(starts[1:]),  # the first may have had everything to compile
        litellm_start=their_start,
        litellm_version=version,
        load_average=load_before,
    )


async def _start(upstream: int, directory: Path) -> Start:
    async with podium_server(upstream, directory) as server:
        return _start_of(server)


def _start_of(server: Started) -> Start:
    """What the start of a server took; to be asked for as soon as it is ready."""
    return Start(server.seconds, server.cpu_seconds)


async def _take_turns(
    contestants: Mapping[str, Contestant], extent: Extent
) -> dict[str, tuple[Costs, ...]]:
    """What a request cost each in each round; one more round comes before and is not counted."""
    rounds: dict[str, list[Costs]] = {name: [] for name in contestants}
    for _ in range(1 + extent.rounds):
        for name, contestant in contestants.items():
            rounds[name].append(await _cost(contestant, extent.seconds))
    return {name: tuple(costs[1:]) for name, costs in rounds.items()}


async def _cost(contestant: Contestant, seconds: float) -> Costs:
    server = contestant.server
    before = server.cpu_seconds
    flooded = await flood(contestant.call, in_flight=IN_FLIGHT, seconds=seconds)
    after = await once_idle(server)
    return Costs(per_second=flooded.per_second, cpu_ms=(after - before) / flooded.requests * 1000)


async def once_idle(server: Spending) -> float:
    """The CPU time of a server, once what it had left to do is done."""
    spent = server.cpu_seconds
    for _ in range(MOST_IDLE_TRIES):
        await asyncio.sleep(IDLE_SECONDS)
        before, spent = spent, server.cpu_seconds
        if spent - before < IDLE_SHARE * IDLE_SECONDS:
            break
    return spent
