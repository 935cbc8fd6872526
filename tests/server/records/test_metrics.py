from __future__ import annotations

from podium.server.records.metrics import Counter, Histogram, Metrics


def test_a_counter_counts_for_each_combination_of_labels() -> None:
    counter = Counter("asked_total", "Questions.", ("model",))
    counter.add("podium")
    counter.add("podium", amount=2.5)
    counter.add('a"b\\c\nd')
    assert list(counter.lines()) == [
        "# HELP asked_total Questions.",
        "# TYPE asked_total counter",
        'asked_total{model="podium"} 3.5',
        'asked_total{model="a\\"b\\\\c\\nd"} 1',
    ]


def test_a_histogram_counts_into_buckets_that_add_up() -> None:
    histogram = Histogram("took_seconds", "Time.")
    for seconds in (0.004, 0.3, 0.5, 9999):
        histogram.observe(seconds)
    lines = list(histogram.lines())
    assert 'took_seconds_bucket{le="0.005"} 1' in lines
    assert 'took_seconds_bucket{le="0.25"} 1' in lines
    assert 'took_seconds_bucket{le="0.5"} 3' in lines
    assert 'took_seconds_bucket{le="+Inf"} 4' in lines
    assert "took_seconds_count 4" in lines


def test_the_page_has_what_was_counted_and_what_is_now() -> None:
    metrics = Metrics()
    metrics.runs.add("answered")
    page = metrics.text(requests_in_flight=3).decode()
    assert 'podium_runs_total{status="answered"} 1\n' in page
    assert page.endswith("podium_requests_in_flight 3\n")
