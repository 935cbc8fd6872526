"""Who is measured by `python -m benchmarks server`, and how each is set up over the same upstream.

Neither asks for a key. Podium keeps its runs in SQLite and logs a line for each request, as it
does when nothing else is said; the proxy has no database, and is set to log errors only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import LITELLM, InstallCommands, Say, prepare
from benchmarks.server_processes import Started, free_port, server_process
from benchmarks.server_upstream import MODEL
from podium.core.errors import ConfigError

TIER: Final = "podium-mini"
"""A run of one step: the router chooses a worker, and nobody plans."""

LITELLM_SETTINGS: Final = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it would fetch prices from the network first
}
START_LITELLM: Final = "from litellm import run_server; run_server()"
SAY_VERSION: Final = "from importlib.metadata import version; print(version('litellm'))"


def podium_server(
    upstream: int, directory: Path, more: str = ""
) -> AbstractAsyncContextManager[Started]:
    """`podium serve` with a pool of one worker, which is the upstream, and with `more` tables."""
    configuration = f"""{more}
        [conductor]
        kind = "router"

        [[worker]]
        name = "{MODEL}"
        provider = "openai-compatible"
        model = "{MODEL}"
        base_url = "http://127.0.0.1:{upstream}/v1"
        description = "answers at once"
        """
    return podium_process(configuration, directory)


def podium_process(text: str, directory: Path) -> AbstractAsyncContextManager[Started]:
    """`podium serve` with that configuration."""
    port, home = free_port(), directory / "podium"
    home.mkdir(exist_ok=True)
    configuration = home / "bench.toml"
    configuration.write_text(text, "utf-8")
    options = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port))
    return server_process(
        "podium serve",
        (sys.executable, "-P", "-m", "podium", "serve", *options),
        port=port,
        ready="/readyz",
        directory=home,
        environment={"PODIUM_HOME": str(home)},
    )


def litellm_server(
    python: Path, upstream: int, directory: Path
) -> AbstractAsyncContextManager[Started]:
    """The LiteLLM proxy, run by the Python of its own environment, with one model."""
    return litellm_process(python, {"model_list": [litellm_model(MODEL, upstream)]}, directory)


def litellm_model(name: str, upstream: int) -> dict[str, Any]:
    """A model of the proxy's, which is the upstream."""
    parameters = {
        "model": f"openai/{name}",
        "api_base": f"http://127.0.0.1:{upstream}/v1",
        "api_key": "none",
    }
    return {"model_name": name, "litellm_params": parameters}


def litellm_process(
    python: Path, document: Mapping[str, Any], directory: Path
) -> AbstractAsyncContextManager[Started]:
    """The LiteLLM proxy with that configuration, and without keys."""
    port, home = free_port(), directory / "litellm"
    home.mkdir()
    configuration = home / "config.yaml"
    general = {"dangerously_permit_weak_or_unset_master_key": True}
    whole = {**document, "general_settings": general}
    configuration.write_text(json.dumps(whole), "utf-8")  # JSON is YAML too
    options = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port))
    return server_process(
        "the LiteLLM proxy",
        (str(python), "-I", "-c", START_LITELLM, *options, "--num_workers", "1"),
        port=port,
        ready="/health/liveliness",
        directory=home,
        environment={**LITELLM_SETTINGS, "HOME": str(home)},
    )


async def litellm_python(given: Path | None, say: Say, install: InstallCommands) -> Path | None:
    """The Python that the proxy is run by; None, with a word on it, where there is none."""
    if given is not None:
        return given
    try:
        return await prepare(LITELLM, say, install)
    except ConfigError as error:
        say(
            f"{error}. Podium is measured alone: install {LITELLM.requirement} into a virtual "
            f"environment and give its Python as --litellm to have both"
        )
        return None


async def litellm_version(python: Path) -> str:
    """Which LiteLLM that Python has; raises `ConfigError` where it has none."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-I", "-c", SAY_VERSION),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise ConfigError(f"{python} is not a Python that runs: {error.strerror}") from error
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise ConfigError(
            f"{python} has no LiteLLM; install it with {python} -m pip install "
            f"'litellm[proxy]', or leave --litellm out to have one made"
        )
    return output.decode().strip()
