"""Training data from judged runs, and the grading of runs.

    outcomes    question, worker, reward: for routers
    tasks       question, answer, grader: for `podium train grpo`
    plans       prompt and good plan: for `podium train sft`

A run is left out, and counted with the reason, if its key's rules or a guardrail say so.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from podium._util.lab import ORACLE
from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError, NotFound, PodiumError, UnreadableRun
from podium.core.pool import WorkerProfile
from podium.core.run import Run, timestamp
from podium.core.task import Grader, JudgedRun, Outcome, worker_outcome
from podium.core.worker import Worker
from podium.store import Feedback, RunFilter, RunStore
from podium.store.base import SUMMARY_CHARACTERS
from podium.store.keys import Rules
from podium.tasks import TaskRecord
from podium.tasks.answers import extract_answer
from podium.tasks.graders import CONTAINS, JUDGE, JudgeGrader

MIN_GOOD_REWARD: Final = 0.75
"""The least reward of an answer that counts as right, and of a plan to learn from."""

MAX_REFERENCE_CHARS: Final = 40
"""Characters of a right answer that others can be compared with."""

MAX_REFERENCE_WORDS: Final = 3
"""Words of an answer that others can be compared with: more are a sentence."""

FEEDBACK: Final = "feedback"
RUN_TASK_KIND: Final = "use"
TRAINING_DISABLED: Final = "training disabled for the key"
UNKNOWN_KEY: Final = "key not in this store"
UNANSWERED: Final = "no planned answer"
REDACTED: Final = "redacted by a guardrail"
UNREADABLE: Final = "unreadable run"
SEVERAL_STEPS: Final = "reward shared by several steps"
ORACLE_ANSWERED: Final = "answered by the perfect workers of --oracle"
NEEDS_CONTEXT: Final = "question with a conversation, images or tools"
NO_REFERENCE: Final = "no short right answer to compare with"
WORKER_EXCLUDED: Final = "worker or provider excluded from the question"
LOW_SCORE: Final = "low score"
NO_PLAN: Final = "planned more than once, or over workers outside the pool"


async def judged_runs(store: RunStore, left_out: Counter[str]) -> AsyncIterator[JudgedRun]:
    """Yield the judged runs that may be used; count the others in `left_out` by reason."""
    rules = await rules_by_key(store)
    feedback = store.feedback
    after = ""
    while page := await feedback.page(after):
        after = page[-1].run_id
        for given in page:
            try:
                run = await store.load(given.run_id)
            except NotFound:  # it was deleted just now
                continue
            except UnreadableRun:
                left_out[UNREADABLE] += 1
                continue
            reason = why_withheld(run, rules)
            if reason is not None:
                left_out[reason] += 1
                continue
            yield JudgedRun(
                run=run,
                reward=given.score,
                source=f"grader:{given.grader}" if given.grader else FEEDBACK,
                judged_at=given.given_at,
                task=given.task,
                has_exclusions=bool(excluded_by(run, rules)),
            )


async def rules_by_key(store: RunStore) -> dict[str, Rules]:
    return {key.id: key.rules for key in await store.keys.keys()}


def why_withheld(run: Run, rules: Mapping[str, Rules]) -> str | None:
    """Say why the run must not be used for training; None if it may."""
    if run.owner and run.owner not in rules:
        return UNKNOWN_KEY
    if run.owner and not rules[run.owner].training:
        return TRAINING_DISABLED
    if run.status != "answered" or run.answer is None:
        return UNANSWERED
    if any(check.action in ("redacted", "blocked") for check in run.all_guardrail_checks):
        return REDACTED
    return None


def excluded_by(run: Run, rules: Mapping[str, Rules]) -> frozenset[str]:
    """Return the workers that must not see the run, by its request or its key."""
    by_key = rules[run.owner].exclude if run.owner else frozenset[str]()
    return by_key | frozenset(run.exclude)


class _Judgement(NamedTuple):
    """A judgement of a question: its task, if any, and whether a grader or a person gave it."""

    judged_at: str
    record: TaskRecord | None
    is_explicit: bool


@dataclass(slots=True)
class RunDataset:
    """Training data from judged runs. `unused` counts unused runs by kind and reason."""

    prompt: Prompt = field(default_factory=Prompt)
    outcomes: list[Outcome] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    unused: dict[str, Counter[str]] = field(
        default_factory=lambda: {"outcomes": Counter(), "tasks": Counter(), "plans": Counter()}
    )
    _judgements: dict[str, list[_Judgement]] = field(default_factory=dict)

    @property
    def tasks(self) -> list[TaskRecord]:
        found = map(_last_task, self._judgements.values())
        return [task for task in found if task is not None]

    def take(self, judged: JudgedRun) -> None:
        outcome = worker_outcome(judged)
        if outcome is None:
            self.unused["outcomes"][SEVERAL_STEPS] += 1
        elif any(worker.provider == ORACLE for worker in judged.run.pool):
            self.unused["outcomes"][ORACLE_ANSWERED] += 1
        elif has_conversation(judged.run):
            self.unused["outcomes"][NEEDS_CONTEXT] += 1
        else:
            self.outcomes.append(outcome)
        self._take_task(judged)
        self._take_plan(judged)

    def _take_task(self, judged: JudgedRun) -> None:
        run, unused = judged.run, self.unused["tasks"]
        if judged.has_exclusions:
            unused[WORKER_EXCLUDED] += 1
        elif run.history or has_conversation(run):
            unused[NEEDS_CONTEXT] += 1
        else:
            named = _explicit_task(judged)
            record = named or _task_of_answer(judged)
            if record is None:
                unused[NO_REFERENCE] += 1
            if record is not None or judged.reward < MIN_GOOD_REWARD:
                judgement = _Judgement(judged.judged_at, record, named is not None)
                self._judgements.setdefault(run.question, []).append(judgement)

    def _take_plan(self, judged: JudgedRun) -> None:
        run, unused = judged.run, self.unused["plans"]
        if judged.reward < MIN_GOOD_REWARD:
            unused[LOW_SCORE] += 1
            return
        example = _plan_of(run, self.prompt)
        if example is None:
            unused[NO_PLAN] += 1
        else:
            self.plans.append(example)


def has_conversation(run: Run) -> bool:
    """True if the question depends on earlier turns. A system prompt alone does not."""
    spoken = any(message.role != "system" for message in run.history)
    return spoken or bool(run.images) or bool(run.response_options.tools)


def _last_task(judgements: list[_Judgement]) -> TaskRecord | None:
    last: _Judgement | None = None
    for judgement in sorted(judgements, key=lambda item: item.judged_at):
        if judgement.record is not None or (last is not None and not last.is_explicit):
            last = judgement
    return None if last is None else last.record


def _explicit_task(judged: JudgedRun) -> TaskRecord | None:
    """Return the grader's own task, or the question with a person's right answer, if any."""
    if not judged.task:
        return None
    record = _read(judged.task, judged.run)
    if record.grader == JUDGE:
        return None
    if judged.source != FEEDBACK:
        return record
    return replace(record, grader=CONTAINS) if _is_reference(record.answer) else None


def _task_of_answer(judged: JudgedRun) -> TaskRecord | None:
    """Return the question with its good answer, where others can be compared with it."""
    run = judged.run
    is_corrected = judged.source == FEEDBACK and bool(judged.task)
    if judged.reward < MIN_GOOD_REWARD or run.answer is None or is_corrected:
        return None
    tagged = extract_answer(run.answer, tagged=True)
    answer = tagged or run.answer.strip()
    if not _is_reference(answer) or (not tagged and _is_sentence(answer)):
        return None
    return TaskRecord(
        id=run.id, question=run.question, answer=answer, grader=CONTAINS, kind=RUN_TASK_KIND
    )


def _is_reference(answer: str) -> bool:
    """True if the text is short enough to recognise a right answer by."""
    return 0 < len(answer) <= MAX_REFERENCE_CHARS and "\n" not in answer


def _is_sentence(answer: str) -> bool:
    """True if the text says more than the answer alone."""
    words = answer.split()
    return len(words) > MAX_REFERENCE_WORDS or (len(words) > 1 and answer.endswith((".", "!")))


def _read(task: str, run: Run) -> TaskRecord:
    try:
        record = TaskRecord.from_json(json.loads(task), run.id)
    except (ValueError, ConfigError) as error:
        raise ConfigError(
            f"the task that {run.id} was graded by cannot be read ({error}); grade it again with: "
            f"podium runs grade TASKS --again"
        ) from error
    return TaskRecord(
        id=run.id,
        question=run.question,
        answer=record.answer,
        grader=record.grader,
        parameters=record.parameters,
        kind=record.kind or RUN_TASK_KIND,
        difficulty=record.difficulty,
    )


def _plan_of(run: Run, prompt: Prompt) -> dict[str, Any] | None:
    """Return the prompt for the run's plan, and the plan without its reasoning."""
    planned = [round_.workflow for round_ in run.rounds if round_.workflow is not None]
    if len(planned) != 1 or any(step.worker not in run.pool.names for step in planned[0].steps):
        return None
    context = PlanningContext(
        question=run.question,
        pool=run.pool,
        history=run.history,
        max_steps=run.max_steps,
        images=run.images,
        response_options=run.response_options,
    )
    return {
        "prompt": prompt.chat(context),
        "reply": plan.write(planned[0], run.pool, layout=prompt.layout),
    }


