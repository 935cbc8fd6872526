from __future__ import annotations

from podium_lab.etudes.composition import split_of
from podium_lab.etudes.etude import Etude


def test_about_one_key_in_five_is_kept_for_testing() -> None:
    kept = sum(split_of(f"sum:{one},{other}") == "test" for one in range(60) for other in range(60))
    assert 0.17 < kept / 3600 < 0.23


def test_operands_of_open_skills_stay_in_their_split_as_literals_and_as_results(
    etudes: list[Etude],
) -> None:
    keys = [(etude, step) for etude in etudes for step in etude.steps if step.split_key]
    assert any(step.reads for _, step in keys)
    assert all(split_of(step.split_key or "") == etude.split for etude, step in keys)


def test_operations_of_several_steps_stay_in_their_split(etudes: list[Etude]) -> None:
    several = [etude for etude in etudes if len(etude.steps) > 1]
    assert all(split_of(etude.signature) == etude.split for etude in several)


def test_no_question_or_subtask_of_the_test_split_occurs_in_training(
    train: list[Etude], test: list[Etude]
) -> None:
    def texts(etudes: list[Etude]) -> set[str]:
        return {etude.question for etude in etudes} | {
            step.subtask for etude in etudes for step in etude.steps
        }

    assert not texts(train) & texts(test)
