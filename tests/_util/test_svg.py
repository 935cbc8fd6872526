from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium._util.svg import DARK, LIGHT, Scale, ticks


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6))
def test_round_values_embrace_what_they_stand_beside(low: float, extent: float) -> None:
    found = ticks(low, low + extent)
    assert found[0] <= low + extent * 1e-6
    assert found[-1] >= (low + extent) - extent * 1e-6
    assert 2 <= len(found) <= 8


def test_one_value_alone_has_a_scale_too() -> None:
    assert ticks(3.0, 3.0) == pytest.approx([3.0, 3.2, 3.4, 3.6, 3.8, 4.0])


def test_a_scale_goes_from_its_first_value_to_its_last() -> None:
    scale = Scale([0.0, 5.0, 10.0], 100.0, 0.0)
    assert (scale(0.0), scale(2.5), scale(10.0)) == (100.0, 75.0, 0.0)


def test_there_are_as_many_colours_on_dark_paper_as_on_light() -> None:
    assert len(set(LIGHT)) == len(set(DARK)) == len(LIGHT) == len(DARK)