CONCURRENT_GRADINGS: Final = 8
PAGE_SIZE: Final = 200

GRADED_BEFORE: Final = "judged before"
JUDGE_EXCLUDED: Final = "hidden from the judge"
NOT_GRADED: Final = "grading failed"


class GradingTask(NamedTuple):
    """The grading of an answer: grader, its name, its task, and the judging worker, if any."""

    grader: Grader
    name: str
    task: str = ""
    judge: WorkerProfile | None = None


class TaskGrader:
    """Grades the answers to questions that are in a list of tasks."""

    def __init__(self, records: Sequence[TaskRecord], judge: Worker | None = None) -> None:
        self._records = {record.question.strip(): record for record in records}
        self._summaries = {question[:SUMMARY_CHARACTERS] for question in self._records}
        self._worker = judge

    def may_grade(self, summary: str) -> bool:
        return summary.strip() in self._summaries or len(summary) >= SUMMARY_CHARACTERS

    def grading_task(self, question: str) -> GradingTask | None:
        record = self._records.get(question.strip())
        if record is None:
            return None
        task = record.to_task(self._worker)
        written = json.dumps(record.to_json(), ensure_ascii=False)
        if task.judge is None or self._worker is None:
            return GradingTask(task.grader, record.grader, written)
        name = f"{record.grader} {task.judge}"
        return GradingTask(task.grader, name, written, self._worker.profile)


