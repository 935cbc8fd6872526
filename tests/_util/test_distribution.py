from __future__ import annotations

import math

import pytest

from podium._util.distribution import entropy_bits, shares


def test_entropy_is_the_logarithm_of_how_many_are_used_alike() -> None:
    assert entropy_bits({"a": 5}) == 0.0
    assert entropy_bits({"a": 2, "b": 2, "c": 2, "d": 2, "never": 0}) == pytest.approx(2.0)
    assert entropy_bits({"a": 3, "b": 1}) == pytest.approx(-0.75 * math.log2(0.75) + 0.5)
    assert entropy_bits({}) == 0.0


def test_shares_are_sorted_and_leave_out_zeros() -> None:
    assert list(shares({"b": 1, "a": 1, "c": 2, "d": 0}).items()) == [
        ("c", 0.5),
        ("a", 0.25),
        ("b", 0.25),
    ]
