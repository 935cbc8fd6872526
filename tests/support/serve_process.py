"""`podium serve` as a person starts it, over an upstream that answers when the test lets it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONFIGURATION: Final = """
[conductor]
kind = "router"

[store]
path = "runs.db"

[[worker]]
name = "slow"
provider = "openai-compatible"
base_url = "{address}/v1"
"""


REPLY: Final = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "slow",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "at last"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
).encode()


class SlowUpstream:
    """Holds every request until released. `all_there` is set at the given number."""

    def __init__(self, expected: int) -> None:
        self.asked = 0
        self.all_there = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._expected = expected

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head.lower())
                assert length is not None
                await reader.readexactly(int(length[1]))
                self.asked += 1
                if self.asked == self._expected:
                    self.all_there.set()
                await self.may_answer.wait()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                    + str(len(REPLY)).encode()
                    + b"\r\n\r\n"
                    + REPLY
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@dataclass
class ServeProcess:
    """The process, where it listens, and what it logs from then on, whole when it has ended."""

    process: asyncio.subprocess.Process
    address: str
    upstream: SlowUpstream
    log: asyncio.Task[bytes]

    async def end(self) -> int:
        """Tell it to stop, and wait until it has."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def podium_serve_over(
    upstream: SlowUpstream, directory: Path, *options: str
) -> AsyncIterator[ServeProcess]:
    """`podium serve` on a free port, with that upstream as its one worker."""
    listening = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=1024)
    port = listening.sockets[0].getsockname()[1]
    configuration = CONFIGURATION.format(address=f"http://127.0.0.1:{port}")
    (directory / "podium.toml").write_text(configuration, "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "podium", "serve", "--port", "0", "--config", "podium.toml"),
        *options,
        cwd=directory,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    found = None
    while found is None:
        line = (await process.stderr.readline()).decode()
        assert line, "it ended before it listened"
        found = re.search(r"running on (http://[\d.]+:\d+)", line)
    reading = asyncio.create_task(process.stderr.read())  # a full pipe would stop it
    serving = ServeProcess(process, found[1], upstream, reading)
    try:
        yield serving
    finally:
        upstream.may_answer.set()
        await serving.end()
        await reading
        listening.close()
