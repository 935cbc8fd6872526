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
from podium.core.pool import Pool, WorkerProfile
from podium.core.task import Task
from podium.tasks.graders import CodeGrader
from podium.train.exercises import Exercise
from podium.workers import Endpoint, Http
from podium.workers.python import PythonWorker
from support.harness import FakeWorker
from support.recipes import GRPO, make_recipe

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


PROGRAMS = GRPO.replace(
    "[grpo]",
    '[answers]\nsubtasks = ["Answer."]\nprogram_subtasks = ["Write a program."]\n'
    'tested_program_subtasks = ["Write it with its tests."]\n[grpo]',
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
    TASK, PlanningContext(question=TASK.question, pool=Pool((FakeWorker("one").profile,)))
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
    python = WorkerProfile(name="python", provider="python")
    workers = [
        FakeWorker("one", lambda _: "the sum is four"),
        *([PythonWorker(python, Endpoint(), Http())] if text == PROGRAMS else []),
    ]
    return AnswerRollouts(recipe, policy, None, workers)  # type: ignore[arg-type]


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
    with pytest.raises(ConfigError, match=r"answers\.earlier_steps"):
        make_recipe(tmp_path, BEFORE.replace("access = []", "access = [3]"))


@pytest.mark.parametrize(
    ("said", "earned"),
    [
        ("```python\nprint(2 + 2)\n```", 1.0),
        ("print(2 + 2)", 1.0),
        ("```python\nprint(2 + 3)\n```", 0.5),
        ("```python\nprint(4)\n1 / 0\n```", 0.5),
        ("4", 0.5),
    ],
)
def test_a_program_earns_what_the_grader_says_of_its_output(
    said: str, earned: float, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    policy = Parrot(said)
    batch = rollouts(tmp_path, policy, PROGRAMS).collect([EXERCISE, EXERCISE], loop)
    assert batch.rewards == [earned, earned]
    (read,) = policy.read
    assert read.endswith("<question>\n2 + 2?\n</question>\n\nYour subtask: Write a program.")


@pytest.mark.parametrize(
    ("test", "earned"),
    [("assert double(4) == 8", 1.0), ("assert double(4) == 9", 0.5), ("", 0.5)],
)
def test_code_that_passes_its_own_tests_is_graded_by_all_tests(
    test: str, earned: float, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    task = draw_task(subtask="Write it with its tests.", tmp_path=tmp_path)
    policy = Parrot(f"```python\ndef double(x):\n    return 2 * x\n{test}\n```")
    made = rollouts(tmp_path, policy, PROGRAMS)
    batch = made.collect([EXERCISE._replace(task=task)] * 2, loop)
    assert batch.rewards == [earned, earned]


def test_tasks_graded_by_tests_are_also_answered_without_a_run(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    task = draw_task(subtask="Answer.", tmp_path=tmp_path)
    policy = Parrot("```python\ndef double(x):\n    return x + x\n```")
    made = rollouts(tmp_path, policy, PROGRAMS)
    assert made.collect([EXERCISE._replace(task=task)] * 2, loop).rewards == [1.0, 1.0]


def draw_task(*, subtask: str, tmp_path: Path) -> Task:
    """A task whose id draws that subtask."""
    grader = CodeGrader(check="assert double(3) == 6")
    policy = Parrot("")
    made = rollouts(tmp_path, policy, PROGRAMS)
    for number in range(50):
        task = Task(id=str(number), question="Double it.", grader=grader)
        made.prompt_tokens(EXERCISE._replace(task=task))
        if f"Your subtask: {subtask}" in policy.read[-1]:
            return task
    raise AssertionError(f"no task draws {subtask!r}")


def test_programs_need_a_worker_that_runs_them(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, PROGRAMS)
    with pytest.raises(ConfigError, match=r"need a worker of the provider python in pool\.file"):
        AnswerRollouts(recipe, Parrot(""), None, [])  # type: ignore[arg-type]


def test_programs_after_earlier_steps_are_refused(tmp_path: Path) -> None:
    text = BEFORE.replace("[answers]", '[answers]\nprogram_subtasks = ["Write a program."]')
    with pytest.raises(ConfigError, match="programs are run alone; leave earlier_steps out"):
        make_recipe(tmp_path, text)
