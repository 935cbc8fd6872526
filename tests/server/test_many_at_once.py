"""A thousand requests in flight on slow workers, in one process: the real server, real sockets."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from support.serve_process import SlowUpstream, podium_serve_over

MANY: Final = 1000
MOST_MEGABYTES: Final = 400


def megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_a_thousand_requests_in_flight_all_end_well_in_little_memory(
    tmp_path: Path,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    upstream = SlowUpstream(MANY)
    messages = [{"role": "user", "content": "Why? " * 200}]
    async with (
        podium_serve_over(upstream, tmp_path) as serving,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
        ) as session,
    ):
        address = f"{serving.address}/v1/chat/completions"

        async def ask(model: str) -> str:
            body = {"model": model, "messages": messages}
            async with session.post(address, json=body) as response:
                answer = await response.json()
                assert response.status == 200, answer
                return str(answer["choices"][0]["message"]["content"])

        models = ["slow", "podium-mini"] * (MANY // 2)
        asking = [asyncio.create_task(ask(model)) for model in models]
        await asyncio.wait_for(upstream.all_there.wait(), 120)
        assert megabytes(serving.process.pid) < MOST_MEGABYTES
        upstream.may_answer.set()
        assert await asyncio.gather(*asking) == ["at last"] * MANY
    assert upstream.asked == MANY
