"""Plans that are sampled, carried out and scored: each with its own question, none twice. What
second rounds go on from is in `test_rounds`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.conductors import PlanningContext
from podium.conductors.plan import write, write_acceptance
from podium.core.pool import Pool
from podium.core.run import Round
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium.train.score import Score
from support.harness import FakeWorker
from support.recipes import make_recipe
from support.rounds import answered

pytest.importorskip("torch")

from podium.train.rollouts import RolloutBatch, Rollouts
from podium.workers.local.decoding import Completion, Sampling

pytestmark = pytest.mark.torch

SOLVER = FakeWorker("solver")
POOL = Pool((SOLVER.profile,))


async def never(answer: str) -> bool:
    return False


def exercise(number: int, name: str) -> Exercise:
    return Exercise(
        Task(id=name, question=name, grader=never, kind=name),
        PlanningContext(question=name, pool=POOL),
        number,
    )


EXERCISES = [exercise(number, name) for number, name in enumerate(("alpha", "beta", "gamma"))]
ALPHA, BETA, GAMMA = EXERCISES


class Reading:
    """A policy whose plan says which question it read, and how often it was asked for one."""

    def __init__(self, say: Callable[[str, int], str]) -> None:
        self._say = say
        self.sampling: list[Sampling] = []

    def encode(self, messages: list[dict[str, str]], opener: str = "") -> list[int]:
        text = "\n".join(message["content"] for message in messages)
        return [where for where, one in enumerate(EXERCISES) if one.task.question in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, copies: int = 1
    ) -> list[Completion]:
        self.sampling.append(sampling)
        return [
            Completion(tuple(map(ord, self._say(EXERCISES[prompt[0]].task.question, copy))), True)
            for prompt in prompts
            for copy in range(copies)
        ]


class Judge:
    """Scores by the words, later ones sooner, and remembers what it was asked."""

    def __init__(self, reward: Callable[[str, str], float | None]) -> None:
        self._reward = reward
        self.asked: list[tuple[str, str]] = []

    async def score(self, text: str, task: Task, pool: Pool, **_: Any) -> Score:
        self.asked.append((task.id, text))
        for _turn in range(10 - len(self.asked) % 10):
            await asyncio.sleep(0)
        return Score(self._reward(task.id, text), question=task.question, text=text)


def made(
    tmp_path: Path,
    policy: Any,
    judge: Any,
    *settings: str,
) -> Rollouts:
    overrides = ["prompt.style=trained", "prompt.few_shot=false", "prompt.access=index"]
    recipe: Recipe = make_recipe(tmp_path, overrides=[*overrides, *settings])
    return Rollouts(recipe, policy, judge)


async def collected(rollouts: Rollouts, *exercises: Exercise) -> RolloutBatch:
    """A batch, scored on this event loop while its plans are sampled in another thread."""
    return await asyncio.to_thread(rollouts.collect, exercises, asyncio.get_running_loop())


@pytest.mark.parametrize(
    ("settings", "asked"), [((), 1), (("reward.penalty_per_completion_token=0.01",), 2)]
)
async def test_the_same_words_are_scored_once_unless_their_tokens_cost(
    tmp_path: Path, settings: tuple[str, ...], asked: int
) -> None:
    class Longer(Reading):
        def decode(self, tokens: Sequence[int]) -> str:
            return "a plan"

    policy = Longer(lambda question, copy: "short" if copy else "rather long")
    judge = Judge(lambda task, text: 1.0)
    rollouts = made(tmp_path, policy, judge, *settings)
    await collected(rollouts, ALPHA, ALPHA)
    assert len(judge.asked) == asked


async def test_every_plan_is_scored_for_the_question_that_it_was_written_for(
    tmp_path: Path,
) -> None:
    policy = Reading(lambda question, copy: f"{question} {copy}")
    values = {"alpha": 0, "beta": 10, "gamma": 20}
    judge = Judge(lambda task, text: values[task] + float(text.split()[1]))
    rollouts = made(tmp_path, policy, judge)
    batch = await collected(rollouts, GAMMA, GAMMA, GAMMA, ALPHA, ALPHA, ALPHA)
    assert [attempt.text for attempt in batch.plans] == [
        *("gamma 0", "gamma 1", "gamma 2"),
        *("alpha 0", "alpha 1", "alpha 2"),
    ]
    assert [attempt.prompt for attempt in batch.plans] == [[2]] * 3 + [[0]] * 3
    assert batch.rewards == [20, 21, 22, 0, 1, 2]
    assert [(one.group, one.kind, one.score.text) for one in batch.rollouts][:4] == [
        (2, "gamma", "gamma 0"),
        (2, "gamma", "gamma 1"),
        (2, "gamma", "gamma 2"),
        (0, "alpha", "alpha 0"),
    ]


async def test_the_same_plan_for_the_same_question_is_carried_out_once(tmp_path: Path) -> None:
    policy = Reading(lambda question, copy: "same" if copy < 3 else "other")
    judge = Judge(lambda task, text: 1.0 if text == "same" else None)
    rollouts = made(tmp_path, policy, judge)
    batch = await collected(rollouts, *[ALPHA] * 4, *[BETA] * 4)
    assert batch.rewards == [1.0, 1.0, 1.0, None] * 2
    assert sorted(judge.asked) == [
        ("alpha", "other"),
        ("alpha", "same"),
        ("beta", "other"),
        ("beta", "same"),
    ]


async def test_so_it_is_where_exercises_begin_with_a_round(tmp_path: Path) -> None:
    behind = (answered(Workflow((Step("solver", "Guess"),))),)
    alpha, beta = (
        one._replace(context=replace(one.context, rounds=behind)) for one in (ALPHA, BETA)
    )
    policy = Reading(lambda question, copy: "same" if copy < 3 else "other")
    judge = Judge(lambda task, text: 1.0)
    batch = await collected(made(tmp_path, policy, judge), *[alpha] * 4, *[beta] * 4)
    assert [attempt.round for attempt in batch.plans] == [1] * 8
    assert sorted(judge.asked) == [
        ("alpha", "other"),
        ("alpha", "same"),
        ("beta", "other"),
        ("beta", "same"),
    ]


async def test_a_measurement_asks_once_and_leaves_the_batch_alone(tmp_path: Path) -> None:
    policy = Reading(lambda question, copy: question)
    rollouts = made(tmp_path, policy, Judge(lambda task, text: 1.0), "grpo.temperature=0.9")
    batch = await collected(rollouts, ALPHA, ALPHA)
    loop = asyncio.get_running_loop()
    measured = await asyncio.to_thread(rollouts.measure, EXERCISES[1:], 0.25, loop)
    assert [one.score.text for one in measured] == ["beta", "gamma"]
    assert [attempt.text for attempt in batch.plans] == ["alpha", "alpha"]
    assert [one.temperature for one in policy.sampling] == [0.9, 0.25]
    assert rollouts.measure([], 0.25, loop) == []


async def test_plans_are_carried_out_by_the_real_engine_all_at_once(tmp_path: Path) -> None:
    from podium.train.score import Scorer

    solver = FakeWorker("solver")
    solver.gate = asyncio.Event()
    policy = Reading(
        lambda question, copy: write(Workflow((Step("solver", f"{question} {copy}"),)), POOL)
    )
    rollouts = made(tmp_path, policy, Scorer([solver]))
    waiting = asyncio.create_task(collected(rollouts, ALPHA, ALPHA, BETA, BETA))
    while solver.in_flight < 4 and not waiting.done():
        await asyncio.sleep(0)
    solver.gate.set()
    assert (await waiting).rewards == [0.5, 0.5, 0.5, 0.5]
    assert solver.most_in_flight == 4


def saying(name: str) -> FakeWorker:
    return FakeWorker(name, lambda request: name)


CREW = tuple(map(saying, ("ann", "ben", "cat")))
CREW_POOL = Pool(tuple(one.profile for one in CREW))


def planned(*workers: str) -> str:
    steps = tuple(Step(name, f"part {where}") for where, name in enumerate(workers))
    return write(Workflow(steps), CREW_POOL, layout="step-by-step")


class Learning(Reading):
    """A policy that can also be taught what it did not write."""

    def tokens_of(self, plan: str) -> list[int]:
        return [*map(ord, plan)]


async def explored(
    tmp_path: Path,
    right: str,
    *,
    explore: int,
    tries: int | None = None,
    wrote: Callable[[int], str] = lambda copy: planned("ann"),
    rounds: tuple[Round, ...] = (),
    recursion: float | None = None,
) -> tuple[RolloutBatch, list[float | None]]:
    from podium.train.score import Scorer

    async def is_right(answer: str) -> bool:
        return answer == right

    task = Task(id="alpha", question="alpha", grader=is_right, kind="alpha")
    recipe = make_recipe(
        tmp_path,
        overrides=[
            *("prompt.style=trained", "prompt.few_shot=false", "prompt.access=index"),
            f"grpo.explore={explore}",
            *([] if tries is None else [f"grpo.explore_tries={tries}"]),
            *([] if recursion is None else [f"recursion.share={recursion}"]),
        ],
    )
    asked = Exercise(task, PlanningContext(question="alpha", pool=CREW_POOL, rounds=rounds))
    policy: Any = Learning(lambda question, copy: wrote(copy))
    batch = await collected(Rollouts(recipe, policy, Scorer(CREW)), *[asked] * 4)
    return batch, batch.rewards


async def test_variations_replace_plans_if_none_is_right(tmp_path: Path) -> None:
    batch, rewards = await explored(tmp_path, "cat", explore=2)
    assert [attempt.is_explored for attempt in batch.plans] == [False, False, True, True]
    assert {attempt.text for attempt in batch.plans[2:]} == {planned("ben"), planned("cat")}
    assert sorted(rewards, key=lambda reward: reward or 0.0)[-2:] == [0.5, 1.0]
    assert batch.solved_by_exploring == 1


async def test_inserted_text_is_trained_on_and_not_diagnosed(tmp_path: Path) -> None:
    batch, _rewards = await explored(tmp_path, "cat", explore=2)
    assert [one.score.text for one in batch.rollouts] == [planned("ann")] * 4


async def test_execution_time_is_separate_from_sampling_time(tmp_path: Path) -> None:
    class Slow(Judge):
        async def score(self, text: str, task: Task, pool: Pool, **kept: Any) -> Score:
            await asyncio.sleep(0.05)
            return await super().score(text, task, pool, **kept)

    judge = Slow(lambda _, __: 0.5)
    rollouts = made(tmp_path, Reading(lambda _, copy: f"plan {copy}"), judge, "grpo.explore=1")
    began = time.monotonic()
    await collected(rollouts, *[ALPHA] * 4)
    assert 0.05 <= rollouts.scoring_seconds <= time.monotonic() - began


async def test_right_plans_are_not_varied(tmp_path: Path) -> None:
    batch, _rewards = await explored(tmp_path, "ann", explore=2)
    assert not any(attempt.is_explored for attempt in batch.plans)
    assert batch.solved_by_exploring == 0


async def test_of_more_that_are_tried_those_that_earn_most_are_taught(tmp_path: Path) -> None:
    for right in ("ben", "cat"):
        batch, _rewards = await explored(tmp_path, right, explore=1, tries=2)
        assert [attempt.text for attempt in batch.plans if attempt.is_explored] == [planned(right)]


async def test_accepted_wrong_answers_are_varied(tmp_path: Path) -> None:
    behind = (answered(Workflow((Step("ann", "Guess"),)), "ann"),)
    accepting = write_acceptance("step-by-step")
    batch, _rewards = await explored(
        tmp_path, "cat", explore=3, wrote=lambda copy: accepting, rounds=behind
    )
    scores = [attempt.score for attempt in batch.plans if attempt.is_explored]
    plans = [score.workflow for score in scores if score is not None and score.workflow is not None]
    assert {(step.worker, step.access) for plan in plans for step in plan.steps} == {
        ("ann", "all"),
        ("ben", ()),
        ("cat", ()),
    }
    assert batch.solved_by_exploring == 1


async def test_plans_that_were_tried_are_compared_with_first_rounds_alone(tmp_path: Path) -> None:
    asked = iter(range(4))
    batch, rewards = await explored(
        tmp_path,
        "cat",
        explore=1,
        tries=2,
        recursion=0.5,
        wrote=lambda copy: planned("cat" if next(asked) >= 2 else "ann"),
    )
    assert [attempt.is_explored for attempt in batch.plans] == [False, True, False, False]
    assert [attempt.round for attempt in batch.plans] == [0, 0, 1, 1]
    assert rewards == [0.5, 1.0, 1.0, 1.0]  # the first is not 0.625


async def test_more_tries_at_the_round_that_a_question_came_with_count_as_drawn(
    tmp_path: Path,
) -> None:
    behind = (answered(Workflow((Step("ann", "Guess"),)), "ann"),)
    asked = iter(range(4))
    batch, _rewards = await explored(
        tmp_path,
        "cat",
        explore=1,
        rounds=behind,
        recursion=0.5,
        wrote=lambda copy: planned("cat" if next(asked) == 3 else "ann"),
    )
    assert [attempt.round for attempt in batch.plans] == [1] * 4
    assert not any(attempt.is_explored for attempt in batch.plans)
    assert batch.solved_by_exploring == 0


async def test_there_are_no_more_variations_than_there_are_other_workers(tmp_path: Path) -> None:
    batch, _rewards = await explored(tmp_path, "nobody", explore=3)
    assert [attempt.is_explored for attempt in batch.plans] == [False, False, True, True]
