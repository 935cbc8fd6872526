"""`podium runs feedback` and `podium runs grade`: what a person, or a grader, thinks of runs."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import options
from podium.cli.formatting import counted, thought
from podium.cli.models import fetch, weights_of
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.pool import connected
from podium.cli.session import with_store
from podium.cli.settings import Choice, settings_for
from podium.client.documents import feedback_document
from podium.config import Settings, WorkerSettings
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.run import Run, timestamp
from podium.store import Feedback, RunFilter, RunStore, audit_in, correction_task, feedback_in
from podium.store.audit import AuditAction, local_event
from podium.store.base import LONGEST_ANSWER, LONGEST_COMMENT
from podium.workers import Http

if TYPE_CHECKING:  # the graders are slow to import, and help must be quick
    from podium.core.worker import Worker
    from podium.tasks import TaskRecord
    from podium.train.run_data import GradingResult

USUAL_LIMIT: Final = 100

Tasks = Annotated[
    Path | None,
    typer.Argument(
        metavar="TASKS",
        help="A .jsonl or .csv file of tasks: runs of the same questions are graded by them.",
        show_default=False,
    ),
]
JudgeName = Annotated[
    str | None,
    typer.Option(
        "--judge", metavar="WORKER", help="The worker that decides where a model is the grader."
    ),
]
Rubric = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="With --judge, instead of tasks: what every answer is judged by."
    ),
]


def feedback(
    run_id: options.RunId,
    score: Annotated[
        float | None,
        typer.Argument(
            metavar="SCORE", callback=options.share, help="From 0, useless, to 1, just right."
        ),
    ] = None,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why, in your words.")] = "",
    answer: Annotated[
        str, typer.Option(metavar="TEXT", help="What would have been right, in a few words.")
    ] = "",
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Forget what was thought of the run.")
    ] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say what you think of a run's answer, see what was thought of it, or withdraw it.

    The latest word stands. A person's is never overwritten by a grader's.
    """
    if withdraw and score is not None:
        raise UsageError("--withdraw forgets what was thought, and takes no score; leave one out")
    if score is None and (comment or answer):
        raise UsageError("a comment and a right answer go with a score; give one from 0 to 1")
    for option, text, most in (
        ("--comment", comment, LONGEST_COMMENT),
        ("--answer", answer, LONGEST_ANSWER),
    ):
        if len(text) > most:
            raise UsageError(
                f"{option} has {len(text):,} characters; {most:,} are kept at most, so say it "
                f"in fewer"
            )

    async def judged(store: RunStore) -> tuple[str, Feedback | None]:
        run = await store.load(run_id)
        kept = feedback_in(store)
        if withdraw:
            if await kept.get(run.id) is not None:  # else nothing is done that could be on record
                await _enter_anothers("feedback withdrawn", run, store)
            await kept.delete(run.id)
        elif score is not None:
            if run.status in ("running", "waiting"):
                raise UsageError(
                    f"{run.id} is {run.status}; say what you think of it when it has ended"
                )
            said = Feedback(
                run_id=run.id,
                score=score,
                comment=comment,
                given_at=timestamp(),
                task=correction_task(run.question, answer),
            )
            await _enter_anothers("feedback given", run, store)
            await kept.save(said)
        return run.id, await kept.get(run.id)

    found, given = with_store(config, judged)
    if json:
        say_json(None if given is None else feedback_document(given))
    elif given is None:
        say(f"{found}: withdrawn" if withdraw else f"{found}: nobody has said")
    else:
        say(f"{found}: {thought(given)}")


async def _enter_anothers(action: AuditAction, run: Run, store: RunStore) -> None:
    """Enter what the user of this machine does to the feedback on a run that a key asked for."""
    if run.owner:
        await audit_in(store).add(local_event(action, run.id, {"owner": run.owner}))


def grade(
    tasks: Tasks = None,
    judge: JudgeName = None,
    rubric: Rubric = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most runs to grade.")
    ] = USUAL_LIMIT,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", help="Only runs begun then or later, by the local clock."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also runs that a grader has judged before.")
    ] = False,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    offline: options.Offline = False,
) -> None:
    """Grade answered runs, the newest first; what a grader thinks counts as feedback.

    By a file of tasks, whose graders decide, or by a judge with a rubric. What a person said of a
    run stands, and it is not graded. Runs of keys that are kept out of training are left alone, and
    a judge is shown nothing that it must not see.
    """
    if (tasks is None) == (rubric is None):
        raise UsageError("grade by a file of tasks, or with --judge WORKER and --rubric TEXT")
    if rubric is not None and judge is None:
        raise UsageError("a rubric is for a judge; name the worker with --judge WORKER")
    settings = None
    if judge is not None:
        choice = Choice(pool=pool, config=config, offline=offline)
        settings = _worker(asyncio.run(settings_for(choice, os.environ)), judge)

    async def graded(store: RunStore) -> GradingResult:
        from podium.train.run_data import RubricGrader, RunGrader, TaskGrader, grade_runs

        wanted = RunFilter(status="answered", since=since and since.astimezone())
        async with AsyncExitStack() as stack:
            worker = None if settings is None else await _opened(settings, stack, offline=offline)
            examiner: RunGrader
            if worker is not None and rubric is not None:
                examiner = RubricGrader(worker, rubric)
            else:
                examiner = TaskGrader(_records(tasks, worker), worker)
            return await grade_runs(store, examiner, wanted=wanted, limit=limit, again=again)

    _tell(with_store(config, graded, pool), json=json)


def _tell(graded: GradingResult, *, json: bool) -> None:
    done = graded.right + graded.wrong
    if json:
        say_json(asdict(graded))
    else:
        say(f"graded {counted(done, 'run')}: {graded.right} right, {graded.wrong} wrong")
        for reason, count in graded.left_out.most_common():
            say(f"left out {counted(count, 'run')} {reason}")
    if graded.problem:
        complain(f"of those that could not be graded, the last: {graded.problem}")
        raise typer.Exit(Exit.FAILED)
    if not done and graded.judged_by_graders:
        complain("no run was graded; those that a grader has judged are graded anew with --again")
    elif not done:
        complain("no run was graded; see which there are with: podium runs list")


def _records(tasks: Path | None, judge: Worker | None) -> list[TaskRecord]:
    from podium.tasks.own import read_own

    assert tasks is not None, "checked before"
    return list(read_own(tasks, judge).whole().records)


def _worker(settings: Settings, name: str) -> WorkerSettings:
    names = settings.pool.names
    if name not in names:
        raise UsageError(
            f"the judge {name!r} is no worker of {settings.source}; {suggest(name, names)}"
        )
    return settings[name]


async def _opened(settings: WorkerSettings, stack: AsyncExitStack, *, offline: bool) -> Worker:
    for model in weights_of(settings):
        await fetch(model, offline=offline)
    http = Http()
    stack.push_async_callback(http.close)
    return await stack.enter_async_context(connected(settings, http))
