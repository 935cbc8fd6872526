"""The command line: `main`, and the border at which every error becomes one line.

    0    answered
    1    the run failed, or something broke
    2    usage or configuration
    3    the budget was spent before there was an answer
    130  interrupted
    141  whoever read the output went away

The commands are in the modules beside this one, one noun each; `app` says which is where. With
`PODIUM_DEBUG=1` an error also shows where it came from.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

import typer

from podium.cli.app import app as commands
from podium.cli.output import Exit, OutputLost, abandon_output, complain, program, warnings_heard
from podium.core.errors import BudgetExhausted, PlanError, PodiumError, UsageError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    if not _has_output():
        return Exit.USAGE
    # Before numpy is loaded: its threads spin while they wait for each other, and on a machine that
    # is busy a router's decision takes ten times the CPU with two of them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is worth a failure
    command = typer.main.get_command(commands)
    try:
        with warnings_heard():
            code = command.main(arguments, prog_name=program(), standalone_mode=False)
    except OutputLost as lost:
        abandon_output()
        if lost.reason is None:
            return Exit.PIPE_CLOSED
        complain(f"cannot write the output: {lost.reason}; write it elsewhere")
        return Exit.FAILED
    except Exception as error:  # noqa: BLE001 - the border: nothing passes but one line
        if os.environ.get("PODIUM_DEBUG"):
            traceback.print_exc()
        complain(_said(error))
        return _exit_code(error)
    return code or Exit.ANSWERED


def _has_output() -> bool:
    """Whether there is a standard output to answer on. Without a standard error, complaints go
    nowhere, and not into the next file that happens to be opened."""
    output: TextIO | None = sys.stdout
    complaints: TextIO | None = sys.stderr
    if complaints is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if output is None:
        complain("standard output is closed, so nothing can be answered on it; open it")
    return output is not None


def _said(error: Exception) -> str:
    match error:
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else program()
            name = context.info_name if context is not None else ""
            message = error.format_message().rstrip(".")
            if "unexpected extra argument" in message and name in ("ask", "plan"):
                message += "; put the question in quotes"
            return f"{message}; see {path} --help"
        case typer.Abort():
            return "interrupted"
        case PodiumError():
            return str(error)
        case _:
            return (
                f"this should not have happened: {type(error).__name__}: {error}; run it again "
                f"with PODIUM_DEBUG=1 and report what that shows"
            )


def _exit_code(error: Exception) -> Exit:
    match error:
        case typer.TyperException() | UsageError() | PlanError():
            return Exit.USAGE
        case BudgetExhausted():
            return Exit.EXHAUSTED
        case typer.Abort():
            return Exit.INTERRUPTED
        case _:
            return Exit.FAILED
