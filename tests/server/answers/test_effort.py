from __future__ import annotations

import pytest

from podium.core.request import Effort
from podium.engine.runner import Options
from podium.server.answers.tiers import PlanLimits, limits_for_effort

USUAL = Options(max_steps=5, rounds=1)


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        ("none", PlanLimits(1, 1)),
        ("minimal", PlanLimits(1, 1)),
        ("low", PlanLimits(2, 1)),
        ("medium", PlanLimits(5, 1)),
        (None, PlanLimits(5, 1)),
        ("high", PlanLimits(5, 2)),
    ],
)
def test_more_effort_is_more_steps_and_rounds(effort: Effort | None, expected: PlanLimits) -> None:
    assert limits_for_effort(effort, USUAL) == expected


def test_no_effort_goes_beyond_the_steps_that_the_settings_allow() -> None:
    assert limits_for_effort("low", Options(max_steps=1)).max_steps == 1
    assert limits_for_effort("high", Options(max_steps=3, rounds=4)) == PlanLimits(3, 5)


def test_a_conductor_that_would_not_plan_again_has_one_round() -> None:
    limits = limits_for_effort("high", Options(max_steps=3, rounds=4), lambda: False)
    assert limits == PlanLimits(3, 1)
