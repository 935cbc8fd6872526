"""Asking the upstream what it was asked, while it goes on answering."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from benchmarks.chaos.checks import StepName
from benchmarks.chaos.upstream import Conduct
from benchmarks.server_processes import upstream_process

LONGEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """How often each step was asked for, how often nobody was left to hear the answer, and how
    often each fault was met."""

    steps: Mapping[StepName, int]
    cut_off: Mapping[StepName, int]
    faults: Mapping[str, int]

    def calls(self, mark: str) -> int:
        """The calls for one question."""
        return sum(count for step, count in self.steps.items() if step.mark == mark)


def chaos_upstream(conduct: Conduct) -> AbstractAsyncContextManager[int]:
    """Start an upstream that behaves like that; its port."""
    return upstream_process(
        "benchmarks.chaos.upstream",
        *("--latency-seconds", str(conduct.latency_seconds)),
        *("--fault-share", str(conduct.fault_share)),
        *("--seed", str(conduct.seed)),
    )


async def asked_of(port: int) -> Asked:
    """What the upstream on that port was asked so far."""
    async with asyncio.timeout(LONGEST_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET /counts HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().rpartition(b"content-length:")[2].split()[0])
            document = json.loads(await reader.readexactly(length))
        finally:
            writer.close()
    return Asked(
        steps=_by_step(document["asked"]),
        cut_off=_by_step(document["cut_off"]),
        faults=document["faults"],
    )


def _by_step(counts: Mapping[str, int]) -> dict[StepName, int]:
    return {StepName(*name.split(" ", 1)): count for name, count in counts.items()}
