"""`podium run`: carry out a workflow that was written by hand, or by `podium plan --json`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium.cli import options
from podium.cli.options import STANDARD_INPUT, question_from, standard_input
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice
from podium.cli.showing import deliver, onlooker
from podium.client.assembly import WorkflowFile, read_workflow_file
from podium.core.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def run(
    workflow: Annotated[
        str,
        typer.Argument(metavar="WORKFLOW.json", help="The file; - reads it from standard input."),
    ],
    question: Annotated[
        str | None,
        typer.Option(metavar="QUESTION", help="What to answer, if not what the file says."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    pool: options.Pool = None,
    config: options.Config = None,
    max_steps: options.MaxSteps = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    no_store: options.NoStore = False,
) -> None:
    """Carry out a workflow from a file.

    The file is {"question": "…", "steps": [{"worker": "…", "subtask": "…", "access": []}, …]};
    access is "all" or the earlier steps that a step may read, counted from 0.

    Exit codes are those of podium ask.
    """
    file = read_workflow_file(standard_input() if workflow == STANDARD_INPUT else Path(workflow))
    asked = question_from(question or _question_in(file))
    choice = Choice(pool=pool, config=config, exclude=frozenset(exclude or ()), offline=offline)
    caps = Caps(
        usd=budget_usd,
        calls=budget_calls,
        seconds=budget_seconds,
        tokens=budget_tokens,
        allow_unpriced=allow_unpriced,
    )
    with Session(choice, keep=not no_store, quiet=quiet) as session:
        steps = file.workflow(session.settings.pool)
        most = max_steps or session.settings.conductor.max_steps
        if len(steps) > most:
            raise UsageError(
                f"{file.name}: has {len(steps)} steps and at most {most} are allowed; "
                f"shorten it, or raise --max-steps"
            )
        wishes = options.wishes(caps.over(session.settings.budget), None, max_steps, None)
        performed = session.perform(
            lambda podium, watched: podium.run(steps, asked, **watched),
            onlooker(silent=json or quiet),
            wishes,
        )
    raise typer.Exit(deliver(performed, session.resume(performed), json=json, quiet=quiet))


def _question_in(file: WorkflowFile) -> str:
    if file.question is None:
        raise UsageError(f"{file.name}: holds no question; give one with --question")
    return file.question
