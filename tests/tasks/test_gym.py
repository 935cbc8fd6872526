from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from podium.core.errors import ConfigError
from podium.tasks import load_suite
from podium.tasks.suites import GymGrader

NEEDED = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed"
)


@NEEDED
async def test_a_generators_own_answer_is_right_and_so_is_another_that_it_accepts() -> None:
    task = load_suite("reasoning-gym:countdown", limit=2, seed=1)[0]
    assert (task.id, task.kind) == ("reasoning-gym/countdown/1/0", "countdown")
    assert "<answer></answer>" in task.question
    assert await task.grader(f"<answer>{task.answer}</answer>")
    assert not await task.grader(f"<answer>{task.answer} + 0 * 7</answer>")  # not its numbers
    assert await task.grader(f"<answer>({task.answer})</answer>")
    assert not await task.grader(task.answer)


@NEEDED
def test_the_seed_makes_the_tasks() -> None:
    first = load_suite("reasoning-gym:leg_counting", limit=5, seed=3)
    assert [task.question for task in first] == [
        task.question for task in load_suite("reasoning-gym:leg_counting", limit=5, seed=3)
    ]
    assert len({task.id for task in first}) == 5
    other = load_suite("reasoning-gym:leg_counting", limit=5, seed=4)
    assert first[0].question != other[0].question


@NEEDED
async def test_a_generator_that_only_compares_needs_no_sandbox() -> None:
    (task,) = load_suite("reasoning-gym:leg_counting", limit=1)
    assert isinstance(task.grader, GymGrader)
    assert task.grader.entry is None
    assert await task.grader(f"<answer>{task.answer}</answer>")
    assert not await task.grader(f"<answer>{task.answer}0</answer>")


@NEEDED
async def test_generator_errors_count_as_wrong() -> None:
    (task,) = load_suite("reasoning-gym:prime_factorization", limit=1)
    assert not await task.grader("<answer>hopeless</answer>")
    assert not await task.grader("")


@NEEDED
def test_a_generator_that_does_not_exist_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean reasoning-gym:countdown"):
        load_suite("reasoning-gym:countdwon")
    with pytest.raises(ConfigError, match="has no generator ''; there are ab, acre"):
        load_suite("reasoning-gym")
    with pytest.raises(ConfigError, match="has no generator 'composite'"):
        load_suite("reasoning-gym:composite")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"reasoning-gym.*\[gym\]"):
        load_suite("reasoning-gym:countdown", limit=1)
