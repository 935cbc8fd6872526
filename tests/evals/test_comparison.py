from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from evals.evaluations import Item, write_evaluation
from podium.core.errors import UsageError
from podium.evals.comparison import compare_directories

RIGHT = "42"


async def written(directory: Path, answers: Mapping[str, str], name: str = "conductor") -> Path:
    """Samples as an evaluation leaves them; the one right answer is 42."""
    return await write_evaluation(directory, {name: [(Item(n), a) for n, a in answers.items()]})


async def test_tasks_are_matched_by_their_ids_in_whatever_order_they_ended(tmp_path: Path) -> None:
    first = await written(tmp_path / "a", {"x": RIGHT, "y": "1", "z": RIGHT, "w": "2"})
    second = await written(tmp_path / "b", {"w": "3", "z": "4", "y": RIGHT, "x": RIGHT})
    document = compare_directories(first, second, "conductor").document()
    assert document["n"] == 4
    assert document["first"]["value"] == document["second"]["value"] == 0.5
    assert (document["difference"]["gained"], document["difference"]["lost"]) == (1, 1)
    assert document["same_answers"]["value"] == 0.25


async def test_flipped_samples_list_gains_before_losses(tmp_path: Path) -> None:
    first = await written(tmp_path / "a", {"x": RIGHT, "y": "1", "z": RIGHT, "w": "2"})
    second = await written(tmp_path / "b", {"x": "0", "y": RIGHT, "z": RIGHT, "w": RIGHT})
    comparison = compare_directories(first, second, "conductor")
    assert [(flip.first.task, flip.is_gain) for flip in comparison.flips] == [
        ("y", True),
        ("w", True),
        ("x", False),
    ]
    assert comparison.flips[0].second.answers == (RIGHT,)
    assert comparison.document()["flipped"] == {"gained": ["y", "w"], "lost": ["x"]}


async def test_exactly_two_points_are_within_two_points_in_either_direction(
    tmp_path: Path,
) -> None:
    """In floating point, 0.9 less 0.88 is a little more than 0.02."""
    first = await written(tmp_path / "a", {str(n): RIGHT if n < 90 else "1" for n in range(100)})
    second = await written(tmp_path / "b", {str(n): RIGHT if n < 88 else "1" for n in range(100)})
    for one, other in ((first, second), (second, first)):
        comparison = compare_directories(one, other, "conductor")
        assert comparison.is_within(0.02)
        assert not comparison.is_within(0.019)
    assert compare_directories(first, second, "conductor").difference.estimate.value == -0.02


async def test_different_tasks_cannot_be_compared(tmp_path: Path) -> None:
    first = await written(tmp_path / "a", {"x": RIGHT, "y": "1"})
    second = await written(tmp_path / "b", {"x": RIGHT, "z": "1"})
    with pytest.raises(UsageError, match="2 tasks are in one of .* alone; measure both with"):
        compare_directories(first, second, "conductor")


async def test_an_unknown_sample_filter_lists_the_known_ones(tmp_path: Path) -> None:
    first = await written(tmp_path / "a", {"x": RIGHT}, "moa")
    with pytest.raises(UsageError, match="has samples of moa, and none of 'conductor'"):
        compare_directories(first, first, "conductor")
    with pytest.raises(UsageError, match="has no samples"):
        compare_directories(tmp_path / "nowhere", first, "conductor")
