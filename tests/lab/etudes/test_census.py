from __future__ import annotations

from podium_lab.etudes import Etude
from podium_lab.etudes.__main__ import EtudeStatistics, common, report


def test_nothing_of_the_test_split_occurs_in_training(
    train: list[Etude], test: list[Etude]
) -> None:
    assert set(common(EtudeStatistics().take(train), EtudeStatistics().take(test)).values()) == {0}


def test_a_question_that_occurs_in_both_is_found(train: list[Etude], test: list[Etude]) -> None:
    found = common(EtudeStatistics().take([*train, test[0]]), EtudeStatistics().take(test))
    assert found["questions"] == 1
    assert found["subtasks"] == len({step.subtask for step in test[0].steps})


def test_the_report_counts_both_splits_and_says_what_they_share() -> None:
    text = "\n".join(report(seed=1, train_size=300, test_size=50))
    assert "train: 300 études" in text
    assert "test: 55 études" in text
    assert "  questions                                0" in text
