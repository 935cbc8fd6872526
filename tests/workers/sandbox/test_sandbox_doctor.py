from __future__ import annotations

from podium.workers.sandbox import IsolationLayer
from podium.workers.sandbox.doctor import format_layers, measure_overhead


def test_a_layer_that_is_missing_is_shown_with_the_reason() -> None:
    stands, missing = (
        IsolationLayer("limits", "not for long", None),
        IsolationLayer("users", "nobody", "not allowed"),
    )
    assert format_layers([stands, missing]) == [
        "active   limits  not for long",
        "MISSING  users   nobody\n                 because: not allowed",
    ]


async def test_what_a_run_costs_is_measured_beside_a_bare_start() -> None:
    costs = await measure_overhead(times=1)
    bare = costs["start of Python"]
    assert 0 < bare.cpu_ms < bare.wall_ms * 2
    assert costs["program with one input"].cpu_ms > 0
