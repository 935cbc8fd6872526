"""The table of commands. A command's module is imported when the command is called.

So `podium --version` and `podium --help` import nothing of Podium but this table.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from podium._version import __version__
from podium.cli.output import output_errors


class Command(NamedTuple):
    """`module:attribute` of a command's typer application, and its help in one line."""

    application: str
    help: str


COMMANDS: Final = {
    "ask": Command("podium.cli.ask:ask_app", "Answer a question, with the plan drawn as it runs."),
    "plan": Command("podium.cli.ask:plan_app", "Plan a question without running the plan."),
    "run": Command("podium.cli.ask:run_app", "Run a workflow from a file."),
    "chat": Command("podium.cli.ask:chat_app", "Chat with the pool, turn by turn."),
    "serve": Command(
        "podium.cli.serve:app", "Serve the pool as one model over the OpenAI and Anthropic APIs."
    ),
    "mcp": Command("podium.cli.mcp:app", "Offer ask and plan to an MCP client."),
    "runs": Command("podium.cli.runs:app", "List, show, export, compare, grade and resume runs."),
    "keys": Command("podium.cli.keys:app", "Create, list and revoke API keys; show their usage."),
    "audit": Command("podium.cli.audit:app", "List and verify the audit log."),
    "pool": Command("podium.cli.pool:app", "List the workers, and check that each one answers."),
    "models": Command("podium.cli.models:app", "List and download the weights of local models."),
    "doctor": Command(
        "podium.cli.doctor:app", "Show what is configured, what is missing and what it costs."
    ),
    "eval": Command("podium.cli.eval:app", "Evaluate strategies on suites of tasks."),
    "train": Command("podium.cli.train:app", "Train a conductor or its workers from a recipe."),
}


@contextmanager
def _interruptions() -> Iterator[None]:
    """Raise Ctrl-C as `typer.Abort`, for which `main` prints a line."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        raise typer.Abort from interruption


class NounGroup(TyperGroup):
    """The commands of one noun. Called without one, it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after the noun."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """The commands of the table above, each imported when it is called."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the command line; this also prints `--help` and `--version`."""
        with output_errors(), _interruptions():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with output_errors(), _interruptions():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command."""
        if cmd_name not in COMMANDS:
            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"expected {', '.join(COMMANDS)}"
            ctx.fail(f"unknown command {cmd_name!r}; {hint}")
        module, _, attribute = COMMANDS[cmd_name].application.partition(":")
        command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
        command.name = cmd_name
        command.help = command.help or COMMANDS[cmd_name].help
        return _with_plain_help(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands from the table alone."""
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
