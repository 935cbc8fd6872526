from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podium.core.pool import WorkerProfile
from podium.core.request import assistant, system, user
from podium.server.access.keys import make_key
from podium.store import Feedback, RunStore, open_store
from podium.store.keys import Rules
from podium.tasks import TaskRecord
from podium.train import run_data as grading
from podium.train import run_data as use
from podium.train.run_data import RubricGrader, TaskGrader, grade_runs
from podium.workers import ScriptedWorker
from support.runs_on_record import NOON, kept_run

RIGHT, WRONG = "<verdict>right</verdict>", "<verdict>wrong</verdict>"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    opened = await open_store(tmp_path / "runs.db")
    yield opened
    await opened.close()


def task(number: int, answer: str) -> TaskRecord:
    return TaskRecord(
        id=f"t{number}", question=f"Question {number}?", answer=answer, grader="exact"
    )


def judge(*replies: str) -> ScriptedWorker:
    return ScriptedWorker(WorkerProfile(name="sage", provider="anthropic"), *replies)


async def scores(store: RunStore) -> dict[str, tuple[float, str]]:
    given = await store.feedback.page()
    return {item.run_id: (item.score, item.grader) for item in given}


async def test_runs_are_graded_by_the_task_that_asks_the_same(store: RunStore) -> None:
    await store.finish(*(kept_run(number) for number in range(3)))
    graded = await grade_runs(store, TaskGrader([task(0, "Answer 0."), task(1, "No.")]), limit=9)
    assert (graded.right, graded.wrong, graded.left_out) == (1, 1, {})
    assert await scores(store) == {
        kept_run(0).id: (1.0, "exact"),
        kept_run(1).id: (0.0, "exact"),
    }
    given = await store.feedback.get(kept_run(1).id)
    assert given is not None
    assert json.loads(given.task) == task(1, "No.").to_json()


async def test_a_question_longer_than_a_summary_is_still_known(store: RunStore) -> None:
    question = "Why? " * 200
    await store.finish(kept_run(0, question=question), kept_run(1, question=f"{question}Really?"))
    record = TaskRecord(id="t", question=question, answer="Answer 0.", grader="exact")
    graded = await grade_runs(store, TaskGrader([record]), limit=9)
    assert (graded.right, graded.wrong) == (1, 0)


async def test_runs_judged_by_people_are_not_graded_again(store: RunStore) -> None:
    await store.finish(*(kept_run(number) for number in range(2)))
    said = Feedback(run_id=kept_run(0).id, score=0.5, given_at=NOON)
    await store.feedback.save(said)
    both = [task(0, "Answer 0."), task(1, "No.")]
    await grade_runs(store, TaskGrader(both), limit=9)
    again = await grade_runs(store, TaskGrader(both), limit=9)
    assert (again.right, again.wrong, again.left_out) == (0, 0, {grading.GRADED_BEFORE: 2})
    corrected = [task(0, "Answer 0."), task(1, "Answer 1.")]
    anew = await grade_runs(store, TaskGrader(corrected), limit=9, again=True)
    assert (anew.right, anew.left_out) == (1, {grading.GRADED_BEFORE: 1})
    assert await scores(store) == {
        kept_run(0).id: (0.5, ""),
        kept_run(1).id: (1.0, "exact"),
    }


async def test_a_judge_is_shown_nothing_that_is_kept_from_it_or_from_training(
    store: RunStore,
) -> None:
    closed, wary = (
        make_key(name, rules).key
        for name, rules in (
            ("closed", Rules(training=False)),
            ("wary", Rules(exclude=frozenset({"anthropic"}))),
        )
    )
    for key in (closed, wary):
        await store.keys.add(key)
    await store.finish(
        kept_run(0, owner=closed.id),
        kept_run(1, owner=wary.id),
        kept_run(2, exclude=("sage",)),
        kept_run(3, exclude=("openai",)),
    )
    sage = judge(RIGHT)
    graded = await grade_runs(store, RubricGrader(sage, "Is it polite?"), limit=9)
    assert (graded.right, graded.left_out) == (
        1,
        {use.TRAINING_DISABLED: 1, grading.JUDGE_EXCLUDED: 2},
    )
    (request,) = sage.requests
    assert "Question 3?" in request.messages[-1].text
    assert await scores(store) == {kept_run(3).id: (1.0, "judge sage")}


async def test_a_judge_is_asked_about_no_question_that_does_not_stand_by_itself(
    store: RunStore,
) -> None:
    chat = (user("What is the capital of Japan?"), assistant("Tokyo."))
    messages = (system("Answer briefly."),)
    await store.finish(kept_run(0, history=chat), kept_run(1, history=messages))
    sage = judge(RIGHT)
    graded = await grade_runs(store, RubricGrader(sage, "Is it true?"), limit=9)
    assert (graded.right, graded.left_out) == (1, {use.NEEDS_CONTEXT: 1})
    assert list(await scores(store)) == [kept_run(1).id]
    by_word = await grade_runs(store, TaskGrader([task(0, "Answer 0.")], judge=sage), limit=9)
    assert (by_word.right, by_word.left_out) == (1, {})


async def test_no_more_runs_are_graded_than_wanted_the_newest_first(store: RunStore) -> None:
    await store.finish(*(kept_run(number) for number in range(12)))
    sage = judge(WRONG)
    graded = await grade_runs(store, RubricGrader(sage, "Is it true?"), limit=10)
    assert (graded.wrong, len(sage.requests)) == (10, 10)
    assert set(await scores(store)) == {kept_run(number).id for number in range(2, 12)}


async def test_a_judge_without_a_verdict_has_not_graded(store: RunStore) -> None:
    await store.finish(kept_run())
    graded = await grade_runs(store, RubricGrader(judge("Hm."), "Is it true?"), limit=1)
    assert (graded.right, graded.wrong, graded.left_out) == (0, 0, {grading.NOT_GRADED: 1})
    assert "gave no verdict" in graded.problem
    assert not await scores(store)
