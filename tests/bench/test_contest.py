from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from benchmarks import timing
from benchmarks.timing import Timing, time_block, time_interleaved

Chain = Callable[[], Awaitable[tuple[str, float]]]


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of contestants, in the order in which their blocks are timed."""
    names: list[str] = []

    async def read_time(chain: Chain) -> float:
        name, microseconds = await chain()
        names.append(name)
        return microseconds

    monkeypatch.setattr(timing, "time_block", read_time)
    return names


def contestant(name: str, *times: float) -> Chain:
    """Return a contestant whose blocks take what the test says."""
    left: Iterator[float] = iter(times)

    async def chain() -> tuple[str, float]:
        return name, next(left)

    return chain


@pytest.mark.usefixtures("diary")
async def test_the_quickest_and_the_middle_block_of_each_contestant_are_kept() -> None:
    contestants = {"a": contestant("a", 5.0, 3.0, 9.0), "b": contestant("b", 1.0, 2.0, 8.0)}
    timings = await time_interleaved(contestants, 3)
    assert timings == {"a": Timing(3.0, 5.0), "b": Timing(1.0, 2.0)}


async def test_contestants_take_turns_and_none_always_comes_last(diary: list[str]) -> None:
    await time_interleaved({name: contestant(name, 1.0, 1.0, 1.0) for name in "abc"}, 3)
    turns = [diary[start : start + 3] for start in range(0, 9, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert {turn[-1] for turn in turns} == {"a", "b", "c"}


async def test_a_block_runs_one_untimed_chain_and_then_the_given_number() -> None:
    carried_out = 0

    async def execute() -> None:
        nonlocal carried_out
        carried_out += 1

    microseconds = await time_block(execute, 4)
    assert carried_out == 5
    assert 0 < microseconds < 1e6
