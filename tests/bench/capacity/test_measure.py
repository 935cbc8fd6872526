"""The measurement of capacity, a moment of it: every process is real, and so is the Postgres."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import server
from benchmarks.capacity import measure as module
from benchmarks.capacity.measure import (
    LOADS,
    CapacitySize,
    ServerGroup,
    as_text,
    measure_capacity,
    process_tree,
    server_groups,
    tree_cpu_seconds,
    tree_memory_bytes,
)
from benchmarks.postgres import programs
from podium.core.errors import ConfigError
from support.postgres import MISSING

MOMENT = CapacitySize(seconds=0.05, warmup_seconds=0.02, in_flight=12, database_seconds=1)


def test_one_process_one_machine_and_replicas_are_measured() -> None:
    found = server_groups("postgresql://host/name")
    assert [group.processes for group in found] == [1, os.cpu_count(), 1, 3]
    assert [group.url is not None for group in found] == [False, False, True, True]
    assert [group.url for group in server_groups(None)] == [None, None]


@pytest.mark.skipif(programs() is None, reason=MISSING)
async def test_a_short_measurement_of_replicas_counts_requests_and_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "server_groups", lambda url: [ServerGroup("replicas", 2, 1, url)])
    monkeypatch.setattr(server, "MAX_IDLE_TRIES", 2)
    lines: list[str] = []
    figures = await measure_capacity(MOMENT, loads=LOADS[2:], on_progress=lines.append)
    (row,) = figures["rows"]
    assert (row["processes"], row["in_flight"], row["steps"]) == (2, 64, 3)
    assert row["per_second"] > 0
    assert row["cpu_ms"] > 0.1
    assert row["database"]["commits"] > 0, "runs are written, several in one transaction"
    assert row["database"]["rows"] >= 4, "each with its three steps"
    assert 2 <= row["database"]["connections"] <= 30
    assert figures["memory"]["in_flight"] == 12
    assert figures["memory"]["idle_bytes"] > 20 * 2**20
    assert figures["commits_per_second"] > 1
    assert "replicas: a run of three steps …" in lines
    assert "| replicas | a run of three steps |" in as_text(figures)


async def test_requests_that_never_reach_the_worker_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.01)
    with pytest.raises(ConfigError, match="0 of 3 requests reached the worker"):
        await module.HoldingUpstream().wait_for_requests(3)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells")
def test_a_process_is_counted_with_those_that_it_started() -> None:
    import subprocess
    import sys

    waiting = [sys.executable, "-c", "sum(range(10**6)); input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as child:
        assert child.pid in set(process_tree(os.getpid()))
        assert tree_memory_bytes(os.getpid()) > tree_memory_bytes(child.pid) > 0
        assert tree_cpu_seconds(os.getpid()) > tree_cpu_seconds(child.pid) >= 0
        child.communicate(b"\n")
