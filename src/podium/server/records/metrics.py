"""Prometheus metrics of a server.

With several worker processes, prometheus_client's multiprocess mode adds their numbers up: each
process writes to files in `PROMETHEUS_MULTIPROC_DIR`, which the parent sets.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from podium.core.request import Usage

Metric = TypeVar("Metric", Counter, Histogram)

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
METRICS_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""The upper bounds of the duration buckets."""


class Metrics:
    """The counters and histograms of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter(
            "podium_requests_total", "Finished requests.", "endpoint", "model", "status"
        )
        self.seconds = self._histogram(
            "podium_request_seconds", "Duration of requests, to the last byte."
        )
        self.first_byte = self._histogram(
            "podium_first_byte_seconds", "Time of streams to their first byte."
        )
        self.tokens = self._counter(
            "podium_tokens_total", "Tokens as the providers reported them.", "model", "kind"
        )
        self.prompt_tokens = self._counter(
            "podium_prompt_tokens_total",
            "Input tokens by use of the prompt cache, where the provider reports it.",
            "model",
            "call",
            "cache",
        )
        self.cost = self._counter(
            "podium_cost_usd_total", "Cost in US dollars, where the price is known.", "model"
        )
        self.runs = self._counter("podium_runs_total", "Finished runs.", "status")
        self.openings = self._counter(
            "podium_breaker_openings_total", "Openings of a worker's circuit breaker.", "worker"
        )
        self.recovered = self._counter(
            "podium_runs_recovered_total", "Runs resumed here after their process died.", "status"
        )
        self.guardrails = self._counter(
            "podium_guardrails_total", "Actions of guardrails.", "guardrail", "stage", "action"
        )

    def count_tokens(self, model: str, usage: Usage, orchestration: Usage) -> None:
        """Count a request's tokens; `orchestration` is the part of `usage` that planned."""
        for kind in ("input", "output", "cached_input", "reasoning"):
            if amount := getattr(usage, f"{kind}_tokens"):
                self.tokens.labels(model, kind).inc(amount)
        for call, part in (("planning", orchestration), ("worker", usage - orchestration)):
            if part.input_tokens and part.cached_input_tokens is not None:
                hits = part.cached_input_tokens
                self.prompt_tokens.labels(model, call, "hit").inc(hits)
                self.prompt_tokens.labels(model, call, "miss").inc(part.input_tokens - hits)

    def requests_by_status(self, model: str) -> dict[str, int]:
        """Return the number of requests for a model, by status, over all processes."""
        counts: dict[str, int] = {}
        for family in self._all_processes().collect():
            for sample in family.samples:
                labels = sample.labels
                if sample.name == "podium_requests_total" and labels["model"] == model:
                    status = labels["status"]
                    counts[status] = counts.get(status, 0) + int(sample.value)
        return counts

    def render(self, **gauges: float) -> bytes:
        """Return all metrics in the Prometheus text format; `gauges` are current values."""
        lines = [f"# TYPE podium_{name} gauge\npodium_{name} {gauges[name]:g}\n" for name in gauges]
        return generate_latest(self._all_processes()) + "".join(lines).encode()

    def _all_processes(self) -> CollectorRegistry:
        if METRICS_DIRECTORY not in os.environ:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return _with_cached_labels(Counter(name, description, labels, registry=self._registry))

    def _histogram(self, name: str, description: str) -> Histogram:
        labels = ("endpoint", "model")
        return _with_cached_labels(
            Histogram(name, description, labels, buckets=SECONDS, registry=self._registry)
        )


def _with_cached_labels(metric: Metric) -> Metric:
    """Look labels up without a lock; their values are few, or the registry would grow as well."""
    vars(metric)["labels"] = cache(metric.labels)
    return metric
