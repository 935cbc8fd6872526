from __future__ import annotations

import subprocess
import sys

import pytest

from podium.core.errors import ConfigError
from podium.core.workflow import Step, Workflow
from podium_lab.etudes import GENERALIST
from podium_lab.etudes.tasks import everyday_questions, everyday_suite, everyday_task

QUESTION = "What is the capital of Japan?"


def test_a_plan_is_right_when_it_leaves_the_question_alone() -> None:
    judge = everyday_task(QUESTION).plan_grader
    assert judge is not None
    assert judge(Workflow((Step(GENERALIST, QUESTION),)))
    assert not judge(Workflow((Step(GENERALIST, "Name the capital."),)))
    assert not judge(Workflow((Step("misleading", QUESTION),)))


def test_a_question_has_the_same_id_in_every_process() -> None:
    code = (
        f"from podium_lab.etudes.tasks import everyday_task; print(everyday_task({QUESTION!r}).id)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == everyday_task(QUESTION).id


def test_the_suite_is_a_hundred_questions_that_no_training_has_seen() -> None:
    tasks = everyday_suite()
    assert len({task.id for task in tasks}) == 100
    assert not {task.question for task in tasks} & set(everyday_questions("train"))
    assert [task.question for task in everyday_suite("train")] == list(everyday_questions("train"))
    with pytest.raises(ConfigError, match="no split 'exam'; they have train, test"):
        everyday_suite("exam")
