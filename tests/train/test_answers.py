"""Answers that a worker in training writes: what it reads, and what they earn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.task import Task
from podium.train.exercises import Exercise
from support.recipes import GRPO, make_recipe
from support.stage import Actor

pytest.importorskip("torch")

from podium.train.answers import AnswerRollouts
from podium.workers.local.decoding import Completion, Sampling

pytestmark = pytest.mark.torch

ANSWERS = GRPO.replace("[grpo]", "[answers]\n[grpo]")
BEFORE = GRPO.replace(
    "[grpo]",
    '[answers]\nsubtasks = ["Read it out."]\n'
    '[[answers.earlier_steps]]\nworker = "one"\nsubtask = "Compute."\naccess = []\n[grpo]',
)


class Parrot:
    """A policy that says `said`, and keeps what it read."""

    def __init__(self, said: str, *, ended: bool = True) -> None:
        self.said, self.ended = said, ended
        self.read: list[str] = []

    def encode(self, messages: list[dict[str, str]], opener: str = "") -> list[int]:
        assert not opener
        self.read.append(messages[-1]["content"])
        return [1]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.said

    def sample(self, prompts: Sequence[Any], _: Sampling, copies: int = 1) -> list[Completion]:
        return [Completion((1, 2), self.ended)] * (len(prompts) * copies)


async def is_four(answer: str) -> bool:
    return answer == "4"


TASK = Task(id="sum", question="2 + 2?", grader=is_four)
EXERCISE = Exercise(
    TASK, PlanningContext(question=TASK.question, pool=Pool((Actor("one").profile,)))
)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def rollouts(tmp_path: Path, policy: Parrot, text: str = ANSWERS) -> AnswerRollouts:
    recipe = make_recipe(tmp_path, text)
    worker = Actor("one", lambda _: "the sum is four")
    return AnswerRollouts(recipe, policy, None, [worker])  # type: ignore[arg-type]


@pytest.mark.parametrize(("said", "earned"), [("4", 1.0), ("5", 0.5)])
def test_an_answer_earns_what_its_grader_says(
    said: str, earned: float, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    policy = Parrot(said)
    batch = rollouts(tmp_path, policy).collect([EXERCISE, EXERCISE], loop)
    assert batch.rewards == [earned, earned]
    assert policy.read == ["2 + 2?"]


def test_an_answer_that_was_cut_off_earns_nothing(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    batch = rollouts(tmp_path, Parrot("4", ended=False)).collect([EXERCISE, EXERCISE], loop)
    assert batch.rewards == [0.0, 0.0]


def test_the_steps_before_are_executed_once_and_read(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    policy = Parrot("4")
    made = rollouts(tmp_path, policy, BEFORE)
    made.collect([EXERCISE, EXERCISE], loop)
    assert [one.score.right for one in made.measure([EXERCISE], 0.0, loop)] == [True]
    (read,) = set(policy.read)
    assert "Compute." in read
    assert "the sum is four" in read
    assert "Your subtask: Read it out." in read
    assert read.endswith("<question>\n2 + 2?\n</question>")


def test_subtasks_vary_from_task_to_task_and_stay_the_same_for_each(tmp_path: Path) -> None:
    text = ANSWERS.replace("[answers]", '[answers]\nsubtasks = ["", "Solve it."]')
    policy = Parrot("4")
    made = rollouts(tmp_path, policy, text)
    tasks = [Task(id=str(n), question="2 + 2?", grader=is_four) for n in range(20)]
    exercises = [EXERCISE._replace(task=task) for task in tasks]
    for _ in range(2):
        for exercise in exercises:
            made.prompt_tokens(exercise)
    assert policy.read[:20] == policy.read[20:]
    assert 3 < policy.read[:20].count("2 + 2?") < 17
    assert all("Your subtask: Solve it." in one for one in policy.read if one != "2 + 2?")


def test_a_step_before_that_is_no_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"answers\.before"):
        make_recipe(tmp_path, BEFORE.replace("access = []", "access = [3]"))
