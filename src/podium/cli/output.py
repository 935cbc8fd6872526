"""Text for people: format it, and write answers to standard output, messages to standard error."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:  # `podium --version` must not import them
    from podium.core.request import Price, Usage
    from podium.core.run import GuardrailCheck, Round, Run, StepRecord
    from podium.core.workflow import Access, Step
    from podium.store import Feedback

CALLED_AS: Final = "PODIUM_CALLED_AS"
"""The variable in which `./podium` of a clone passes on how it was called."""

DEFAULT_PROGRAM: Final = "podium"

_ESCAPES: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                  # colours, cursor movements
    | \x1b\] [^\x07\x1b\x9c]* (?:\x07|\x1b\\|\x9c)  # titles, links, the clipboard
    | \x1b[PX^_] [^\x1b\x9c]* (?:\x1b\\|\x9c)     # strings for the terminal itself
    | \x1b [ -/]* [0-~]                           # resets, character sets
    """,
    re.VERBOSE,
)
"""Whole escape sequences. Each alternative stops at the next escape, so matching takes linear
time."""

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that reverse the writing direction."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON allows unescaped and a terminal or an encoder does not."""

_WRITE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class ExitCode(IntEnum):
    """The exit codes of every command."""

    ANSWERED = 0
    FAILED = 1
    USAGE = 2
    EXHAUSTED = 3
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class OutputLost(Exception):
    """Standard output cannot be written. `reason` is None if its reader closed the pipe."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


def echo(text: str = "") -> None:
    _write(f"{clean_text(text)}\n")


def echo_json(document: Any) -> None:
    """Write one JSON value; its text is complete, but cannot control a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    safe = _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _write(f"{safe}\n")


def echo_error(message: str) -> None:
    with suppress(BrokenPipeError):
        sys.stderr.write(f"podium: {to_one_line(with_program_name(message))}\n")
        sys.stderr.flush()


def _write(text: str) -> None:
    with output_errors():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def output_errors() -> Iterator[None]:
    """Raise `OutputLost` for a full disk or a closed pipe behind standard output."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputLost(None) from error
    except OSError as error:
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            raise
        raise OutputLost(error.strerror) from error


def abandon_output() -> None:
    """Redirect standard output to nowhere, so that flushing its buffer cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def log_warnings() -> Iterator[None]:
    """Write what Podium logs as a warning to standard error meanwhile."""
    logger, handler = logging.getLogger("podium"), _EchoHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo_error(record.getMessage())


def is_terminal(stream: TextIO) -> bool:
    """True if the stream is a terminal that can be redrawn."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def program_name() -> str:
    """The command that calls Podium here: `podium`, or `./podium` in a clone."""
    return shlex.quote(os.environ.get(CALLED_AS) or DEFAULT_PROGRAM)


def with_program_name(text: str) -> str:
    """Write the commands in a text as they have to be typed here."""
    return _command().sub(lambda _: program_name(), text) if DEFAULT_PROGRAM in text else text


@cache
def _command() -> re.Pattern[str]:
    from podium.cli.app import COMMANDS  # it imports this module

    return re.compile(rf"(?<![\w./-]){DEFAULT_PROGRAM}(?= (?:{'|'.join(COMMANDS)})\b)")


def clean_text(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text)))


def to_one_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def shorten(text: str, width: int) -> str:
    line = to_one_line(text)
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def format_usd(usd: float | None) -> str:
    if usd is None:
        return "cost unknown"
    if usd == 0:
        return "$0"
    if usd >= 0.1:
        return f"${usd:,.2f}"
    if usd >= 0.01:
        return f"${usd:.3f}".removesuffix("0")
    return f"${usd:.6f}".rstrip("0").rstrip(".") if usd >= 0.000001 else "under $0.000001"


def format_tokens(count: int | None) -> str:
    if count is None:
        return "tokens unknown"
    return f"{count:,} token{'' if count == 1 else 's'}"


def format_usage(usage: Usage) -> str:
    return format_tokens(usage.total_tokens)


def format_seconds(duration: float) -> str:
    if duration < 60:
        return f"{duration:.1f} s"
    return f"{int(duration) // 60} min {int(duration) % 60} s"


def format_local_time(stamp: str) -> str:
    return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M}"


def format_megabytes(count: int | None) -> str:
    return "size unknown" if count is None else f"{count / 1_000_000:,.0f} MB"


def pluralize(count: int, noun: str) -> str:
    """Format `1 step`, `2 steps`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def describe_access(access: Access) -> str:
    if access == "all":
        return "reads all steps before it"
    return f"reads {', '.join(map(str, access))}" if access else "reads nothing"


