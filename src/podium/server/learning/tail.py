"""Files that others write meanwhile: read within bounds, whole lines only, and on from where one
was.

A cursor says how far a file was read, and what stood just before that place. Where something else
stands there now, the file was written anew, and is read anew.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

MOST_BYTES: Final = 32_000_000
"""The most that is read of a file at once; of a larger one, the end."""

MOST_JSON_BYTES: Final = 8_000_000
WITNESS: Final = 64
"""How many bytes before a place are remembered, to know it by."""

_CURSOR: Final = re.compile(r"([0-9]{1,15})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Tail:
    """What was read. `is_anew` says that it is not a continuation, and `skipped` how many bytes
    before it were not read. `modified` is when the file was last written, None where there is no
    such file."""

    lines: tuple[bytes, ...]
    cursor: str
    is_anew: bool
    skipped: int
    modified: float | None


NO_FILE: Final = Tail((), "", True, 0, None)


def read_lines(path: Path, cursor: str | None = None, *, most: int = MOST_BYTES) -> Tail:
    """The whole lines after the cursor; without one, or where it does not fit any more, all of
    them; but never more than fit into `most` bytes, the last ones. A line that is still being
    written is left for the next time."""
    file = opened(path)
    if file is None:
        return NO_FILE
    with file:
        status = os.fstat(file.fileno())
        place = _place(file, cursor, status.st_size)
        start = place or 0
        if status.st_size - start > most:
            start = _next_line(file, status.st_size - most)
        file.seek(start)
        data = file.read(most)
        end = data.rfind(b"\n") + 1
        after = start + (len(data) if len(data) == most and not end else end)
        return Tail(
            tuple(line for line in data[:end].split(b"\n") if line.strip()),
            _cursor(file, after),
            place is None,
            start - (place or 0),
            status.st_mtime,
        )


def count_lines(path: Path, most: int) -> int:
    """How many whole lines there are in the first `most` bytes."""
    file = opened(path)
    if file is None:
        return 0
    with file:
        return sum(file.read(1_000_000).count(b"\n") for _ in range(0, most, 1_000_000))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none, or none that can be read: whoever
    writes it may not be done."""
    file = opened(path)
    if file is None:
        return {}
    with file:
        data = file.read(MOST_JSON_BYTES + 1)
    try:
        document = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def opened(path: Path) -> BinaryIO | None:
    """The file, open for reading; None where it is not there, may not be read, or is no plain
    file: a link could lead anywhere, and a pipe would be waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def _place(file: BinaryIO, cursor: str | None, size: int) -> int | None:
    """Where the cursor points; None where that is not the place it was."""
    match = _CURSOR.fullmatch(cursor or "")
    if match is None:
        return None
    place = int(match[1])
    return place if place <= size and cursor == _cursor(file, place) else None


def _cursor(file: BinaryIO, place: int) -> str:
    start = max(0, place - WITNESS)
    file.seek(start)
    return f"{place}-{zlib.crc32(file.read(place - start)):08x}"


def _next_line(file: BinaryIO, place: int) -> int:
    file.seek(place)
    file.readline(MOST_BYTES)
    return file.tell()
