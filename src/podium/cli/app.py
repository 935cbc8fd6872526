"""The table of commands, and `main`, which turns every error into one line and an exit code.

    0    answered
    1    the run failed, or an internal error
    2    usage or configuration error
    3    budget exhausted before any answer
    130  interrupted
    141  the reader of the output closed it

With `PODIUM_DEBUG=1` an error also prints its traceback. A command's module is imported when the
command is called, so that `podium --version` and `podium --help` import nothing else of Podium.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated, Any, Final, NamedTuple, TextIO

import typer
from typer.core import TyperGroup

from podium._version import __version__
from podium.cli.output import (
    ExitCode,
    OutputLost,
    abandon_output,
    echo_error,
    log_warnings,
    output_errors,
    program_name,
)
from podium.core.errors import BudgetExhausted, PlanError, PodiumError, UsageError


class Command(NamedTuple):
    """`module:attribute` of a command's typer application, and its help in one line."""

    application: str
    help: str


COMMANDS: Final = {
    "init": Command("podium.cli.init:app", "Find keys and local servers, and write podium.toml."),
    "ask": Command("podium.cli.ask:ask_app", "Answer a question, with the plan drawn as it runs."),
    "plan": Command("podium.cli.ask:plan_app", "Plan a question without running the plan."),
    "run": Command("podium.cli.ask:run_app", "Run a workflow from a file."),
    "chat": Command("podium.cli.ask:chat_app", "Chat with the pool, turn by turn."),
    "serve": Command(
        "podium.cli.serve:app", "Serve the pool as one model over the OpenAI and Anthropic APIs."
    ),
    "mcp": Command("podium.cli.mcp:app", "Offer ask and plan to an MCP client."),
    "runs": Command("podium.cli.runs:app", "List, show, export, diff, grade and resume runs."),
    "keys": Command("podium.cli.keys:app", "Create, list and revoke API keys; show their usage."),
    "audit": Command("podium.cli.audit:app", "List and verify the audit log."),
    "pool": Command("podium.cli.pool:app", "List the workers, and check that each one answers."),
    "models": Command("podium.cli.models:app", "List and download the weights of local models."),
    "doctor": Command(
        "podium.cli.doctor:app", "Show what is configured, what is missing and what it costs."
    ),
    "eval": Command("podium.cli.eval:app", "Evaluate strategies on suites of tasks."),
    "train": Command("podium.cli.train:app", "Train a conductor or its workers from a recipe."),
    "lab": Command("podium_lab.cli:app", "Run experiments: evolved coordinators and tables."),
}


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise lost output as `OutputLost` and Ctrl-C as `typer.Abort`, for which `main` is ready."""
    try:
        with output_errors():
            yield
    except KeyboardInterrupt as interruption:
        raise typer.Abort from interruption


def _reject(ctx: Any, name: str, names: Iterable[str]) -> Any:
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"expected {', '.join(names)}"
    return ctx.fail(f"unknown command {name!r}; {hint}")


class SubcommandGroup(TyperGroup):
    """The commands of one noun. Called without one, it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or _reject(ctx, cmd_name, self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(limit=200))
                    for name in self.list_commands(ctx)
                    if (command := self.get_command(ctx, name)) is not None
                ]
            )


class LazyGroup(TyperGroup):
    """The commands of the table above, each imported when it is called."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the command line; this also prints `--help` and `--version`."""
        with _translated_errors():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _translated_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            _reject(ctx, cmd_name, COMMANDS)
        module, _, attribute = COMMANDS[cmd_name].application.partition(":")
        command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
        command.name = cmd_name
        command.help = command.help or COMMANDS[cmd_name].help
        return _with_plain_help(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


def _with_plain_help(command: Any) -> Any:
    """Turn off rich markup, and help in place of an error, for a command and its subcommands."""
    command.rich_markup_mode = None
    command.no_args_is_help = False
    for inner in getattr(command, "commands", {}).values():
        _with_plain_help(inner)
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"podium {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def podium(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """An open conductor for language models: it plans, delegates, and shows its work."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if not _has_output():
        return ExitCode.USAGE
    # Before numpy is imported: its threads spin while they wait for each other, and on a busy
    # machine a router's decision takes ten times the CPU with two of them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # never fail for a character
    command = typer.main.get_command(app)
    try:
        with log_warnings():
            code = command.main(arguments, prog_name=program_name(), standalone_mode=False)
    except OutputLost as lost:
        abandon_output()
        if lost.reason is None:
            return ExitCode.PIPE_CLOSED
        echo_error(f"cannot write the output: {lost.reason}; write it elsewhere")
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        if os.environ.get("PODIUM_DEBUG"):
            traceback.print_exc()
        echo_error(_message(error))
        return _exit_code(error)
    return code or ExitCode.ANSWERED


def _has_output() -> bool:
    """True if standard output is open. A closed standard error is replaced, so that messages do
    not end up in the next file that is opened."""
    output: TextIO | None = sys.stdout
    errors: TextIO | None = sys.stderr
    if errors is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if output is None:
        echo_error("standard output is closed, so nothing can be written to it; open it")
    return output is not None


def _message(error: Exception) -> str:
    match error:
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else program_name()
            problem = error.format_message().replace("Value error, ", "").rstrip(".")
            return f"{problem}; see {path} --help"
        case typer.Abort():
            return "interrupted"
        case PodiumError():
            return str(error)
        case _:
            return (
                f"internal error: {type(error).__name__}: {error}; run it again with "
                f"PODIUM_DEBUG=1 and report the traceback"
            )


def _exit_code(error: Exception) -> ExitCode:
    match error:
        case typer.TyperException() | UsageError() | PlanError():
            return ExitCode.USAGE
        case BudgetExhausted():
            return ExitCode.EXHAUSTED
        case typer.Abort():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED
