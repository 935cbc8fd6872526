"""Grading runs that are on record, so that what a grader thinks of them counts as feedback.

A run is graded by the task that asks the same question, or by a judge who has a rubric. What a
person said of a run stands, and no grader is asked about it. A run of a key that is kept out of
training is not read, and a judge is shown nothing from which it is excluded, and no question that
cannot be understood without what came before it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from podium.core.errors import NotFound, PodiumError, UnreadableRun
from podium.core.pool import WorkerProfile
from podium.core.run import Run, timestamp
from podium.core.task import Grader
from podium.core.worker import Worker
from podium.store import Feedback, RunFilter, RunStore, feedback_in
from podium.store.base import SUMMARY_CHARACTERS
from podium.store.keys import Rules
from podium.tasks import TaskRecord
from podium.tasks.judge import JUDGE, Judge
from podium.train.use import (
    NOT_BY_ITSELF,
    UNREADABLE,
    excluded_by,
    is_in_conversation,
    rules_by_key,
    why_withheld,
)

AT_ONCE: Final = 8
"""How many runs are graded at a time: a judge takes seconds for each."""

LISTED_AT_ONCE: Final = 200

JUDGED_BEFORE: Final = "judged before"
NOT_FOR_THE_JUDGE: Final = "that the judge must not see"
NOT_GRADED: Final = "that could not be graded"


class Exam(NamedTuple):
    """What an answer is graded by: the grader, its name, its task where there is one, and the
    worker who is shown question and answer, where one is."""

    grader: Grader
    name: str
    task: str = ""
    judge: WorkerProfile | None = None


class Examiner(Protocol):
    """Knows what runs are to be graded by."""

    def may_know(self, opening: str) -> bool:
        """Whether a question that begins so may be one that it has a grader for."""
        ...

    def exam(self, question: str) -> Exam | None:
        """What answers to that question are graded by; None where it has nothing."""
        ...


class ByTasks:
    """Grades the answers to questions that are in a list of tasks."""

    def __init__(self, records: Sequence[TaskRecord], judge: Worker | None = None) -> None:
        self._records = {record.question.strip(): record for record in records}
        self._openings = {question[:SUMMARY_CHARACTERS] for question in self._records}
        self._worker = judge

    def may_know(self, opening: str) -> bool:
        """Whether one of the tasks begins so."""
        return opening.strip() in self._openings or len(opening) >= SUMMARY_CHARACTERS

    def exam(self, question: str) -> Exam | None:
        """The grader of the task that asks this."""
        record = self._records.get(question.strip())
        if record is None:
            return None
        task = record.to_task(self._worker)
        written = json.dumps(record.to_json(), ensure_ascii=False)
        if task.judge is None or self._worker is None:
            return Exam(task.grader, record.grader, written)
        name = f"{record.grader} {task.judge}"
        return Exam(task.grader, name, written, self._worker.profile)


class ByRubric:
    """Has a worker judge the answers to all questions by one rubric."""

    def __init__(self, judge: Worker, rubric: str) -> None:
        self._worker = judge
        self._rubric = rubric

    def may_know(self, opening: str) -> bool:
        """It has an opinion on everything."""
        return True

    def exam(self, question: str) -> Exam | None:
        """The judge, with its rubric."""
        grader = Judge(question, self._worker, rubric=self._rubric)
        judge = self._worker.profile
        return Exam(grader, f"{JUDGE} {judge.name}", judge=judge)


@dataclass(slots=True)
class Graded:
    """How many answers were right and wrong, and how many runs were left out, by the reason.
    `judged_by_graders` is how many of those could be graded again, and `problem` is the last one
    that a grader had."""

    right: int = 0
    wrong: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    judged_by_graders: int = 0
    problem: str = ""


async def grade_runs(
    store: RunStore,
    examiner: Examiner,
    *,
    wanted: RunFilter | None = None,
    limit: int,
    again: bool = False,
) -> Graded:
    """Grade the newest wanted runs that the examiner has something for, so many at most, and keep
    what comes of it as their feedback. With `again`, also those that a grader has judged."""
    graded = Graded()
    examined = _examined(store, examiner, wanted or RunFilter(status="answered"), again, graded)
    batch: list[tuple[Run, Exam]] = []
    async for each in examined:
        batch.append(each)
        if len(batch) == min(AT_ONCE, limit):
            limit -= len(batch)
            await asyncio.gather(*(_grade(store, *one, graded) for one in batch))
            batch = []
        if limit == 0:
            break
    await asyncio.gather(*(_grade(store, *one, graded) for one in batch))
    return graded


async def _examined(
    store: RunStore, examiner: Examiner, wanted: RunFilter, again: bool, graded: Graded
) -> AsyncIterator[tuple[Run, Exam]]:
    """The runs that are to be graded, the newest first, each with what it is graded by."""
    rules = await rules_by_key(store)
    feedback = feedback_in(store)
    before: str | None = None
    while page := await store.list(wanted, limit=LISTED_AT_ONCE, before=before):
        before = page[-1].id
        for summary in page:
            if not examiner.may_know(summary.question):
                continue
            given = await feedback.get(summary.id)
            if given is not None and not (again and given.grader):
                graded.left_out[JUDGED_BEFORE] += 1
                graded.judged_by_graders += bool(given.grader)
                continue
            try:
                run = await store.load(summary.id)
            except NotFound:  # it was deleted just now
                continue
            except UnreadableRun:
                graded.left_out[UNREADABLE] += 1
                continue
            exam = examiner.exam(run.question)
            if exam is None:
                continue
            reason = _why_not(run, rules, exam.judge)
            if reason is None:
                yield run, exam
            else:
                graded.left_out[reason] += 1


def _why_not(run: Run, rules: Mapping[str, Rules], judge: WorkerProfile | None) -> str | None:
    """Why the run is not to be graded; None where it is."""
    reason = why_withheld(run, rules)
    if reason is not None or judge is None:
        return reason
    if excluded_by(run, rules) & {judge.name, judge.provider}:
        return NOT_FOR_THE_JUDGE
    return NOT_BY_ITSELF if is_in_conversation(run) else None


async def _grade(store: RunStore, run: Run, exam: Exam, graded: Graded) -> None:
    try:
        is_right = await exam.grader(run.answer or "")
    except PodiumError as error:  # nobody could grade it, which says nothing of the answer
        graded.left_out[NOT_GRADED] += 1
        graded.problem = str(error)
        return
    await feedback_in(store).save(
        Feedback(
            run_id=run.id,
            score=float(is_right),
            given_at=timestamp(),
            grader=exam.name,
            task=exam.task,
        )
    )
    if is_right:
        graded.right += 1
    else:
        graded.wrong += 1
