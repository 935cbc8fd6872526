"""The commands and where each lives. A command's module is imported when it is called.

So `podium --version` and `podium --help` load nothing of Podium's own but this table.
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
from podium.cli.output import losses_told


class Place(NamedTuple):
    """The module that holds a command as its `app`, and what the command does, in a line."""

    module: str
    help: str


COMMANDS: Final[dict[str, Place]] = {
    "ask": Place("podium.cli.ask", "Answer a question, with the plan drawn as it runs."),
    "plan": Place("podium.cli.plan", "Plan a question and carry nothing out."),
    "run": Place("podium.cli.run", "Carry out a workflow from a file."),
    "chat": Place("podium.cli.chat", "Talk with the pool, turn by turn."),
    "serve": Place(
        "podium.cli.serve", "Serve the pool as one model, to clients of OpenAI and of Anthropic."
    ),
    "mcp": Place("podium.cli.mcp", "Offer ask and plan to an MCP client."),
    "runs": Place("podium.cli.runs", "List, show, export, compare, judge, resume and delete runs."),
    "keys": Place("podium.cli.keys", "Make, list and revoke keys to the server; see their usage."),
    "audit": Place("podium.cli.audit", "List administrative acts, and check their record."),
    "pool": Place("podium.cli.pool", "List the workers, and reach each of them once."),
    "models": Place("podium.cli.models", "List and fetch the weights of local models."),
    "doctor": Place("podium.cli.doctor", "Say what is configured, what is missing, what it costs."),
    "eval": Place("podium.cli.eval", "Measure strategies over suites of tasks."),
    "train": Place("podium.cli.train", "Train a conductor or its workers by a recipe."),
}


@contextmanager
def _interruptions_told() -> Iterator[None]:
    """Turn Ctrl-C into what the border says in a line; typer would only give the exit code."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        raise typer.Abort from interruption


class NounGroup(TyperGroup):
    """The commands of one noun. Called without any, it lists them, as `podium` does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What was written after the noun."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Commands by the table above. Help that nobody can read is lost output as any other."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """The command line, read; `--help` and `--version` are answered meanwhile."""
        with losses_told(), _interruptions_told():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """The command, carried out."""
        with losses_told(), _interruptions_told():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            known = ", ".join(COMMANDS)
            hint = f"perhaps {close[0]!r} was meant" if close else f"there is {known}"
            ctx.fail(f"there is no command {cmd_name!r}; {hint}")
        place = COMMANDS[cmd_name]
        command = typer.main.get_command(importlib.import_module(place.module).app)
        command.name = cmd_name
        command.help = command.help or place.help
        return _like_the_others(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])


def _like_the_others(command: Any) -> Any:
    """The command, whoever wrote it, with plain help and no help where a complaint is due."""
    command.rich_markup_mode = None
    command.no_args_is_help = False
    for inner in getattr(command, "commands", {}).values():
        _like_the_others(inner)
    return command


def _say_version(wanted: bool) -> None:
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
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say which this is."),
    ] = False,
) -> None:
    """An open conductor for language models: it plans, delegates, and shows its work."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
