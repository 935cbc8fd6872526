"""What every driver shares; standard library alone, as it runs in the clients' environments.

A driver registers functions by `@scenario("chat/answer")` and ends with `main()`. It reads runs as
JSON from standard input and writes one line for each: the transcript, the ids that must differ,
and what the upstream was sent meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Scenario = Callable[["Endpoint"], Any]
SCENARIOS: dict[str, Scenario] = {}
CITY_WEATHER = "sunny, 21 degrees in {city}"
PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CAPITAL = "What is the capital of France?"
WEATHER = "What is the weather in Paris?"
CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo")


def weather_of(city: str) -> str:
    """Return what the tool of every client says."""
    return CITY_WEATHER.format(city=city)


@dataclass(frozen=True)
class Endpoint:
    """Where a client is to send its requests: `url` is the server's root."""

    url: str
    model: str
    key: str = "pk_any_text"

    @property
    def openai(self) -> str:
        """The base URL of OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def is_control(self) -> bool:
        """True where the client talks to the upstream itself."""
        return self.url == os.environ["UPSTREAM_URL"]


@dataclass(frozen=True)
class Transcript:
    """What a client ended with: anything that JSON holds, and ids that must all differ."""

    said: Any
    ids: tuple[str, ...] = ()


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    """Register a function that drives the client; it may be async."""

    def register(function: Scenario) -> Scenario:
        SCENARIOS[name] = function
        return function

    return register


def recorded() -> list[Any]:
    """Return what the upstream was sent since the last call."""
    request = urllib.request.Request(
        os.environ["UPSTREAM_URL"] + "/recorded", data=b"", method="POST"
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        found: list[Any] = json.load(response)
    return found


def main() -> None:
    """Carry out the runs that standard input lists."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a client prints itself is no transcript
    runs = json.load(sys.stdin)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    gc.disable()  # a stream collected while httpcore holds its lock closes itself and deadlocks
    for run in runs:
        gc.collect()
        recorded()
        result: dict[str, Any] = {"scenario": run["scenario"], "tier": run["tier"]}
        began = time.monotonic()
        try:
            found = SCENARIOS[run["scenario"]](Endpoint(run["url"], run["model"]))
            if inspect.isawaitable(found):
                found = loop.run_until_complete(asyncio.wait_for(found, 30))
            if not isinstance(found, Transcript):
                found = Transcript(found)
            result |= {"said": json.loads(json.dumps(found.said)), "ids": list(found.ids)}
        except Exception as error:  # noqa: BLE001 -- whatever a client raises is its result
            result["error"] = f"{type(error).__name__}: {error}"[:2000]
        result["seconds"] = round(time.monotonic() - began, 3)
        result["sent"] = recorded()
        output.write(json.dumps(result) + "\n")
        output.flush()
    output.close()
    os._exit(0)  # threads of clients, as telemetry, end with it
