"""What a search looks through: every number of a head, or its shares in some directions."""

from __future__ import annotations

import numpy as np
import pytest

from podium.core.errors import ConfigError
from podium_lab.evolution.training import SearchSpace, principal_directions
from support.evolved import described

STATES = [
    np.array(state, np.float32)
    for state in ([10, 1, 0, 0], [10, -1, 0, 0], [10, 0, 0.1, 0], [10, 0, -0.1, 0])
]
"""They have a great deal in common, differ along two axes, and never along the last."""


def test_every_number_is_free_by_default() -> None:
    about = described(("ann", "bob"), width=4)
    chosen = np.arange(float(about.size))
    assert SearchSpace(about).size == about.size == 5 * 4
    assert SearchSpace(about).parameters(chosen) is chosen


def test_along_each_direction_states_are_equally_long() -> None:
    directions = principal_directions(STATES, 3)
    along = np.array(STATES) @ directions.T
    assert np.mean(along**2, axis=0) == pytest.approx([1, 1, 1])
    assert directions[0] == pytest.approx([0.1, 0, 0, 0])


def test_shares_in_directions_stand_for_the_rows_of_a_head() -> None:
    about = described(("ann", "bob"), roles=(), width=4, matrices=("one",), ranks=(2,))
    space = SearchSpace(about, principal_directions(STATES, 2))
    assert space.size == 2 + 2 * 2
    made = space.parameters(np.array([0.5, 0.6, 3.0, 0.0, 0.0, 1.0]))
    assert made.shape == (about.size,)
    assert made[:2] == pytest.approx([0.5, 0.6])  # scales are what they are
    ann, bob = made[2:].reshape(2, 4)
    assert [ann @ state for state in STATES] == pytest.approx([3.0] * 4, rel=1e-3)
    assert bob @ STATES[0] == pytest.approx(-(bob @ STATES[1]), rel=1e-3)


def test_more_directions_than_states_differ_along_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"directions = 4, and the 4 hidden states .* along 3"):
        principal_directions(STATES, 4)


def test_states_that_are_no_numbers_have_no_directions() -> None:
    with pytest.raises(ConfigError, match=r"the 5 hidden states .* have another model\.base read"):
        principal_directions([*STATES, np.full(4, np.nan, np.float32)], 2)
