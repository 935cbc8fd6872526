"""A contestant in a process of its own, with its own Python: the scripts in `peers/`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final

from podium.core.errors import ConfigError

LONGEST_WAIT_SECONDS: Final = 120.0
"""For one line from the peer. Its first start may have to compile all that it imports."""

TRACING_PREFIXES: Final = ("LANGSMITH_", "LANGCHAIN_")
"""Settings with which LangGraph would send traces somewhere, which is not what we measure."""


class PeerProcess:
    """Asks the script for one block at a time. Made by `peer_process`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def block(self) -> float:
        """Have the peer carry out one block."""
        assert self._process.stdin is not None, "the process was started with a pipe"
        self._process.stdin.write(b"\n")
        return float((await self.next_line())["microseconds"])

    async def next_line(self) -> dict[str, Any]:
        """What the peer says next."""
        assert self._process.stdout is not None, "the process was started with a pipe"
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                line = await self._process.stdout.readline()
            message: dict[str, Any] = json.loads(line)
        except (TimeoutError, ValueError) as error:
            raise ConfigError(
                f"the script for {self.name} gave no figures (what it said is above); delete its "
                f"environment to have it made anew, or leave the peers out with --no-peers"
            ) from error
        return message


@asynccontextmanager
async def peer_process(name: str, python: Path, script: str) -> AsyncIterator[PeerProcess]:
    """Start one of the scripts in `peers/` with that Python, and end it afterwards.

    `-I` keeps this process's own packages and Python settings away from it.
    """
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(TRACING_PREFIXES)
    }
    with resources.as_file(resources.files("benchmarks") / "peers" / script) as path:
        process = await asyncio.create_subprocess_exec(
            str(python),
            "-I",
            str(path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        try:
            yield PeerProcess(name, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
