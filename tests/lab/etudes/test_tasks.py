from __future__ import annotations

import pytest

from podium.core.errors import ConfigError
from podium_lab.etudes import EtudeShape
from podium_lab.etudes.etude import Etudes, held_out
from podium_lab.etudes.tasks import etude_suite, etude_task


async def test_an_etude_becomes_a_task_that_knows_its_answer() -> None:
    etudes = held_out(20, seed=3)
    for etude in etudes:
        task = etude_task(etude)
        assert (task.id, task.question, task.answer) == (etude.id, etude.question, etude.answer)
        assert task.kind == etude.shape.value
        assert await task.grader(f"The answer is {etude.answer}.")
        assert not await task.grader("I do not know.")
        assert not await task.grader("")


def test_the_suite_of_etudes_is_the_held_out_ones() -> None:
    assert [task.id for task in etude_suite(10, 7)] == [etude.id for etude in held_out(10, 7)]


def test_etudes_to_train_on_and_longer_ones_can_be_asked_for() -> None:
    trained = [etude.id for etude in Etudes(7, "train").sample(5)]
    assert [task.id for task in etude_suite(5, 7, "train")] == trained
    assert {task.kind for task in etude_suite(5, 7, "longer")} == {EtudeShape.CHAIN_5.value}
    with pytest.raises(ConfigError, match="they have test, longer, train"):
        etude_suite(5, 7, "exam")