def describe_price(prices: Price | None) -> str:
    if prices is None:
        return "price unknown"
    if prices.input == 0 and prices.output == 0:
        return "free"
    return f"${prices.input:g} in, ${prices.output:g} out per million tokens"


def describe_plan(run: Run, round_: Round) -> str:
    from podium.conductors.builtin import configured_conductor_name, planning_worker_name

    which = f"round {round_.index + 1}" if run.max_rounds > 1 or round_.index else "plan"
    conductor = configured_conductor_name(run.conductor)
    unasked = planning_worker_name(conductor) is not None and not round_.planning_attempts
    planned = which if unasked else f"{which} by {conductor}"
    if round_.accepts_answer:
        return f"{planned}: answer accepted"
    if round_.workflow is None:
        return f"{planned}: no plan was made"
    if round_.role is not None:
        return f"{planned}: a turn as {round_.role}"
    if unasked:
        only = ", the only model of the pool" if run.pool.sole_model else ""
        return f"{planned}: {round_.workflow.steps[0].worker} answers directly{only}"
    return f"{planned}: {pluralize(len(round_.workflow), 'step')}, {round_.workflow.shape}"


def describe_step(index: int, step: Step) -> str:
    when = "" if step.condition is None else f", if {step.condition}"
    return f"{index} {step.worker}: {step.subtask} ({describe_access(step.access)}{when})"


def plan_lines(run: Run, round_: Round) -> Iterator[str]:
    """Yield the lines of a round's plan, with the router's decision and notes."""
    yield to_one_line(describe_plan(run, round_))
    yield from step_lines(round_)
    for warning in round_.warnings:
        yield f"  note: {to_one_line(warning)}"


def step_lines(round_: Round) -> Iterator[str]:
    """Yield a line for each planned step, and the router's decision."""
    for index, step in enumerate(round_.workflow.steps if round_.workflow else ()):
        yield f"  {to_one_line(describe_step(index, step))}"
    if round_.routing is not None:
        yield f"  {to_one_line(round_.routing.explanation)}"


def describe_step_usage(record: StepRecord) -> str:
    parts = [format_usage(record.usage), format_usd(record.cost_usd)]
    parts.append(format_seconds((record.finished_ms - record.started_ms) / 1000))
    if record.answered_by not in ("", record.worker):
        parts.append(f"by its fallback {record.answered_by}")
    return ", ".join(parts)


def describe_step_end(record: StepRecord) -> str:
    if record.status == "done":
        return f"done, {describe_step_usage(record)}"
    return "not needed" if record.is_unneeded else f"{record.status}: {record.error}"


def describe_check(check: GuardrailCheck) -> str:
    reason = f": {check.reason}" if check.reason else ""
    verifier = ""
    if check.attempts:
        from podium.core.run import total_usage

        used = format_usage(total_usage(iter(check.attempts)))
        verifier = f" (verifier {check.attempts[-1].worker}: {used})"
    return f"guardrail {check.guardrail} {check.action} the {check.stage}{reason}{verifier}"


CUT_OFF: Final = "cut off"
"""The status shown for a running run whose process is gone."""


def describe_run_end(run: Run, *, cut_off: bool = False) -> str:
    planning = run.orchestration.total_tokens
    used = format_usage(run.usage)
    if planning and run.usage.total_tokens:
        used += f" ({planning:,} of them for planning)"
    parts = (pluralize(len([*run.calls]), "call"), used, format_usd(run.cost_usd))
    status = CUT_OFF if cut_off else run.status
    return f"{status}: {', '.join(parts)}, {format_seconds(run.spent.seconds)}, {run.id}"


def describe_feedback(feedback: Feedback) -> str:
    grader = f" by {feedback.grader}" if feedback.grader else ""
    comment = f": {feedback.comment}" if feedback.comment else ""
    correct = f"; correct answer: {feedback.answer}" if feedback.answer else ""
    return f"{feedback.score:g}{grader}{comment}{correct}"
