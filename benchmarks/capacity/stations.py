"""The servers whose capacity is measured: one process, several of one machine, or replicas over one
Postgres; each with a pool of one worker, which is the upstream."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.capacity.processes import family_cpu_seconds, family_memory_bytes
from benchmarks.server_processes import Started, free_port, server_process
from benchmarks.server_upstream import MODEL

MOST_IN_FLIGHT: Final = 5000
"""More than any measurement has: nobody is to wait for a place."""

THREE_STEPS: Final = {
    "steps": [
        {"worker": MODEL, "subtask": "Find what is asked", "access": []},
        {"worker": MODEL, "subtask": "Reckon", "access": [0]},
        {"worker": MODEL, "subtask": "Answer", "access": "all"},
    ]
}

CONFIGURATION: Final = """
[conductor]
kind = "fixed"
workflow = "three-steps.json"

[store]
{store}

[server]
in_flight = {in_flight}

[[worker]]
name = "{model}"
provider = "openai-compatible"
model = "{model}"
base_url = "http://127.0.0.1:{upstream}/v1"
price = {{ input = 1.0, output = 1.0 }}
limits = {{ concurrency = {in_flight} }}
"""


class Load(NamedTuple):
    """What is asked for: a model's name, and how many steps a run of it has; none for a worker by
    its own name, which is called at once."""

    name: str
    model: str
    steps: int


LOADS: Final = (
    Load("a worker by its name", MODEL, 0),
    Load("a run of one step", "podium-mini", 1),
    Load("a run of three steps", "podium-ultra", 3),
)


@dataclass(frozen=True, slots=True)
class Station:
    """So many replicas of so many processes each, over SQLite where there is no `url`."""

    name: str
    replicas: int = 1
    workers: int = 1
    url: str | None = None

    @property
    def processes(self) -> int:
        """How many processes answer."""
        return self.replicas * self.workers


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a station, ready."""

    servers: Sequence[Started]

    @property
    def ports(self) -> list[int]:
        """Where they listen."""
        return [server.port for server in self.servers]

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that all their processes have had so far."""
        return sum(family_cpu_seconds(server.process.pid) for server in self.servers)

    @property
    def memory_bytes(self) -> int:
        """The memory that all their processes hold."""
        return sum(family_memory_bytes(server.process.pid) for server in self.servers)


@asynccontextmanager
async def running(station: Station, upstream: int, directory: Path) -> AsyncIterator[Running]:
    """Start the servers of the station over that upstream, and end them."""
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(station.replicas):
            home = directory / f"replica-{number}"
            home.mkdir(parents=True, exist_ok=True)
            _configure(home, station, upstream)
            port = free_port()
            said = ("--host", "127.0.0.1", "--port", str(port), "--workers", str(station.workers))
            command = (sys.executable, "-P", "-m", "podium", "serve", "--config", "bench.toml")
            process = server_process(
                "podium serve",
                (*command, *said),
                port=port,
                ready="/readyz",
                directory=home,
                environment={"PODIUM_HOME": str(home)},
            )
            servers.append(await stack.enter_async_context(process))
        yield Running(servers)


def _configure(home: Path, station: Station, upstream: int) -> None:
    store = 'path = "runs.db"' if station.url is None else f"url = {json.dumps(station.url)}"
    text = CONFIGURATION.format(
        store=store, in_flight=MOST_IN_FLIGHT, model=MODEL, upstream=upstream
    )
    (home / "bench.toml").write_text(text, "utf-8")
    (home / "three-steps.json").write_text(json.dumps(THREE_STEPS), "utf-8")
