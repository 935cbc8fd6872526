"""Run one client's scenarios: straight to the upstream as control, and through `podium serve`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from clients.cases import CONTROL, Client, Tier, model_for
from clients.environments import HOME, python_of

HERE: Final = Path(__file__).parent
PATIENCE: Final = 100.0
"""Seconds for a client's scenarios; the slowest takes 20. Less than half of pytest's own limit."""

CONFIGURATION: Final = """
[conductor]
kind = "model"
model = "planner"

[store]
path = "runs.db"

[retry]
attempts = 2
initial_wait_seconds = 0.01

[breaker]
enabled = false

[[worker]]
name = "alpha"
provider = "openai-compatible"
base_url = "{upstream}/v1"
description = "a script"
price = {{ input = 1, output = 1 }}
capabilities = ["tools", "json", "sampling", "vision"]

[[worker]]
name = "beta"
provider = "openai-compatible"
base_url = "{upstream}/v1"
description = "another script"
price = {{ input = 2, output = 2 }}
capabilities = ["tools", "json", "sampling", "vision"]

[[worker]]
name = "claude"
provider = "anthropic"
base_url = "{upstream}"
description = "a script behind Messages"
price = {{ input = 3, output = 3 }}
capabilities = ["tools", "json", "sampling", "vision", "prefill"]

[[worker]]
name = "gpt"
provider = "openai"
base_url = "{upstream}/v1"
description = "a script behind Responses"
price = {{ input = 3, output = 3 }}
capabilities = ["tools", "json", "sampling", "vision"]
options = {{ api = "responses" }}

[[worker]]
name = "planner"
provider = "openai-compatible"
base_url = "{upstream}/v1"
description = "plans"
price = {{ input = 9, output = 9 }}
capabilities = []
"""

QUIET: Final = {
    "AGNO_TELEMETRY": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONWARNINGS": "ignore",
}


@contextmanager
def scripted_upstream() -> Iterator[str]:
    """Start the upstream in a process of its own; gives its address."""
    command = (sys.executable, "-P", str(HERE / "upstream.py"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(20)


@contextmanager
def podium_serve(upstream: str, directory: Path) -> Iterator[str]:
    """Start `podium serve` over the upstream; gives its address."""
    (directory / "podium.toml").write_text(CONFIGURATION.format(upstream=upstream), "utf-8")
    command = (*(sys.executable, "-P", "-m", "podium"), "serve", "--port", "0")
    log = directory / "serve.log"
    with (
        log.open("wb") as writing,
        subprocess.Popen(
            (*command, "--config", "podium.toml"), cwd=directory, stderr=writing
        ) as process,
    ):
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(40)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server says where it listens."""
    while process.poll() is None:
        if found := re.search(r"running on (http://[\d.]+:\d+)", log.read_text("utf-8")):
            return found[1]
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"podium serve ended before it listened: {log.read_text('utf-8')}")


def command_for(client: Client) -> tuple[str, ...]:
    """Return the command that starts a client's driver."""
    if client.environment == "npm":
        return ("node", str(HERE / "drivers" / f"{client.name}_client.mjs"))
    driver = HERE / "drivers" / f"{client.name}_client.py"
    return (str(python_of(client.environment)), str(driver))


def run_client(
    client: Client, command: Sequence[str], directory: Path, patience: float = PATIENCE
) -> Mapping[str, Any]:
    """Run all scenarios of a client and return the results by `scenario tier`.

    Raises `TimeoutExpired` where they take longer than `patience` seconds.

    The driver is one process, and so is the server: what one scenario leaves behind, the next
    one meets, as in the world.
    """
    with ExitStack() as stack:
        upstream = stack.enter_context(scripted_upstream())
        podium = stack.enter_context(podium_serve(upstream, directory))
        runs = []
        for scenario, tiers in client.scenarios.items():
            control: Tier = CONTROL
            for tier in (control, *tiers):
                url = upstream if tier == CONTROL else podium
                model = model_for(scenario, tier)
                runs.append({"scenario": scenario, "tier": tier, "url": url, "model": model})
        home = directory / "home"
        home.mkdir(exist_ok=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "LANG", "LC_ALL", "TMPDIR") or name.startswith("NODE_EXTRA")
        }
        environment |= QUIET | {
            "HOME": str(home),
            "UPSTREAM_URL": upstream,
            "PODIUM_URL": podium,
            "CLIENTS_NPM": str(HOME / "npm"),
            "NO_PROXY": "*",
        }
        sent = json.dumps(runs).encode()
        output = _drive(command, sent, home, environment, patience)
    results = [json.loads(line) for line in output.decode().splitlines()]
    found = {f"{result['scenario']} {result['tier']}": result for result in results}
    (directory / "results.json").write_text(json.dumps(found, indent=1), "utf-8")
    return found


def _drive(
    command: Sequence[str], sent: bytes, home: Path, environment: dict[str, str], patience: float
) -> bytes:
    """Return what a driver prints; one that hangs writes its stacks into `driver.log`."""
    pipe = subprocess.PIPE
    with (
        (home.parent / "driver.log").open("wb") as log,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, cwd=home, env=environment
        ) as process,
    ):
        try:
            return process.communicate(sent, timeout=patience)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            raise
