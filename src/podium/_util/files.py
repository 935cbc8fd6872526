"""Putting a file in its place: one writer at a time, and all of the file or none of it;
and JSON read, with an error that says what is wrong with the file."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import platformdirs

from podium.core.errors import ConfigError, StoreError


def data_dir() -> Path:
    """What must not be lost: runs and local models."""
    return _home() or platformdirs.user_data_path("podium", appauthor=False)


def cache_dir() -> Path:
    """What can be made again."""
    home = _home()
    return home / "cache" if home else platformdirs.user_cache_path("podium", appauthor=False)


def config_file() -> Path:
    """The user's own configuration, for when the working directory has none."""
    home = _home()
    directory = home or platformdirs.user_config_path("podium", appauthor=False)
    return directory / "podium.toml"


def is_below_home(path: Path) -> bool:
    """Whether Podium chose where that lies, so that `PODIUM_HOME` moves it."""
    return any(path.absolute().is_relative_to(place) for place in (data_dir(), cache_dir()))


def _home() -> Path | None:
    """The directory that `PODIUM_HOME` names, if it names one."""
    home = os.environ.get("PODIUM_HOME", "").strip()
    return Path(home).expanduser().absolute() if home else None


Progress = Callable[[int, int | None], None]
"""Told how many bytes have come and how many there will be, None while that is not known."""

LOCK_POLL_SECONDS: Final = 0.2

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What the system calls it when a disk, or one's share of it, is full."""


def silent(done: int, total: int | None) -> None:
    """Nobody is watching."""


@asynccontextmanager
async def exclusive(path: Path, poll_seconds: float = LOCK_POLL_SECONDS) -> AsyncIterator[None]:
    """Hold the lock file at `path`, waiting for whoever has it, in this process or another.

    The system releases it when its holder dies, so there are no stale locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _try_lock(descriptor):  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(poll_seconds)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that a crash leaves the old one or the new one."""
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(text, "utf-8")
    place(draft, path)


def place(finished: Path, target: Path) -> None:
    """Move a complete file to where it is looked for, in one step that a crash cannot halve."""
    with finished.open("rb") as file:
        os.fsync(file.fileno())
    finished.replace(target)


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which takes the place of `target` once everything is in it."""
    draft, old = (target.with_name(f".{target.name}.{end}") for end in ("part", "old"))
    for leftover in (draft, old):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if target.exists():
        target.rename(old)
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def writing(directory: Path, needed: int, *, option: str = "") -> Iterator[None]:
    """Say what to do when `needed` bytes cannot be written under `directory`, which that option of
    the command line names, if any does."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(directory).free < needed:
            raise full(directory, needed, option=option)
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise full(directory, needed, option=option) from error
        raise StoreError(
            f"cannot write to {directory}: {error.strerror or error}; make it writable, or "
            f"{_naming(directory, option)} a directory that is"
        ) from error


def full(directory: Path, needed: int, *, option: str = "") -> StoreError:
    """The error for a disk with too little room."""
    how_much = f": {needed:,} bytes are needed there" if needed > 0 else ""
    return StoreError(
        f"no room in {directory}{how_much}; free some, or {_naming(directory, option)} a directory "
        f"on a larger disk"
    )


def _naming(directory: Path, option: str) -> str:
    """How a person has files written elsewhere than there."""
    if option:
        return f"set {option} to"
    return "set PODIUM_HOME to" if is_below_home(directory) else "name"


def read_json(path: Path, advice: str) -> Any:
    """What that file says; an error says what is wrong with it, and how to come by one."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}; {advice}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested deeper than can be read; {advice}") from error
