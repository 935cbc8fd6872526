"""Measure `podium serve` beside the LiteLLM proxy and Portkey's gateway, over one upstream.

Each is one process. Contestants alternate in several rounds, so that a disturbance hits all.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.environment import LITELLM, PORTKEY, OnProgress, prepare
from benchmarks.load_client import Call, first_tokens, run_load
from benchmarks.processes import (
    WORKER,
    Started,
    free_port,
    podium_process,
    server_process,
    upstream_process,
)
from benchmarks.report import AT_LEAST, AT_MOST, UNDER, Figures, machine
from benchmarks.upstream import MODEL


class Costs(NamedTuple):
    """One turn of a contestant: requests a second, and CPU milliseconds a request."""

    per_second: float
    cpu_ms: float


THRESHOLDS: Final = {
    "litellm_rps_ratio": (AT_LEAST, 15.0),
    "portkey_rps_ratio": (AT_LEAST, 2.0),
    "gateway_cpu_ms": (AT_MOST, 1.1),
    "one_step_cpu_ms": (AT_MOST, 2.5),
    "ttft_overhead_ms": (AT_MOST, 5.0),
    "cold_start_s": (UNDER, 2.0),
}


def server_figures(
    costs: Mapping[str, Sequence[Costs]],
    first_tokens: Mapping[str, Sequence[float]],
    starts: Sequence[float],
    *,
    load_average: float,
) -> Figures:
    """Take the fastest turn for rates, and medians for CPU time, first tokens and starts.

    A load average lowers rates, and hardly CPU time. Peers that were not measured are None.
    """
    rates = {name: max(turn.per_second for turn in turns) for name, turns in costs.items()}
    cpu = {name: round(median(turn.cpu_ms for turn in turns), 3) for name, turns in costs.items()}
    ttft = {name: median(waits) * 1000 for name, waits in first_tokens.items()}
    document = {
        **{
            f"{peer}_rps_ratio": round(rates["podium"] / rates[peer], 2) if peer in rates else None
            for peer in ("litellm", "portkey")
        },
        "gateway_cpu_ms": cpu["podium"],
        "one_step_cpu_ms": cpu["one_step"],
        "ttft_overhead_ms": round(max(ttft["podium"], ttft["one_step"]) - ttft["upstream"], 2),
        "cold_start_s": round(median(starts), 3),
        "requests_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "cpu_ms": cpu,
        "ttft_ms": {name: round(ms, 2) for name, ms in ttft.items()},
        "rounds": len(costs["podium"]),
        "litellm": LITELLM.version,
        "portkey": PORTKEY.version,
        "load_average": round(load_average, 2),
        **machine(),
    }
    return Figures(document, THRESHOLDS)


TIER: Final = "podium-mini"
"""A run of one step: the router chooses a worker, without a planning call."""

LITELLM_SETTINGS: Final = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it would fetch prices from the network first
}
START_LITELLM: Final = "from litellm import run_server; run_server()"


def podium_server(
    upstream: int, home: Path, more: str = ""
) -> AbstractAsyncContextManager[Started]:
    """Start `podium serve` with the upstream as its only worker, and `more` configuration."""
    worker = WORKER.format(name=MODEL, port=upstream, more="")
    return podium_process(home, text=f'{more}\n[conductor]\nkind = "router"\n{worker}')


class ServerContestant(NamedTuple):
    server: Started
    call: Call


async def start_gateways(
    stack: AsyncExitStack, upstream: int, directory: Path, on_progress: OnProgress
) -> dict[str, ServerContestant]:
    """Start the gateways that can be installed, in front of the upstream."""
    found = {}
    if (python := await prepare(LITELLM, on_progress)) is not None:
        on_progress("starting the LiteLLM proxy …")
        litellm = await stack.enter_async_context(_litellm(python, upstream, directory / "litellm"))
        found["litellm"] = ServerContestant(litellm, Call(litellm.port, MODEL))
    if (script := await prepare(PORTKEY, on_progress)) is not None:
        on_progress("starting Portkey's gateway …")
        portkey = await stack.enter_async_context(_portkey(script, directory / "portkey"))
        host = f"x-portkey-custom-host: http://127.0.0.1:{upstream}/v1"
        call = Call(portkey.port, MODEL, headers=("x-portkey-provider: openai", host))
        found["portkey"] = ServerContestant(portkey, call)
    return found


def _litellm(python: Path, upstream: int, home: Path) -> AbstractAsyncContextManager[Started]:
    """Start the LiteLLM proxy without keys, by its own Python."""
    port = free_port()
    home.mkdir()
    configuration = home / "config.yaml"
    parameters = {
        "model": f"openai/{MODEL}",
        "api_base": f"http://127.0.0.1:{upstream}/v1",
        "api_key": "none",
    }
    document = {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    configuration.write_text(json.dumps(document), "utf-8")  # JSON is YAML too
    options = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port))
    return server_process(
        "the LiteLLM proxy",
        (str(python), "-I", "-c", START_LITELLM, *options, "--num_workers", "1"),
        port=port,
        ready="/health/liveliness",
        directory=home,
        environment={**LITELLM_SETTINGS, "HOME": str(home)},
    )


def _portkey(script: Path, home: Path) -> AbstractAsyncContextManager[Started]:
    """Start Portkey's gateway, `build/start-server.js` of the npm package, by Node.js."""
    port = free_port()
    home.mkdir()
    return server_process(
        "Portkey's gateway",
        ("node", str(script), f"--port={port}", "--headless"),
        port=port,
        ready="/",
        directory=home,
        environment={"NODE_ENV": "production", "HOME": str(home)},
    )


