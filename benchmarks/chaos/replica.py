"""One server among several over one store: `podium serve` as anybody starts it, killed and started
again on the same port.

Each has a name of its own as machines have, so that the others cannot see whether its process is
there: they take over what it performed when its lease has run out, as between machines.
"""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.server_processes import Started, free_port, server_process
from podium._util.process import NAMED_BY


class Replica:
    """A server that is started again whenever it was killed."""

    def __init__(self, name: str, configuration: Path, directory: Path) -> None:
        self.port = free_port()
        self._name = name
        self._configuration = configuration
        self._directory = directory
        self._stack = AsyncExitStack()
        self._started: Started | None = None

    @property
    def pid(self) -> int | None:
        """The process at work, if there is one."""
        return None if self._started is None else self._started.process.pid

    async def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        self._directory.mkdir(exist_ok=True)
        options = ("--config", str(self._configuration), "--host", "127.0.0.1")
        self._started = await self._stack.enter_async_context(
            server_process(
                self._name,
                (sys.executable, "-P", "-m", "podium", "serve", *options, "--port", str(self.port)),
                port=self.port,
                ready="/readyz",
                directory=self._directory,
                environment={"PODIUM_HOME": str(self._directory), NAMED_BY: self._name},
            )
        )

    def freeze(self) -> None:
        """Let it do nothing more, so that what it has done can be looked at before it is killed."""
        assert self._started is not None, "only what was started is frozen"
        self._started.process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        """End it as no process can prevent, and wait until it is gone."""
        assert self._started is not None, "only what was started is killed"
        self._started.process.kill()
        self._started = None
        await self._stack.aclose()

    async def stop(self) -> None:
        """End it gently, if it runs."""
        self._started = None
        await self._stack.aclose()
