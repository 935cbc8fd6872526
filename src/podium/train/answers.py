"""Rollouts of a worker in training: its answers to tasks, graded and rewarded as plans are.

With `answers.earlier_steps` the worker is the last step of a workflow; its other steps are executed
first, so that it learns from what it will read: a program's output, say. With
`answers.program_subtasks` it is the step before the last: the Python worker runs its reply, and
what that prints is graded. Its prompt is the one that the engine writes for that step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import FREE, Reply, Request, Usage, user
from podium.core.run import Round
from podium.core.task import Task
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.requests import compose_prompt, replay_request
from podium.engine.runner import Runner
from podium.tasks.graders import CodeGrader
from podium.train.diagnostics import Rollout
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium.train.rollouts import Policy, RolloutBatch, Rollouts, SampledPlan
from podium.train.score import NoConductor, Score, Scorer

TRAINED: Final = WorkerProfile(name="trained", description="the worker in training", price=FREE)


class _EmptyWorker(Worker):
    """Takes the place of the trained worker while the steps before it are executed."""

    profile = TRAINED

    async def reply(self, request: Request) -> Reply:
        return Reply("-", Usage(0, 0))


class _Subtask(NamedTuple):
    """A subtask; with `runs_program` the reply is a program to run."""

    text: str
    runs_program: bool = False


class AnswerRollouts(Rollouts):
    """Samples answers to tasks instead of plans for them."""

    def __init__(
        self, recipe: Recipe, policy: Policy, scorer: Scorer, workers: Sequence[Worker]
    ) -> None:
        super().__init__(recipe, policy, scorer)
        assert recipe.answers is not None
        self._answers = recipe.answers
        self._reward_of = recipe.reward.reward()
        everyone = (*workers, _EmptyWorker())
        self._pool = Pool(tuple(worker.profile for worker in everyone))
        self._runner = Runner(NoConductor(), everyone)
        self._asked: dict[str, list[dict[str, str]]] = {}
        self._python = next((one for one in workers if one.profile.provider == "python"), None)
        if self._answers.runs_programs and self._python is None:
            raise ConfigError(
                "answers.program_subtasks and answers.tested_program_subtasks need a worker of the "
                "provider python in pool.file"
            )

    def collect(
        self, exercises: Sequence[Exercise], loop: asyncio.AbstractEventLoop
    ) -> RolloutBatch:
        """Execute the steps before the answers, then sample, grade and reward these."""
        self._prepare(exercises, loop)
        return super().collect(exercises, loop)

    def measure(
        self, exercises: Sequence[Exercise], temperature: float, loop: asyncio.AbstractEventLoop
    ) -> list[Rollout]:
        self._prepare(exercises, loop)
        return super().measure(exercises, temperature, loop)

    def fits(self, exercise: Exercise) -> bool:
        """Return whether the prompt is short enough, as far as it is known yet."""
        return bool(self._answers.earlier_steps) or super().fits(exercise)

    def prompt_tokens(self, exercise: Exercise) -> list[int]:
        task = exercise.task
        messages = self._asked.get(task.id)
        if messages is None:
            subtask = self._subtask(task)
            text, is_final = subtask.text or task.question, not subtask.runs_program
            prompt = compose_prompt(text, question=task.question, is_final=is_final)
            messages = [{"role": "user", "content": prompt}]
        return self._policy.encode(messages)

    def _prompt_prefix(self, exercise: Exercise) -> str:
        return ""

    def _prepare(self, exercises: Sequence[Exercise], loop: asyncio.AbstractEventLoop) -> None:
        """Execute the earlier steps for the exercises that have not been asked before."""
        if not self._answers.earlier_steps:
            return
        missing = {one.task.id: one.task for one in exercises if one.task.id not in self._asked}

        async def ask_all() -> list[list[dict[str, str]]]:
            return await asyncio.gather(*map(self._request, missing.values()))

        asked = asyncio.run_coroutine_threadsafe(ask_all(), loop).result()
        self._asked |= zip(missing, asked, strict=True)

    def _subtask(self, task: Task) -> _Subtask:
        rng = Random(f"{self._seed}/{task.id}")  # noqa: S311 - repeatable, not secret
        answers, is_tested = self._answers, isinstance(task.grader, CodeGrader)
        programs = answers.tested_program_subtasks if is_tested else answers.program_subtasks
        choices = [_Subtask(text, runs_program=True) for text in programs]
        if is_tested or not programs:
            choices += map(_Subtask, answers.subtasks)
        return rng.choice(choices)

    async def _request(self, task: Task) -> list[dict[str, str]]:
        last = Step(TRAINED.name, self._subtask(task).text or task.question, access="all")
        workflow = Workflow((*self._answers.steps, last))
        run = await self._runner.execute(
            task.question, (Round(0, workflow),), pool=self._pool, max_steps=len(workflow)
        )
        round_ = run.rounds[-1]
        request = replay_request(run, round_, round_.steps[-1])
        assert request is not None, "the last step was asked"
        return [{"role": message.role, "content": message.text} for message in request.messages]

    async def _score_one(self, one: SampledPlan) -> Score:
        task, tokens = one.exercise.task, len(one.tokens)
        right = one.ended and await task.grader(await self._answer(one))
        parts = (
            self._reward_of.of_plan(right=right, steps=1, completion_tokens=tokens)
            if one.ended
            else self._reward_of.of_malformed(tokens)
        )
        return Score(
            sum(parts.values()),
            parts,
            valid=one.ended,
            right=right,
            problem="" if one.ended else "the answer was cut off at the limit of tokens",
            question=task.question,
            text=one.text,
        )

    async def _answer(self, one: SampledPlan) -> str:
        """Return the answer that is graded: the text, or what it prints."""
        if self._python is None or not self._subtask(one.exercise.task).runs_program:
            return one.text
        reply = await self._python.reply(Request((user(one.text),)))
        return "" if reply.finish == "error" else reply.text
