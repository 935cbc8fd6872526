"""`podium runs feedback` and `podium runs grade`: scores of runs by people and by graders."""

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
from podium.cli.models import fetch, worker_weights
from podium.cli.options import PoolOptions, load_settings
from podium.cli.output import ExitCode, describe_feedback, echo, echo_error, echo_json, pluralize
from podium.cli.pool import connect_worker
from podium.cli.session import run_with_store
from podium.client.documents import feedback_document
from podium.config import Settings, WorkerSettings
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.run import Run, timestamp
from podium.store import Feedback, RunFilter, RunStore, correction_task
from podium.store.audit import AuditAction, local_event
from podium.store.base import MAX_ANSWER, MAX_COMMENT
from podium.workers import Http

if TYPE_CHECKING:  # the graders are slow to import, and help must be quick
    from podium.core.worker import Worker
    from podium.tasks import TaskRecord
    from podium.train.run_data import GradingResult

DEFAULT_LIMIT: Final = 100

Tasks = Annotated[
    Path | None,
    typer.Argument(
        metavar="TASKS",
        help="A .jsonl or .csv file of tasks; grades runs of the same questions.",
        show_default=False,
    ),
]
JudgeName = Annotated[
    str | None,
    typer.Option(
        "--judge", metavar="WORKER", help="The worker that grades where a model is the grader."
    ),
]
Rubric = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="With --judge, instead of tasks: the criterion for every answer."
    ),
]


def feedback(
    run_id: options.RunId,
    score: Annotated[
        float | None,
        typer.Argument(
            metavar="SCORE", callback=options.check_share, help="From 0 (useless) to 1 (correct)."
        ),
    ] = None,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="A comment.")] = "",
    answer: Annotated[
        str, typer.Option(metavar="TEXT", help="The correct answer, in a few words.")
    ] = "",
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Delete the feedback on the run.")
    ] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Give, show or withdraw feedback on a run.

    New feedback replaces the old. A grader never overwrites a person's feedback.
    """
    if withdraw and score is not None:
        raise UsageError("--withdraw takes no score; leave one of them out")
    if score is None and (comment or answer):
        raise UsageError("a comment or an answer needs a score; give one from 0 to 1")
    for option, text, most in (
        ("--comment", comment, MAX_COMMENT),
        ("--answer", answer, MAX_ANSWER),
    ):
        if len(text) > most:
            raise UsageError(
                f"{option} has {len(text):,} characters, the limit is {most:,}; shorten it"
            )

    async def apply(store: RunStore) -> tuple[str, Feedback | None]:
        run = await store.load(run_id)
        kept = store.feedback
        if withdraw:
            if await kept.get(run.id) is not None:
                await _audit("feedback withdrawn", run, store)
            await kept.delete(run.id)
        elif score is not None:
            if run.status in ("running", "waiting"):
                raise UsageError(f"{run.id} is {run.status}; give feedback when it has ended")
            said = Feedback(
                run_id=run.id,
                score=score,
                comment=comment,
                given_at=timestamp(),
                task=correction_task(run.question, answer),
            )
            await _audit("feedback given", run, store)
            await kept.save(said)
        return run.id, await kept.get(run.id)

    found, given = run_with_store(config, apply)
    if json:
        echo_json(None if given is None else feedback_document(given))
    elif given is None:
        echo(f"{found}: feedback withdrawn" if withdraw else f"run {found} has no feedback")
    else:
        echo(f"{found}: {describe_feedback(given)}")


async def _audit(action: AuditAction, run: Run, store: RunStore) -> None:
    """Record a change to the feedback on a run that belongs to a key."""
    if run.owner:
        await store.audit.add(local_event(action, run.id, {"owner": run.owner}))


def grade(
    tasks: Tasks = None,
    judge: JudgeName = None,
    rubric: Rubric = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most runs to grade.")
    ] = DEFAULT_LIMIT,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", help="Only runs started then or later, in local time."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also runs that a grader has graded before.")
    ] = False,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    offline: options.Offline = False,
) -> None:
    """Grade answered runs, newest first; the grades count as feedback.

    By a file of tasks with their graders, or by a judge with a rubric. Runs with feedback from a
    person are skipped, as are runs of keys that are excluded from training. A judge is shown
    nothing that it must not see.
    """
    if (tasks is None) == (rubric is None):
        raise UsageError("give a file of tasks, or --judge WORKER and --rubric TEXT")
    if rubric is not None and judge is None:
        raise UsageError("--rubric needs a judge; name a worker with --judge WORKER")
    settings = None
    if judge is not None:
        choice = PoolOptions(pool=pool, config=config, offline=offline)
        settings = _worker(asyncio.run(load_settings(choice, os.environ)), judge)

    async def grade_stored(store: RunStore) -> GradingResult:
        from podium.train.run_data import RubricGrader, RunGrader, TaskGrader, grade_runs

        wanted = RunFilter(status="answered", since=since and since.astimezone())
        async with AsyncExitStack() as stack:
            worker = None if settings is None else await _connect(settings, stack, offline=offline)
            grader: RunGrader
            if worker is not None and rubric is not None:
                grader = RubricGrader(worker, rubric)
            else:
                grader = TaskGrader(_records(tasks, worker), worker)
            return await grade_runs(store, grader, wanted=wanted, limit=limit, again=again)

    _print_grades(run_with_store(config, grade_stored, pool), json=json)


def _print_grades(graded: GradingResult, *, json: bool) -> None:
    done = graded.right + graded.wrong
    if json:
        echo_json(asdict(graded))
    else:
        echo(f"graded {pluralize(done, 'run')}: {graded.right} right, {graded.wrong} wrong")
        for reason, count in graded.left_out.most_common():
            echo(f"skipped {pluralize(count, 'run')} {reason}")
    if graded.problem:
        echo_error(f"some runs could not be graded; the last error: {graded.problem}")
        raise typer.Exit(ExitCode.FAILED)
    if not done and graded.judged_by_graders:
        echo_error("no run was graded; --again grades runs that a grader has graded before")
    elif not done:
        echo_error("no run was graded; list the runs with: podium runs list")


def _records(tasks: Path | None, judge: Worker | None) -> list[TaskRecord]:
    from podium.tasks.records import read_task_file

    assert tasks is not None, "checked before"
    return list(read_task_file(tasks, judge).whole().records)


def _worker(settings: Settings, name: str) -> WorkerSettings:
    names = settings.pool.names
    if name not in names:
        raise UsageError(
            f"the judge {name!r} is not a worker of {settings.source}; {suggest(name, names)}"
        )
    return settings[name]


async def _connect(settings: WorkerSettings, stack: AsyncExitStack, *, offline: bool) -> Worker:
    for model in worker_weights(settings):
        await fetch(model, offline=offline)
    http = Http()
    stack.push_async_callback(http.close)
    return await stack.enter_async_context(connect_worker(settings, http))
