"""Where words go: answers to standard output, complaints to standard error.

The one place of the command line that writes plain text. Drawing on a terminal is `drawing`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from podium.cli.program import as_called
from podium.cli.text import clean, one_line

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