class RubricGrader:
    """Has a worker judge the answers to all questions by one rubric."""

    def __init__(self, judge: Worker, rubric: str) -> None:
        self._worker = judge
        self._rubric = rubric

    def may_grade(self, summary: str) -> bool:
        return True

    def grading_task(self, question: str) -> GradingTask | None:
        grader = JudgeGrader(question, self._worker, rubric=self._rubric)
        judge = self._worker.profile
        return GradingTask(grader, f"{JUDGE} {judge.name}", judge=judge)


RunGrader = TaskGrader | RubricGrader


@dataclass(slots=True)
class GradingResult:
    """Counts of right, wrong and skipped runs.

    `judged_by_graders` counts those that can be graded again; `problem` is the last grader error.
    """

    right: int = 0
    wrong: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    judged_by_graders: int = 0
    problem: str = ""


async def grade_runs(
    store: RunStore,
    grader: RunGrader,
    *,
    wanted: RunFilter | None = None,
    limit: int,
    again: bool = False,
) -> GradingResult:
    """Grade the newest wanted runs, at most `limit`, and store the results as feedback.

    With `again`, also those that a grader has judged.
    """
    graded = GradingResult()
    runs = _runs_to_grade(store, grader, wanted or RunFilter(status="answered"), again, graded)
    batch: list[tuple[Run, GradingTask]] = []
    async for item in runs:
        batch.append(item)
        if len(batch) == min(CONCURRENT_GRADINGS, limit):
            limit -= len(batch)
            await asyncio.gather(*(_grade(store, *one, graded) for one in batch))
            batch = []
        if limit == 0:
            break
    await asyncio.gather(*(_grade(store, *one, graded) for one in batch))
    return graded


async def _runs_to_grade(
    store: RunStore, grader: RunGrader, wanted: RunFilter, again: bool, graded: GradingResult
) -> AsyncIterator[tuple[Run, GradingTask]]:
    rules = await rules_by_key(store)
    feedback = store.feedback
    before: str | None = None
    while page := await store.list(wanted, limit=PAGE_SIZE, before=before):
        before = page[-1].id
        for summary in page:
            if not grader.may_grade(summary.question):
                continue
            given = await feedback.get(summary.id)
            if given is not None and not (again and given.grader):
                graded.left_out[GRADED_BEFORE] += 1
                graded.judged_by_graders += bool(given.grader)
                continue
            try:
                run = await store.load(summary.id)
            except NotFound:  # it was deleted just now
                continue
            except UnreadableRun:
                graded.left_out[UNREADABLE] += 1
                continue
            grading_task = grader.grading_task(run.question)
            if grading_task is None:
                continue
            reason = _skip_reason(run, rules, grading_task.judge)
            if reason is None:
                yield run, grading_task
            else:
                graded.left_out[reason] += 1


def _skip_reason(run: Run, rules: Mapping[str, Rules], judge: WorkerProfile | None) -> str | None:
    reason = why_withheld(run, rules)
    if reason is not None or judge is None:
        return reason
    if excluded_by(run, rules) & {judge.name, judge.provider}:
        return JUDGE_EXCLUDED
    return NEEDS_CONTEXT if has_conversation(run) else None


async def _grade(
    store: RunStore, run: Run, grading_task: GradingTask, graded: GradingResult
) -> None:
    try:
        is_right = await grading_task.grader(run.answer or "")
    except PodiumError as error:  # the grader failed, which says nothing of the answer
        graded.left_out[NOT_GRADED] += 1
        graded.problem = str(error)
        return
    await store.feedback.save(
        Feedback(
            run_id=run.id,
            score=float(is_right),
            given_at=timestamp(),
            grader=grading_task.name,
            task=grading_task.task,
        )
    )
    graded.right += is_right
    graded.wrong += not is_right
