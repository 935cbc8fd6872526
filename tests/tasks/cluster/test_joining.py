from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from podium.core.errors import ConfigError, UsageError
from podium.tasks.cluster import ReplyCacheSpec, _resources, _slots, _wait_for, start_actors

REPLIES = ReplyCacheSpec(None, 1_000_000)


def join(address: str) -> None:
    with start_actors(address, object, None, REPLIES, on_gpus=False, hint=""):
        """Never got here."""


def test_without_the_package_the_extra_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[ray\]'"):
        join("auto")


def test_a_cluster_is_not_reached_from_outside() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed: NOTHING of Ray is tested")
    with pytest.raises(UsageError, match="join it with: ray start"):
        join("ray://10.0.0.1:10001")


class FakeRay:
    """As much of Ray as seats are counted by; an arrival is the number of its seat."""

    def __init__(self, resources: dict[str, float], there: int = 0) -> None:
        self._resources = resources
        self._there = there
        self.killed: list[Any] = []

    def cluster_resources(self) -> dict[str, float]:
        return self._resources

    def wait(self, arrivals: list[int], **_: Any) -> tuple[list[int], list[int]]:
        return arrivals[: self._there], arrivals[self._there :]

    def kill(self, seat: Any) -> None:
        self.killed.append(seat)


def fake_seats(count: int) -> list[Any]:
    return [
        SimpleNamespace(__ray_ready__=SimpleNamespace(remote=lambda number=number: number))
        for number in range(count)
    ]


def test_seats_are_for_cpus_or_for_cards_where_models_run_on_them() -> None:
    mixed = FakeRay({"CPU": 8, "GPU": 2})
    assert _resources(mixed, on_gpus=False) == {"num_cpus": 1}
    on_cards = _resources(mixed, on_gpus=True)
    assert on_cards == {"num_cpus": 0, "num_gpus": 1}
    assert (_slots(mixed, {"num_cpus": 1}, 1), _slots(mixed, on_cards, 1)) == (8, 2)
    assert _resources(FakeRay({"CPU": 8}), on_gpus=True) == {"num_cpus": 1}


def test_processes_that_share_a_cluster_take_a_part_of_its_seats_each() -> None:
    assert _slots(FakeRay({"CPU": 8}), {"num_cpus": 1}, 3) == 2
    with pytest.raises(UsageError, match="9 processes share the Ray cluster"):
        _slots(FakeRay({"CPU": 8}), {"num_cpus": 1}, 9)


def test_a_seat_for_which_there_is_no_place_is_done_without() -> None:
    seats, ray = fake_seats(3), FakeRay({}, there=2)
    assert _wait_for(ray, seats) == seats[:2]
    assert ray.killed == seats[2:]
    with pytest.raises(UsageError, match="started no actor"):
        _wait_for(FakeRay({}), seats)
