from __future__ import annotations

import pytest

from podium.core.request import Effort
from podium.engine.runner import Options
from podium.server.answers.conversation import Extent, extent

USUAL = Options(max_steps=5, rounds=1)


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        ("none", Extent(1, 1)),
        ("minimal", Extent(1, 1)),
        ("low", Extent(2, 1)),
        ("medium", Extent(5, 1)),
        (None, Extent(5, 1)),
        ("high", Extent(5, 2)),
    ],
)
def test_more_effort_is_more_steps_and_rounds(effort: Effort | None, expected: Extent) -> None:
    assert extent(effort, USUAL) == expected


def test_no_effort_goes_beyond_the_steps_that_the_settings_allow() -> None:
    assert extent("low", Options(max_steps=1)).max_steps == 1
    assert extent("high", Options(max_steps=3, rounds=4)) == Extent(3, 5)


def test_a_conductor_that_would_not_plan_again_has_one_round() -> None:
    assert extent("high", Options(max_steps=3, rounds=4), may_plan_again=False) == Extent(3, 1)
