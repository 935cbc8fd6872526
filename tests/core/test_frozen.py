from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from podium.core.frozen import fast_init


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "b"
    c: tuple[int, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class Quick:
    a: int
    b: str = "b"
    c: tuple[int, ...] = ()


def test_a_quick_value_is_built_like_any_dataclass() -> None:
    assert repr(Quick(1, c=(2,))) == repr(Plain(1, c=(2,))).replace("Plain", "Quick")
    assert replace(Quick(1), b="x") == Quick(1, "x")
    with pytest.raises(TypeError):
        Quick()  # type: ignore[call-arg]


def test_a_quick_value_is_frozen_hashable_and_pickles() -> None:
    value = Quick(1)
    with pytest.raises(FrozenInstanceError):
        value.a = 2  # type: ignore[misc]
    assert hash(value) == hash(Quick(1))
    assert type(value) is Quick
    assert pickle.loads(pickle.dumps(value)) == value
