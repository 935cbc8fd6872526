"""`podium runs`: list, show, export, diff, grade, resume and delete stored runs."""

from __future__ import annotations

import asyncio
import json as json_format
import os
import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.models import fetch, worker_weights
from podium.cli.options import (
    BudgetOptions,
    PoolOptions,
    check_can_resume,
    conductor_option,
    load_settings,
    with_option_groups,
)
from podium.cli.output import (
    CUT_OFF,
    ExitCode,
    describe_feedback,
    echo,
    echo_error,
    echo_json,
    format_local_time,
    format_seconds,
    format_tokens,
    format_usd,
    pluralize,
    shorten,
    to_one_line,
)
from podium.cli.pool import connect_worker
from podium.cli.run_views import compare_runs, print_differences, run_lines
from podium.cli.session import answer_once, run_with_store
from podium.client.documents import feedback_document, run_document, summary_document
from podium.config import Settings, WorkerSettings
from podium.config.problems import suggest
from podium.core.errors import StoreError, UnreadableRun, UsageError
from podium.core.run import Run, RunStatus, Tier, dump, timestamp
from podium.store import EVERY_RUN, Feedback, RunFilter, RunStore, RunSummary, correction_task
from podium.store.audit import AuditAction, local_event
from podium.store.base import MAX_ANSWER, MAX_COMMENT
from podium.workers import Http

if TYPE_CHECKING:
    from podium.core.worker import Worker
    from podium.tasks import TaskRecord
    from podium.train.run_data import GradingResult


app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)

MAX_RESUMED: Final = 1000


@app.command("list")
def list_(
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most runs to list.")
    ] = 20,
    status: Annotated[
        RunStatus | None,
        typer.Option(
            metavar="STATUS",
            help="Only runs that are running, answered, partial, failed, exhausted, interrupted "
            "or waiting.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only runs whose question or answer contains this."),
    ] = None,
    tier: Annotated[
        Tier | None,
        typer.Option(metavar="TIER", help="Only runs of this tier: mini, podium or ultra."),
    ] = None,
    worker: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs with a step of this worker.")
    ] = None,
    cost_from: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or more.")
    ] = None,
    cost_to: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or less.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", help="Only runs started then or later, in local time."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", help="Only runs started then or earlier, in local time."),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """List runs, newest first.

    The list, also with --json, holds the first 500 characters of each question and answer; podium
    runs show ID --json holds all of them. is_executing says of a running run whether its process
    is still working on it.
    """
    wanted = RunFilter(
        text=text,
        status=status,
        tier=tier,
        worker=worker,
        cost_from=cost_from,
        cost_to=cost_to,
        since=since and since.astimezone(),
        until=until and until.astimezone(),
    )
    found, performed = run_with_store(config, lambda store: _list_runs(store, wanted, limit))
    if json:
        echo_json(
            [{**summary_document(item), "is_executing": item.id in performed} for item in found]
        )
    elif found:
        _print_list(found, performed, config)
    elif wanted != EVERY_RUN:
        echo_error("no run matches; list all runs with: podium runs list")
    else:
        echo_error("no runs; ask something with: podium ask QUESTION")


@app.command()
def show(
    run_id: options.RunId,
    prompts: Annotated[
        bool,
        typer.Option("--prompts", help="Also show the conductor's text and each worker's prompt."),
    ] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show a run: plans, every step's reply, nested runs, feedback and the answer."""
    if json and prompts:
        raise UsageError("--json shows no prompts; podium runs export writes a whole run as JSON")
    run, is_claimed, given = run_with_store(config, lambda store: _load_details(store, run_id))
    if json:
        feedback = None if given is None else feedback_document(given)
        echo_json({**run_document(run), "feedback": feedback})
        return
    cut_off = run.status == "running" and not is_claimed
    for line in run_lines(run, prompts=prompts, cut_off=cut_off):
        echo(line)
    if cut_off:
        echo(
            f"its process is gone; the next server resumes it, or {_resume_command(run.id, config)}"
        )
    if given is not None:
        echo(f"feedback: {to_one_line(describe_feedback(given))}")
    if run.answer is not None:
        echo(f"\n{run.answer}")


@app.command()
def export(
    run_id: options.RunId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")
    ] = None,
    config: options.Config = None,
) -> None:
    """Export a whole run: versioned JSON that can be loaded again."""
    run = run_with_store(config, lambda store: store.load(run_id))
    text = json_format.dumps(dump(run), indent=2)
    if output is None:
        echo(text)
        return
    try:
        output.write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}; choose another file") from error


