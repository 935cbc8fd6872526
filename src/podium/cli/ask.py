"""`podium ask`, `plan`, `run` and `chat`: the commands that take a question."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from podium.cli import options
from podium.cli.options import (
    STANDARD_INPUT,
    BudgetOptions,
    Omit,
    PlanningOptions,
    PoolOptions,
    open_stdin,
    read_question,
    with_option_groups,
)
from podium.cli.output import (
    echo,
    echo_error,
    echo_json,
    format_usage,
    format_usd,
    plan_lines,
    pluralize,
    step_lines,
)
from podium.cli.session import Session, answer_once
from podium.client.assembly import WorkflowFile, read_workflow_file
from podium.client.documents import plan_document
from podium.client.run_options import RunOptions
from podium.core.errors import PodiumError, UsageError
from podium.core.request import Message, assistant, user
from podium.core.run import Round, Run, total_cost, total_usage

with suppress(ImportError):  # not on every platform
    import readline  # noqa: F401 - gives `input` line editing and a history

ask_app = typer.Typer(rich_markup_mode=None, add_completion=False)
plan_app = typer.Typer(rich_markup_mode=None, add_completion=False)
run_app = typer.Typer(rich_markup_mode=None, add_completion=False)
chat_app = typer.Typer(rich_markup_mode=None, add_completion=False)

PROMPT: Final = "you> "
CHAT_COMMANDS: Final = "/plan shows the last plan, /cost the cost so far, /quit ends the chat"


@ask_app.command()
@with_option_groups
def ask(
    question: options.Question,
    pool: PoolOptions,
    planning: PlanningOptions,
    budget: BudgetOptions,
    json: options.Json = False,
    quiet: options.Quiet = False,
    no_store: options.NoStore = False,
) -> None:
    """Answer a question, with the plan drawn as it runs.

    The plan, its steps as they end, and the answer go to standard output; errors and warnings go
    to standard error.

    Exit codes: 0 answered (perhaps in part, with a warning), 1 the run failed, 2 usage or
    configuration error, 3 budget exhausted before any answer, 130 interrupted.
    """
    text = read_question(question)
    code = answer_once(
        lambda session, run_options: session.podium.ask(text, **run_options),
        pool,
        planning,
        budget,
        json=json,
        quiet=quiet,
        no_store=no_store,
    )
    raise typer.Exit(code)


@plan_app.command()
@with_option_groups
def plan(
    question: options.Question,
    pool: PoolOptions,
    planning: Annotated[PlanningOptions, Omit(("rounds",))],
    budget: BudgetOptions,
    json: options.Json = False,
) -> None:
    """Plan a question without running the plan.

    The output of --json can be saved, edited by hand, and run with podium run.
    """
    text = read_question(question)
    with Session(pool, planning, budget, store_runs=False) as session:
        first = session.wait_for(session.podium.plan(text, **session.options))
    for warning in first.warnings:
        echo_error(warning)
    if json:
        echo_json(plan_document(text, first))
    else:
        _print_plan(first)


def _print_plan(planned: Round) -> None:
    assert planned.workflow is not None, "the first round always has a workflow"
    echo(f"{pluralize(len(planned.workflow), 'step')}, {planned.workflow.shape}")
    for line in step_lines(planned):
        echo(line)
    calls = planned.planning_attempts
    if calls:
        used = f"{format_usage(total_usage(iter(calls)))}, {format_usd(total_cost(iter(calls)))}"
        echo(f"planned in {pluralize(len(calls), 'call')}, {used}")


@run_app.command()
@with_option_groups
def run(
    workflow: Annotated[
        str,
        typer.Argument(metavar="WORKFLOW.json", help="The file; - reads it from standard input."),
    ],
    pool: options.WithoutConductor,
    budget: BudgetOptions,
    question: Annotated[
        str | None,
        typer.Option(metavar="QUESTION", help="The question, instead of the one in the file."),
    ] = None,
    max_steps: options.MaxSteps = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    no_store: options.NoStore = False,
) -> None:
    """Run a workflow from a file.

    The file is {"question": "…", "steps": [{"worker": "…", "subtask": "…", "access": []}, …]};
    access is "all" or the earlier steps that a step may read, counted from 0.

    Exit codes are those of podium ask.
    """
    file = read_workflow_file(open_stdin() if workflow == STANDARD_INPUT else Path(workflow))
    text = read_question(question or _question_in(file))

    def execute(session: Session, run_options: RunOptions) -> Awaitable[Run]:
        steps = file.workflow(session.settings.pool)
        limit = max_steps or session.settings.conductor.max_steps
        if len(steps) > limit:
            raise UsageError(
                f"{file.name}: has {len(steps)} steps, but at most {limit} are allowed; "
                f"shorten it, or raise --max-steps"
            )
        return session.podium.run(steps, text, **run_options)

    planning = PlanningOptions(max_steps=max_steps)
    given = {"json": json, "quiet": quiet, "no_store": no_store}
    raise typer.Exit(answer_once(execute, pool, planning, budget, **given))


def _question_in(file: WorkflowFile) -> str:
    if file.question is None:
        raise UsageError(f"{file.name}: has no question; give one with --question")
    return file.question


@chat_app.command()
@with_option_groups
def chat(
    pool: PoolOptions,
    planning: PlanningOptions,
    budget: BudgetOptions,
    no_store: options.NoStore = False,
) -> None:
    """Chat with the pool, turn by turn.

    Budgets apply to each question. /plan shows the last plan, /cost the cost so far; /quit or the
    end of input ends the chat. Ctrl-C stops an answer; at the prompt it ends the chat.
    """
    open_stdin()  # without input, nothing needs to be fetched or opened
    with Session(pool, planning, budget, store_runs=not no_store) as session:
        _Conversation(session).loop()


@dataclass(slots=True)
class _Conversation:
    session: Session
    history: tuple[Message, ...] = ()
    runs: list[Run] = field(default_factory=list)

    def loop(self) -> None:
        if sys.stdin.isatty():
            echo(CHAT_COMMANDS)
        while (line := _read_line()) is not None:
            match line.strip():
                case "":
                    continue
                case "/quit":
                    return
                case "/plan":
                    self._print_plan()
                case "/cost":
                    self._print_cost()
                case other if other.startswith("/"):
                    echo_error(f"unknown command {other}: {CHAT_COMMANDS}")
                case question:
                    self._answer(question)

    def _answer(self, question: str) -> None:
        try:
            run, _ = self.session.answer(
                lambda podium, run_options: podium.ask(question, **run_options), self.history
            )
        except KeyboardInterrupt:
            echo_error("interrupted")
            return
        except PodiumError as error:
            echo_error(str(error))
            return
        self.runs.append(run)
        if run.answer is not None and run.status != "interrupted":
            self.history += (user(question), assistant(run.answer))

    def _print_plan(self) -> None:
        if not self.runs:
            echo_error("there is no plan yet; ask something first")
            return
        run = self.runs[-1]
        for round_ in run.rounds:
            for line in plan_lines(run, round_):
                echo(line)

    def _print_cost(self) -> None:
        calls = [call for run in self.runs for call in run.calls]
        used = f"{format_usage(total_usage(iter(calls)))}, {format_usd(total_cost(iter(calls)))}"
        echo(f"{pluralize(len(self.runs), 'question')}, {pluralize(len(calls), 'call')}, {used}")


def _read_line() -> str | None:
    """Read the next line; None at the end of the chat."""
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            echo()
        return None
    except UnicodeDecodeError:
        echo_error("that line is not UTF-8 text and was ignored")
        return ""