IN_FLIGHT: Final = 32

IDLE_SECONDS: Final = 0.1
IDLE_SHARE: Final = 0.02
MAX_IDLE_TRIES: Final = 100
"""A server counts as idle when it used less than `IDLE_SHARE` of a core for `IDLE_SECONDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSize:
    """The size of a measurement; `seconds` is for each contestant in a round."""

    rounds: int
    seconds: float
    streams: int
    starts: int


USUAL: Final = ServerSize(rounds=5, seconds=2.0, streams=60, starts=3)
QUICK: Final = ServerSize(rounds=1, seconds=0.2, streams=3, starts=1)


async def measure_server(
    size: ServerSize,
    *,
    peers: bool,
    on_progress: OnProgress,
) -> Figures:
    """Measure Podium's server and, with `peers`, those gateways that can be installed."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        on_progress(f"starting podium serve {1 + size.starts} times …")
        home, starts = directory / "podium", []
        for _ in range(size.starts):
            async with podium_server(upstream, home) as server:
                starts.append(server.seconds)
        ours = await stack.enter_async_context(podium_server(upstream, home))
        starts.append(ours.seconds)
        contestants = {
            "podium": ServerContestant(ours, Call(ours.port, MODEL)),
            "one_step": ServerContestant(ours, Call(ours.port, TIER)),
        }
        if peers:
            contestants |= await start_gateways(stack, upstream, directory, on_progress)
        on_progress(f"measuring {size.rounds} rounds, {size.seconds:g} s of each in turn …")
        load_before = os.getloadavg()[0]
        costs = await _take_turns(contestants, size)
        contestants.pop("portkey", None)  # it answers streams from such an upstream with 500
        calls = {name: contestant.call for name, contestant in contestants.items()}
        waits = await first_tokens({"upstream": Call(upstream, MODEL), **calls}, size.streams)
    return server_figures(
        costs,
        waits,
        starts[1:],  # the first may have had everything to compile
        load_average=load_before,
    )


async def _take_turns(
    contestants: Mapping[str, ServerContestant], size: ServerSize
) -> dict[str, tuple[Costs, ...]]:
    """Return the costs of each contestant by round; a warm-up round is not counted."""
    rounds: dict[str, list[Costs]] = {name: [] for name in contestants}
    for _ in range(1 + size.rounds):
        for name, contestant in contestants.items():
            rounds[name].append(await _cost(contestant, size.seconds))
    return {name: tuple(costs[1:]) for name, costs in rounds.items()}


async def _cost(contestant: ServerContestant, seconds: float) -> Costs:
    server = contestant.server
    before = server.cpu_seconds
    flooded = await run_load(contestant.call, in_flight=IN_FLIGHT, seconds=seconds)
    after = await wait_until_idle(lambda: server.cpu_seconds)
    return Costs(per_second=flooded.per_second, cpu_ms=(after - before) / flooded.requests * 1000)


async def wait_until_idle(cpu_seconds: Callable[[], float]) -> float:
    """Return the CPU time of a server once it is idle."""
    spent = cpu_seconds()
    for _ in range(MAX_IDLE_TRIES):
        await asyncio.sleep(IDLE_SECONDS)
        before, spent = spent, cpu_seconds()
        if spent - before < IDLE_SHARE * IDLE_SECONDS:
            break
    return spent
