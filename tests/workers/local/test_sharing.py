"""One value for each key while it is held."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from podium.workers.local.batching import SharedByKey


class Loaded:
    def __init__(self, name: str) -> None:
        self.name = name


def test_equal_settings_share_one_model() -> None:
    shared = SharedByKey(Loaded)
    with ThreadPoolExecutor(8) as threads:
        held = list(threads.map(shared, ["a"] * 50))
    assert len(set(map(id, held))) == 1
    assert shared("b") is not held[0]


def test_a_released_object_is_created_again() -> None:
    made: list[str] = []

    def make(name: str) -> Loaded:
        made.append(name)
        return Loaded(name)

    shared = SharedByKey(make)
    held = shared("a")
    assert shared("a") is held
    del held
    gc.collect()
    assert shared("a").name == "a"
    assert made == ["a", "a"]
