"""`podium run`: carry out a workflow that was written by hand, or by `podium plan --json`."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from podium.cli import options
from podium.cli.options import STANDARD_INPUT, question_from
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice
from podium.cli.showing import deliver, onlooker
from podium.errors import MalformedPlan, UsageError
from podium.plan import read_workflow
from podium.workflow import Workflow

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
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    no_store: options.NoStore = False,
) -> None:
    """Carry out a workflow from a file.

    The file is {"question": "…", "steps": [{"worker": "…", "subtask": "…", "access": []}, …]};
    access is "all" or the earlier steps that a step may read, counted from 0.

    Exit codes are those of podium ask.
    """
    document = _read(workflow)
    asked = question_from(question or _question_in(document, workflow))
    choice = Choice(pool=pool, config=config, exclude=frozenset(exclude or ()), offline=offline)
    caps = Caps(usd=budget_usd, calls=budget_calls, seconds=budget_seconds, tokens=budget_tokens)
    with Session(choice, keep=not no_store) as session:
        steps = _workflow(document, session, workflow)
        wishes = options.wishes(caps.over(session.settings.budget), None, max_steps, None)
        performed = session.perform(
            lambda podium, watched: podium.run(steps, asked, **watched),
            onlooker(silent=json or quiet),
            wishes,
        )
    raise typer.Exit(deliver(performed, session.resume(performed), json=json, quiet=quiet))


def _read(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_text("utf-8")
        document = json_format.loads(text)
    except FileNotFoundError:
        raise UsageError(f"{file}: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: is not JSON: {error}; podium plan --json writes one") from error
    if not isinstance(document, dict):
        raise UsageError(f'{file}: a workflow is an object {{"steps": [...]}}; write one')
    return document


def _question_in(document: dict[str, Any], file: str) -> str:
    question = document.get("question")
    if not isinstance(question, str):
        raise UsageError(f"{file}: holds no question; give one with --question")
    return question


def _workflow(document: dict[str, Any], session: Session, file: str) -> Workflow:
    try:
        return read_workflow(document, session.settings.pool)
    except MalformedPlan as error:
        raise MalformedPlan(f"{file}: {error.where}", error.reason) from error
