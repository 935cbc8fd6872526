"""`podium runs`: what was asked before, and going on with what was cut off."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.feedback import feedback, grade
from podium.cli.formatting import (
    CUT_OFF,
    local_time,
    money,
    one_line,
    seconds,
    shortened,
    thought,
    tokens,
)
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.run_views import (
    account,
    as_json,
    as_markdown,
    compare,
    comparison_document,
    say_differences,
)
from podium.cli.session import Result, Session, with_store
from podium.cli.settings import Caps, Choice, check_leading, conductor_of, settings_for
from podium.cli.showing import deliver, onlooker
from podium.client.documents import feedback_document, run_document, summary_document
from podium.core.errors import StoreError, UnreadableRun, UsageError
from podium.core.run import Run, RunStatus, Tier
from podium.store import (
    EVERY_RUN,
    Feedback,
    RunFilter,
    RunStore,
    RunSummary,
    audit_in,
    feedback_in,
)
from podium.store.audit import local_event

Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most runs to list.")
]
Status = Annotated[
    RunStatus | None,
    typer.Option(
        metavar="STATUS",
        help="Only runs that are running, answered, partial, failed, exhausted, interrupted or "
        "waiting.",
    ),
]
Text = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only runs whose question or answer contains this."),
]
InTier = Annotated[
    Tier | None,
    typer.Option(metavar="TIER", help="Only runs of this tier: mini, podium or ultra."),
]
UsedWorker = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only runs of which a step used this worker.")
]
CostFrom = Annotated[
    float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or more.")
]
CostTo = Annotated[
    float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or less.")
]
Since = Annotated[
    datetime | None,
    typer.Option(metavar="DATE", help="Only runs begun then or later, by the local clock."),
]
Until = Annotated[
    datetime | None,
    typer.Option(metavar="DATE", help="Only runs begun then or earlier, by the local clock."),
]


app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

MOST_RESUMED: Final = 1000
"""How many runs that were cut off are gone on with at once."""


@app.command("list")
def list_(
    limit: Limit = 20,
    status: Status = None,
    text: Text = None,
    tier: InTier = None,
    worker: UsedWorker = None,
    cost_from: CostFrom = None,
    cost_to: CostTo = None,
    since: Since = None,
    until: Until = None,
    json: options.JsonList = False,
    config: options.Config = None,
) -> None:
    """List runs, the newest first.

    With --json, too, only the first 500 characters of a question and an answer are listed;
    podium runs show ID --json has all of both. In the list, is_performed says
    of a run that is running whether its process is still at work on it.
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
    found, performed = _read(config, lambda store: _listed(store, wanted, limit))
    if json:
        say_json(
            [{**summary_document(each), "is_performed": each.id in performed} for each in found]
        )
    elif found:
        _say_list(found, performed, config)
    elif wanted != EVERY_RUN:
        complain("no run matches; see all that there are with: podium runs list")
    else:
        complain("no runs; ask something with: podium ask QUESTION")


@app.command()
def show(
    run_id: options.RunId,
    prompts: Annotated[
        bool,
        typer.Option(
            "--prompts", help="Also what the conductor wrote, and what each worker was shown."
        ),
    ] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show a run: plans, every step's reply, nested runs, feedback, and the answer."""
    if json and prompts:
        raise UsageError("--json has no prompts; podium runs export writes all of a run as JSON")
    run, is_claimed, given = _read(config, lambda store: _loaded(store, run_id))
    if json:
        feedback = None if given is None else feedback_document(given)
        say_json({**run_document(run), "feedback": feedback})
        return
    cut_off = run.status == "running" and not is_claimed
    for line in account(run, prompts=prompts, cut_off=cut_off):
        say(line)
    if cut_off:
        say(f"its process is gone; the next server goes on with it, or {_resuming(run.id, config)}")
    if given is not None:
        say(f"feedback: {one_line(thought(given))}")
    if run.answer is not None:
        say(f"\n{run.answer}")


@app.command()
def export(
    run_id: options.RunId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to this file.")
    ] = None,
    form: Annotated[
        Literal["json", "md"],
        typer.Option("--format", metavar="json|md", help="All of it as JSON, or a page to read."),
    ] = "json",
    config: options.Config = None,
) -> None:
    """Write a run out as a whole: versioned JSON that loads again, or Markdown."""
    run = _load(run_id, config)
    text = as_json(run) if form == "json" else as_markdown(run)
    if output is None:
        say(text)
        return
    try:
        output.write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}; choose another file") from error


@app.command()
def diff(
    one: Annotated[str, typer.Argument(metavar="ID", help="A run.")],
    other: Annotated[str, typer.Argument(metavar="ID", help="The run to compare it with.")],
    json: options.JsonList = False,
    config: options.Config = None,
) -> None:
    """Say what differs between two runs: settings, plans, replies, cost."""
    differences = compare(_load(one, config), _load(other, config))
    if json:
        say_json(comparison_document(differences))
    else:
        say_differences(differences)


@app.command()
def resume(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A run's id, the beginning of it, or last; without one, every run whose process "
            "ended before the run did, in the last day.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    offline: options.Offline = False,
) -> None:
    """Go on with a run that was cut off; steps that are done are not asked again.

    Caps given here take the place of the run's own, and what it has spent counts. It needs the
    pool that the run had: give --pool again where it was given before. Exit codes are those of
    podium ask; of several runs, that of the first which was not answered, and one that cannot go
    on keeps none of the others from it. With --json an object for each run follows the other.
    """
    caps = Caps(
        usd=budget_usd,
        calls=budget_calls,
        seconds=budget_seconds,
        tokens=budget_tokens,
        allow_unpriced=allow_unpriced,
    )
    choice = Choice(pool=pool, config=config, conductor=conductor, offline=offline)
    if run_id is not None:
        raise typer.Exit(_resume(run_id, choice, caps, json=json, quiet=quiet))
    ends: list[Exit] = []
    for each in with_store(config, _cut_off, pool):
        ends.append(_resume_if_it_can(each, choice, caps, json=json, quiet=quiet))
        if ends[-1] is Exit.INTERRUPTED:
            break  # whoever interrupts one does not want the next
    if not ends:
        complain("no run was cut off; see all that there are with: podium runs list")
    raise typer.Exit(next((end for end in ends if end), Exit.ANSWERED))


