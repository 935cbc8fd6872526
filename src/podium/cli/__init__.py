"""The command line: `main`, which turns every error into one line and an exit code.

    0    answered
    1    the run failed, or an internal error
    2    usage or configuration error
    3    budget exhausted before any answer
    130  interrupted
    141  the reader of the output closed it

`app` lists the commands. With `PODIUM_DEBUG=1` an error also prints its traceback.
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
from podium.cli.output import (
    ExitCode,
    OutputLost,
    abandon_output,
    echo_error,
    log_warnings,
    program_name,
)
from podium.core.errors import BudgetExhausted, PlanError, PodiumError, UsageError

__all__ = ["main"]


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
    command = typer.main.get_command(commands)
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
            return f"{error.format_message().rstrip('.')}; see {path} --help"
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
