"""What a search looks through: every number of a head, or its shares in some directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.core.errors import ConfigError
from podium_lab.evolution.search import SearchSpace, principal_directions, read_space
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


def test_directions_that_were_kept_are_read_again(tmp_path: Path) -> None:
    about = described(("ann", "bob"), width=4)
    space = SearchSpace(about, principal_directions(STATES, 2))
    space.save(tmp_path)
    again = read_space(about, 2, tmp_path).directions
    assert again is not None
    assert np.array_equal(again, space.directions)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"directions\.npy: cannot be read"):
        read_space(about, 2, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (
            np.ones((3, 4)),
            r"shape \(2, 4\), .* evolve\.directions = 2 .*'s is \(3, 4\)",
        ),
        (np.ones((2, 5)), r"this one's is \(2, 5\)"),
        (np.ones(8), r"this one's is \(8,\)"),
        (np.array([[1.0] * 4, [np.nan] * 4]), r"infinite or none at all"),
        (np.array([["a"] * 4] * 2), r"expected floating-point numbers, and these are <U1"),
    ],
)
def test_directions_of_another_form_are_refused(tmp_path: Path, kept: Any, reason: str) -> None:
    np.save(tmp_path / "directions.npy", kept)
    with pytest.raises(ConfigError, match=rf"directions\.npy: .*{reason}.*; start over"):
        read_space(described(("ann", "bob"), width=4), 2, tmp_path)


def test_states_that_are_no_numbers_have_no_directions() -> None:
    with pytest.raises(ConfigError, match=r"the 5 hidden states .* have another model\.base read"):
        principal_directions([*STATES, np.full(4, np.nan, np.float32)], 2)
