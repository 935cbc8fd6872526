from __future__ import annotations

from podium.workers.sandbox.doctor import overhead, wall_lines
from podium.workers.sandbox.sandbox import Wall


def test_a_wall_that_is_missing_is_shown_with_the_reason() -> None:
    stands, missing = Wall("limits", "not for long", None), Wall("users", "nobody", "not allowed")
    assert wall_lines([stands, missing]) == [
        "stands   limits  not for long",
        "MISSING  users   nobody\n                 because: not allowed",
    ]


async def test_what_a_run_costs_is_measured_beside_a_bare_start() -> None:
    cost = await overhead(times=1)
    assert 0 < cost.bare.processor < cost.bare.clock * 2
    assert cost.program.processor > 0
