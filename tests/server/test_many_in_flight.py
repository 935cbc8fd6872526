"""A thousand requests at once, on an upstream that answers none of them before it has them all."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

THOUSAND: Final = 1000
MAX_MEGABYTES: Final = 400
MAX_SECONDS: Final = 20.0

USUAL_FILES: Final = 1024

POOL: Final = """
[conductor]
kind = "router"

[store]
path = "runs.db"

[[worker]]
name = "slow"
provider = "openai-compatible"
model = "slow-1"
base_url = "{address}"
price = {{ input = 1.0, output = 2.0 }}
"""

WAYS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}),
    ("/v1/responses", {"input": "Why?"}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 100}),
)
MODELS: Final = ("podium-mini", "podium-ultra", "slow")


class Upstream:
    """Speaks OpenAI's protocol, and keeps everybody waiting until all are there."""

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.there = 0
        self.all_there = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.there += 1
        if self.there == self.awaited:
            self.all_there.set()
        await self.all_there.wait()
        if not body.get("stream"):
            return web.json_response(
                {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "slow-1",
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": "stop",
                            "message": {"role": "assistant", "content": "Because it is so."},
                        }
                    ],
                    "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
                }
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in ("Because", " it is so."):
            await response.write(_chunk({"content": piece}))
        await response.write(_chunk({}, finish="stop"))
        await response.write(b"data: [DONE]\n\n")
        return response


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    document: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "slow-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if finish:
        document["usage"] = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


@asynccontextmanager
async def upstream(awaited: int) -> AsyncIterator[tuple[Upstream, str]]:
    slow = Upstream(awaited)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", slow.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield slow, f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def podium_serve(directory: Path, pool: str) -> AsyncIterator[tuple[int, str]]:
    """`podium serve` in a process of its own, from a shell that allows no more open files than
    shells usually do; gives its id and its address."""
    (directory / "podium.toml").write_text(pool, "utf-8")
    log = directory / "log"
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'ulimit -S -n {USUAL_FILES}; exec "$@"', "sh"),
            *(sys.executable, "-m", "podium", "serve", "--port", "0"),
            cwd=directory,
            env={**os.environ, "PODIUM_CONFIG": ""},
            stderr=written,
        )
    try:
        async with asyncio.timeout(60):
            while "running on" not in log.read_text("utf-8"):
                assert process.returncode is None, log.read_text("utf-8")
                await asyncio.sleep(0.02)
        found = re.search(r"running on (http://[\d.]+:\d+)", log.read_text("utf-8"))
        assert found, log.read_text("utf-8")
        yield process.pid, found[1]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                await process.wait()


def most_megabytes(pid: int) -> float:
    """The most memory that a process has had resident."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def busy_seconds(pid: int) -> float:
    """How long this process and that one have been at work: what it takes on a machine that is
    quiet, however busy this one is."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def files_for_all() -> None:
    """Each request is two connections of this process, which tests may not have by default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 3 * THOUSAND:
        pytest.skip(f"this machine allows {most} open files a process, and this takes more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.usefixtures("files_for_all")
async def test_a_thousand_are_answered_at_once_within_400_mb(tmp_path: Path) -> None:
    async with (
        upstream(THOUSAND) as (slow, address),
        podium_serve(tmp_path, POOL.format(address=address)) as (pid, server),
        aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=60),
        ) as client,
    ):

        async def ask(number: int) -> tuple[int, str]:
            path, body = WAYS[number % len(WAYS)]
            model = MODELS[number // len(WAYS) % len(MODELS)]
            wish = {"model": model, "stream": number % 2 == 0}
            async with client.post(path, json=body | wish) as response:
                return response.status, await response.text()

        began = busy_seconds(pid)
        results = await asyncio.gather(*(ask(number) for number in range(THOUSAND)))
        seconds = busy_seconds(pid) - began
        megabytes = most_megabytes(pid)
    failed = [(status, text) for status, text in results if status != 200]
    assert not failed, failed[:3]
    assert all("it is so." in text for _, text in results)
    assert slow.there == THOUSAND
    print(f"{seconds:.1f} s, {megabytes:.0f} MB")  # noqa: T201 - the figures, with pytest -s
    assert megabytes < MAX_MEGABYTES
    assert seconds < MAX_SECONDS
