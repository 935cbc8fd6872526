from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from podium.core.request import NO_USAGE, Usage
from podium.server.records.metrics import METRICS_DIRECTORY, Metrics

COUNT = """
from podium.server.records.metrics import Metrics

metrics = Metrics()
metrics.runs.labels("answered").inc()
metrics.seconds.labels("/v1/messages", "podium").observe(0.3)
metrics.requests.labels("/v1/messages", "podium", "200").inc()
print(metrics.render().decode())
print(metrics.requests_by_status("podium"))
"""


def test_a_counter_counts_for_each_combination_of_labels() -> None:
    metrics = Metrics()
    metrics.cost.labels("podium").inc()
    metrics.cost.labels("podium").inc(2.5)
    metrics.cost.labels('a"b\\c\nd').inc()
    page = metrics.render().decode()
    assert "# TYPE podium_cost_usd_total counter" in page
    assert 'podium_cost_usd_total{model="podium"} 3.5\n' in page
    assert 'podium_cost_usd_total{model="a\\"b\\\\c\\nd"} 1.0\n' in page


def test_a_histogram_counts_into_buckets_that_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.004, 0.3, 0.5, 9999):
        metrics.seconds.labels("/v1/messages", "podium").observe(seconds)
    page = metrics.render().decode()
    labels = 'endpoint="/v1/messages"'
    for bound, count in (("0.005", 1), ("0.25", 1), ("0.5", 3), ("+Inf", 4)):
        line = f'podium_request_seconds_bucket{{{labels},le="{bound}",model="podium"}} {count}.0\n'
        assert line in page
    assert f'podium_request_seconds_count{{{labels},model="podium"}} 4.0\n' in page


def test_the_page_has_the_counters_and_the_gauges() -> None:
    metrics = Metrics()
    metrics.runs.labels("answered").inc()
    page = metrics.render(requests_in_flight=3).decode()
    assert 'podium_runs_total{status="answered"} 1.0\n' in page
    assert page.endswith("podium_requests_in_flight 3\n")


def test_requests_are_counted_by_status_for_a_model() -> None:
    metrics = Metrics()
    for endpoint, model, status in (
        ("/v1/messages", "gpt", "200"),
        ("/v1/responses", "gpt", "200"),
        ("/v1/messages", "gpt", "502"),
        ("/v1/messages", "podium", "200"),
    ):
        metrics.requests.labels(endpoint, model, status).inc()
    assert metrics.requests_by_status("gpt") == {"200": 2, "502": 1}


def test_the_numbers_of_all_processes_are_added_up(tmp_path: Path) -> None:
    environment = {**os.environ, METRICS_DIRECTORY: str(tmp_path)}
    pages = [
        subprocess.run(
            [sys.executable, "-c", COUNT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    labels = 'endpoint="/v1/messages"'
    for number, page in enumerate(pages, start=1):
        assert f'podium_runs_total{{status="answered"}} {number}.0\n' in page
        line = f'podium_request_seconds_bucket{{{labels},le="0.5",model="podium"}} {number}.0\n'
        assert line in page
        assert page.endswith(f"{{'200': {number}}}\n")


def test_counting_a_request_takes_little_time() -> None:
    metrics = Metrics()
    count = 2_000
    started = time.process_time()
    for _ in range(count):
        metrics.requests.labels("/v1/messages", "podium", "200").inc()
        metrics.seconds.labels("/v1/messages", "podium").observe(0.3)
        metrics.runs.labels("answered").inc()
    item = (time.process_time() - started) / count
    assert item < 0.0005, f"{item * 1e6:.0f} µs a request"


def test_prompt_tokens_are_counted_by_cache_hit_where_the_provider_reports_them() -> None:
    metrics = Metrics()
    planning = Usage(1000, 20, 900, 0, 0)
    metrics.count_tokens("podium", planning + Usage(200, 10, 0, 0, 0), planning)
    metrics.count_tokens("silent", Usage(500, 5), NO_USAGE)
    page = metrics.render().decode()
    for call, cache, tokens in (
        ("planning", "hit", 900), ("planning", "miss", 100), ("worker", "miss", 200)
    ):  # fmt: skip
        labels = f'cache="{cache}",call="{call}",model="podium"'
        assert f"podium_prompt_tokens_total{{{labels}}} {tokens}.0" in page
    assert 'podium_prompt_tokens_total{cache="miss",call="worker",model="silent"}' not in page


def test_a_cache_hit_rate_is_unknown_where_no_cache_was_reported() -> None:
    assert Usage(1000, 20, 900).cache_hit_rate == 0.9
    assert Usage(1000, 20).cache_hit_rate is None
    assert NO_USAGE.cache_hit_rate is None
