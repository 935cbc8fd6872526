from __future__ import annotations

from collections.abc import Iterator

from benchmarks.timing import Chains, Timing, run_interleaved


class Sprinter:
    """A contestant whose blocks take what the test says."""

    def __init__(self, name: str, times: list[float], diary: list[str]) -> None:
        self.name = name
        self._times: Iterator[float] = iter(times)
        self._diary = diary

    async def block(self) -> float:
        self._diary.append(self.name)
        return next(self._times)


async def test_the_quickest_and_the_middle_block_of_each_contestant_are_kept() -> None:
    diary: list[str] = []
    timings = await run_interleaved(
        [Sprinter("a", [5.0, 3.0, 9.0], diary), Sprinter("b", [1.0, 2.0, 8.0], diary)], 3
    )
    assert timings == {"a": Timing(3.0, 5.0), "b": Timing(1.0, 2.0)}


async def test_contestants_take_turns_and_none_always_comes_last() -> None:
    diary: list[str] = []
    contestants = [Sprinter(name, [1.0] * 3, diary) for name in "abc"]
    await run_interleaved(contestants, 3)
    turns = [diary[start : start + 3] for start in range(0, 9, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert {turn[-1] for turn in turns} == {"a", "b", "c"}


async def test_a_block_runs_one_untimed_chain_and_then_the_given_number() -> None:
    carried_out = 0

    async def carry_out() -> None:
        nonlocal carried_out
        carried_out += 1

    microseconds = await Chains("counting", carry_out, chains_a_block=4).block()
    assert carried_out == 5
    assert 0 < microseconds < 1e6
