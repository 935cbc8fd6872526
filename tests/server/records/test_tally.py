from __future__ import annotations

import asyncio
from pathlib import Path

from podium.server.records.metrics import Metrics, Tally


def counting(directory: Path, name: str) -> tuple[Metrics, Tally]:
    metrics = Metrics()
    return metrics, Tally(metrics, directory, name)


def test_the_numbers_of_all_processes_are_added_up(tmp_path: Path) -> None:
    one, tally = counting(tmp_path, "one")
    two, other = counting(tmp_path, "two")
    one.runs.add("answered")
    two.runs.add("answered", amount=2)
    two.runs.add("failed")
    one.seconds.observe(0.3, "/v1/messages", "podium")
    two.seconds.observe(3.0, "/v1/messages", "podium")
    other.write()
    page = tally.whole().text().decode()
    assert 'podium_runs_total{status="answered"} 3' in page
    assert 'podium_runs_total{status="failed"} 1' in page
    labels = 'endpoint="/v1/messages",model="podium"'
    assert f'podium_request_seconds_bucket{{{labels},le="0.5"}} 1' in page
    assert f"podium_request_seconds_count{{{labels}}} 2" in page
    assert f"podium_request_seconds_sum{{{labels}}} 3.3" in page


def test_what_one_has_written_is_not_counted_twice(tmp_path: Path) -> None:
    one, tally = counting(tmp_path, "one")
    one.runs.add("answered")
    tally.write()
    one.runs.add("answered")
    assert 'podium_runs_total{status="answered"} 2' in tally.whole().text().decode()


async def test_a_process_writes_by_itself(tmp_path: Path) -> None:
    one, tally = counting(tmp_path, "one")
    one.runs.add("answered")
    tally.start()
    await asyncio.sleep(0)
    _, other = counting(tmp_path, "two")
    assert 'podium_runs_total{status="answered"} 1' in other.whole().text().decode()
    one.runs.add("answered")
    await tally.close()
    assert 'podium_runs_total{status="answered"} 2' in other.whole().text().decode()