@app.command()
def diff(
    one: Annotated[str, typer.Argument(metavar="ID", help="A run.")],
    other: Annotated[str, typer.Argument(metavar="ID", help="The run to compare it with.")],
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show what differs between two runs: settings, plans, replies, cost."""
    first = run_with_store(config, lambda store: store.load(one))
    second = run_with_store(config, lambda store: store.load(other))
    differences = compare_runs(first, second)
    if json:
        echo_json([difference._asdict() for difference in differences])
    else:
        print_differences(differences)


@app.command()
@with_option_groups
def resume(
    pool: options.WithoutExclude,
    budget: BudgetOptions,
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A run's id, a unique prefix of it, or last; without it, every run of the last "
            "day whose process ended before the run did.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Resume a run that was interrupted; finished steps are not repeated.

    Caps given here replace those of the run; what it has spent counts. It needs the pool of the
    run: give --pool again if it was given before. Exit codes are those of podium ask; of several
    runs, that of the first that was not answered. A run that cannot be resumed does not stop the
    others. With --json, each run prints one object.
    """
    if run_id is not None:
        raise typer.Exit(_resume(run_id, pool, budget, json=json, quiet=quiet))
    codes: list[ExitCode] = []
    for item in run_with_store(
        pool.config, lambda store: store.list_abandoned(MAX_RESUMED), pool.pool
    ):
        codes.append(_try_resume(item.id, pool, budget, json=json, quiet=quiet))
        if codes[-1] is ExitCode.INTERRUPTED:
            break
    if not codes:
        echo_error("no run was cut off; list all runs with: podium runs list")
    raise typer.Exit(next((code for code in codes if code), ExitCode.ANSWERED))


@app.command()
def delete(
    run_id: options.RunId,
    config: options.Config = None,
) -> None:
    """Delete a run for good. A run that is still being performed is not deleted."""
    echo(f"deleted {run_with_store(config, lambda store: _delete(store, run_id))}")


def _try_resume(
    run_id: str, pool: PoolOptions, budget: BudgetOptions, *, json: bool, quiet: bool
) -> ExitCode:
    """Resume one run of several, or say why it cannot be resumed."""
    try:
        return _resume(run_id, pool, budget, json=json, quiet=quiet)
    except (UsageError, UnreadableRun) as error:
        reason = str(error)
        echo_error(reason if run_id in reason else f"{run_id} was not resumed: {reason}")
        return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED


def _resume(
    run_id: str, pool: PoolOptions, budget: BudgetOptions, *, json: bool, quiet: bool
) -> ExitCode:
    found = run_with_store(pool.config, lambda store: store.load(run_id), pool.pool)
    if found.status != "answered":
        _check_settings(found, pool)
    pool = replace(pool, conductor=pool.conductor or conductor_option(found))
    caps = budget.apply_to(found.budget)
    return answer_once(
        lambda session, run_options: session.podium.resume(
            found, budget=caps, emit=run_options["emit"], stream=True
        ),
        pool,
        json=json,
        quiet=quiet,
    )


def _check_settings(run: Run, pool: PoolOptions) -> None:
    """Refuse a pool or a conductor that cannot resume the run, before anything is downloaded."""
    settings = asyncio.run(load_settings(replace(pool, conductor=None), os.environ))
    for name in run.pool.names:
        if name not in settings.pool.names:
            raise UsageError(
                f"{run.id} needs its own pool: there is no worker named {name!r} in "
                f"{settings.source}; give that pool with --pool FILE or --config FILE"
            )
    if pool.conductor is None and conductor_option(run) is None:
        check_can_resume(run, settings)


async def _delete(store: RunStore, named: str) -> str:
    try:
        run = await store.load(named)
    except StoreError:  # it cannot be read, but it can be deleted by its whole id
        await store.audit.add(local_event("run deleted", named))
        await store.delete(named)
        return named
    if await store.is_claimed(run.id):
        raise UsageError(
            f"{run.id} is still being performed by process {run.process}; stop it, or wait"
        )
    await store.audit.add(local_event("run deleted", run.id, {"owner": run.owner}))
    await store.delete(run.id)
    return run.id


def _print_list(found: Sequence[RunSummary], performed: set[str], config: Path | None) -> None:
    """Print a line for each run, and how to resume those whose process is gone."""
    cut_off = [item.id for item in found if item.status == "running" and item.id not in performed]
    for summary in found:
        echo(_summary_line(summary, CUT_OFF if summary.id in cut_off else summary.status))
    if cut_off:
        echo_error(
            f"the process of a run that was cut off is gone; the next server resumes it, or "
            f"{_resume_command('ID', config)}"
        )


async def _list_runs(
    store: RunStore, wanted: RunFilter, limit: int
) -> tuple[list[RunSummary], set[str]]:
    """Return the matching runs, and the ids of those that a process is working on."""
    found = await store.list(wanted, limit=limit)
    running = [item.id for item in found if item.status == "running"]
    return found, {run_id for run_id in running if await store.is_claimed(run_id)}


async def _load_details(store: RunStore, run_id: str) -> tuple[Run, bool, Feedback | None]:
    """Return the run, whether a process is working on it, and its feedback."""
    run = await store.load(run_id)
    is_claimed = run.status == "running" and await store.is_claimed(run.id)
    return run, is_claimed, await store.feedback.get(run.id)


def _resume_command(run_id: str, config: Path | None) -> str:
    given = f" --config {shlex.quote(str(config))}" if config is not None else ""
    return f"podium runs resume {run_id}{given}"


def _summary_line(summary: RunSummary, status: str) -> str:
    when = format_local_time(summary.created_at)
    used = ""
    if summary.calls is not None:
        duration = format_seconds(summary.seconds or 0.0)
        used = (
            f" ({format_tokens(summary.total_tokens)}, {format_usd(summary.cost_usd)}, {duration})"
        )
    return f"{summary.id}  {when}  {status:<11}  {shorten(summary.question, 60)}{used}"


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


@app.command()
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


@app.command()
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
            echo(f"skipped {pluralize(count, 'run')}: {reason}")
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
    return list(read_task_file(tasks, judge).require_complete().records)


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
