"""Where words go: answers to standard output, complaints to standard error.

The one place of the command line that writes plain text. Drawing on a terminal is `drawing`.
"""

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
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TextIO

from podium.cli.formatting import clean, one_line

if TYPE_CHECKING:
    from podium.core.run import Run

CALLED_AS: Final = "PODIUM_CALLED_AS"
"""The variable in which a clone's own `./podium` says how it was called."""

USUAL: Final = "podium"


def program() -> str:
    """What a person writes to call Podium again: `podium`, or `./podium` in a clone."""
    return shlex.quote(os.environ.get(CALLED_AS) or USUAL)


def as_called(text: str) -> str:
    """The text with its commands as a person has to write them here."""
    return _command().sub(lambda _: program(), text) if USUAL in text else text


@cache
def _command() -> re.Pattern[str]:
    """The program's name where one of its commands follows."""
    from podium.cli.app import COMMANDS  # which needs this module's users itself

    return re.compile(rf"(?<![\w./-]){USUAL}(?= (?:{'|'.join(COMMANDS)})\b)")


_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON allows as it is and a terminal or an encoder does not."""


_LOSSES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What the system says when a file takes no more."""


class OutputLost(Exception):
    """Standard output takes no more. `reason` is None where its reader has simply left."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


def say(text: str = "") -> None:
    """A line, or several, for whoever asked."""
    _write(f"{clean(text)}\n")


def say_json(document: Any) -> None:
    """One JSON value; the text in it is whole, and yet cannot command a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    safe = _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _write(f"{safe}\n")


def complain(message: str) -> None:
    """One line that a person can act on."""
    with suppress(BrokenPipeError):  # whoever should act on it has left
        sys.stderr.write(f"podium: {one_line(as_called(message))}\n")
        sys.stderr.flush()


@contextmanager
def losses_told() -> Iterator[None]:
    """Turn what a full disk or a closed pipe does to standard output into `OutputLost`."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputLost(None) from error
    except OSError as error:
        if error.errno not in _LOSSES or error.filename is not None:
            raise
        raise OutputLost(error.strerror) from error


def is_drawable(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which a picture can be drawn and redrawn."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


@contextmanager
def warnings_heard() -> Iterator[None]:
    """Have what Podium logs as a warning said as a complaint meanwhile."""
    log, complaints = logging.getLogger("podium"), _Complaints(logging.WARNING)
    log.addHandler(complaints)
    try:
        yield
    finally:
        log.removeHandler(complaints)


def abandon_output() -> None:
    """Give standard output up: what is still in its buffer must not fail once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Complaints(logging.Handler):
    """Standard error as it is at the time, which a drawing may have taken over."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _write(text: str) -> None:
    with losses_told():
        sys.stdout.write(text)
        sys.stdout.flush()


CAP_OPTIONS: Final = {
    "calls": "--budget-calls N",
    "tokens": "--budget-tokens N",
    "usd": "--budget-usd USD",
    "seconds": "--budget-seconds S",
}


class Exit(IntEnum):
    """What the shell gets to know."""

    ANSWERED = 0
    FAILED = 1
    USAGE = 2
    EXHAUSTED = 3
    INTERRUPTED = 130
    PIPE_CLOSED = 141


def conclude(run: Run, resume: str | None) -> Exit:
    """Complain where the run did not end as planned, and give its exit code.

    `resume` is the command that goes on with it, where it was stored; one that a guardrail blocked
    cannot go on.
    """
    go_on = _resume_hint(run, resume) if resume and not run.blocked_by else ""
    match run.status:
        case "answered" if run.error is None:
            return Exit.ANSWERED
        case "answered":
            complain(f"answered, but not all went as planned: {run.error}")
            return Exit.ANSWERED
        case "partial":
            complain(f"this is the best answer so far, not the planned one: {run.error}{go_on}")
            return Exit.ANSWERED
        case "exhausted":
            complain(f"there is no answer: {run.error}{go_on or '; raise that cap'}")
            return Exit.EXHAUSTED
        case "failed":
            complain(f"there is no answer: {run.error}{go_on}")
            return Exit.FAILED
        case "waiting":
            names = ", ".join(sorted({call.name for call in run.waiting_for}))
            complain(
                f"there is no answer yet: the run waits for what its client's tools say: {names}"
            )
            return Exit.FAILED
        case "interrupted" | "running":
            complain(f"interrupted{go_on or '; the run was not stored'}")
            return Exit.INTERRUPTED


def _resume_hint(run: Run, resume: str) -> str:
    """The command that resumes the run; empty where it would only end the same way."""
    if run.spent_cap:
        cap = CAP_OPTIONS.get(run.spent_cap)  # no option raises the depth of a run that has begun
        return f"; raise that cap to go on: {resume} {cap}" if cap else ""
    return "" if run.refused else f"; go on with: {resume}"