@app.command()
def delete(
    run_id: options.RunId,
    config: options.Config = None,
) -> None:
    """Forget a run for good. One that is still being performed is not deleted."""
    say(f"deleted {with_store(config, lambda store: _delete(store, run_id))}")


app.command()(feedback)
app.command()(grade)


def _resume_if_it_can(run_id: str, choice: Choice, caps: Caps, *, json: bool, quiet: bool) -> Exit:
    """Go on with one run of several, or say why it cannot."""
    try:
        return _resume(run_id, choice, caps, json=json, quiet=quiet)
    except (UsageError, UnreadableRun) as error:
        why = str(error)
        complain(why if run_id in why else f"{run_id} is left as it is: {why}")
        return Exit.USAGE if isinstance(error, UsageError) else Exit.FAILED


def _resume(run_id: str, choice: Choice, caps: Caps, *, json: bool, quiet: bool) -> Exit:
    """Go on with one run and show what comes of it."""
    found = with_store(choice.config, lambda store: store.load(run_id), choice.pool)
    if found.status != "answered":
        _check_settings(found, choice)
    planned = replace(choice, conductor=choice.conductor or conductor_of(found))
    with Session(planned, keep=True, quiet=quiet) as session:
        run = session.perform(
            lambda podium, watched: podium.resume(
                found, budget=caps.over(found.budget), emit=watched["emit"], stream=True
            ),
            onlooker(silent=json or quiet),
        )
    return deliver(run, session.resume(run), json=json, quiet=quiet)


async def _cut_off(store: RunStore) -> list[str]:
    """The runs whose processes ended before they did."""
    return [each.id for each in await store.list_abandoned(MOST_RESUMED)]


def _check_settings(run: Run, choice: Choice) -> None:
    """Refuse a pool or a conductor with which the run cannot go on, before anything is fetched for
    it. Who names a conductor wants just that one."""
    settings = asyncio.run(settings_for(replace(choice, conductor=None), os.environ))
    for name in run.pool.names:
        if name not in settings.pool.names:
            raise UsageError(
                f"{run.id} needs the pool that it had, and there is no worker named {name!r} in "
                f"{settings.source}; give that pool again with --pool FILE or --config FILE"
            )
    if choice.conductor is None and conductor_of(run) is None:
        check_leading(run, settings)


async def _delete(store: RunStore, named: str) -> str:
    """Delete the run that is meant, and give its id."""
    try:
        run = await store.load(named)
    except StoreError:  # it cannot be read, but its whole id is enough to be rid of it
        await audit_in(store).add(local_event("run deleted", named))
        await store.delete(named)
        return named
    if await store.is_claimed(run.id):
        raise UsageError(
            f"{run.id} is still being performed, by the process {run.process}; "
            f"stop that first, or wait for it"
        )
    await audit_in(store).add(local_event("run deleted", run.id, {"owner": run.owner}))
    await store.delete(run.id)
    return run.id


def _say_list(found: Sequence[RunSummary], performed: set[str], config: Path | None) -> None:
    """A line for each run, and how to go on with those whose process is gone."""
    cut_off = [each.id for each in found if each.status == "running" and each.id not in performed]
    for summary in found:
        say(_summary_line(summary, CUT_OFF if summary.id in cut_off else summary.status))
    if cut_off:
        complain(
            f"of what was cut off, the process is gone; the next server goes on with it, or "
            f"{_resuming('ID', config)}"
        )


async def _listed(
    store: RunStore, wanted: RunFilter, limit: int
) -> tuple[list[RunSummary], set[str]]:
    """The runs that are wanted, and which of them a process is at work on."""
    found = await store.list(wanted, limit=limit)
    going_on = [each.id for each in found if each.status == "running"]
    return found, {run_id for run_id in going_on if await store.is_claimed(run_id)}


async def _loaded(store: RunStore, run_id: str) -> tuple[Run, bool, Feedback | None]:
    """The run, whether a process is at work on it, and what was thought of its answer."""
    run = await store.load(run_id)
    is_claimed = run.status == "running" and await store.is_claimed(run.id)
    return run, is_claimed, await feedback_in(store).get(run.id)


def _resuming(run_id: str, config: Path | None) -> str:
    """The command that goes on with a run that was cut off."""
    given = f" --config {shlex.quote(str(config))}" if config is not None else ""
    return f"podium runs resume {run_id}{given}"


def _load(run_id: str, config: Path | None) -> Run:
    return _read(config, lambda store: store.load(run_id))


def _read(config: Path | None, work: Callable[[RunStore], Awaitable[Result]]) -> Result:
    return with_store(config, work, to_read=True)


def _summary_line(summary: RunSummary, status: str) -> str:
    when = local_time(summary.created_at)
    used = ""
    if summary.calls is not None:
        took = seconds(summary.seconds or 0.0)
        used = f" ({tokens(summary.total_tokens)}, {money(summary.cost_usd)}, {took})"
    return f"{summary.id}  {when}  {status:<11}  {shortened(summary.question, 60)}{used}"
