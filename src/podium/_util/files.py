"""Files: where they live, atomic writes, locks, JSON, and errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import platformdirs

from podium.core.errors import ConfigError, StoreError


def data_dir() -> Path:
    """Return the directory of runs and local models."""
    return _home() or platformdirs.user_data_path("podium", appauthor=False)


def cache_dir() -> Path:
    """Return the directory of what can be made again."""
    home = _home()
    return home / "cache" if home else platformdirs.user_cache_path("podium", appauthor=False)


def config_file() -> Path:
    """Return the user's configuration file, for when the working directory has none."""
    home = _home()
    directory = home or platformdirs.user_config_path("podium", appauthor=False)
    return directory / "podium.toml"


def is_below_home(path: Path) -> bool:
    """True if `PODIUM_HOME` moves that path."""
    return any(path.absolute().is_relative_to(root) for root in (data_dir(), cache_dir()))


def _home() -> Path | None:
    home = os.environ.get("PODIUM_HOME", "").strip()
    return Path(home).expanduser().absolute() if home else None


Progress = Callable[[int, int | None], None]
"""Called with the bytes done and the total, None while unknown."""

LOCK_POLL_SECONDS: Final = 0.2

NO_SPACE_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk or quota."""


def no_progress(done: int, total: int | None) -> None:
    """Report no progress."""


@asynccontextmanager
async def lock_file(path: Path, poll_seconds: float = LOCK_POLL_SECONDS) -> AsyncIterator[None]:
    """Hold the lock file at `path`; wait while another task or process holds it.

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


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(text, "utf-8")
    move_into_place(draft, path)


def move_into_place(finished: Path, target: Path) -> None:
    """Move a complete file to its target, atomically."""
    with finished.open("rb") as file:
        os.fsync(file.fileno())
    finished.replace(target)


@contextmanager
def replace_directory(target: Path) -> Iterator[Path]:
    """Yield a directory to fill, which replaces `target` at the end."""
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
def explain_write_errors(directory: Path, needed: int, *, option: str = "") -> Iterator[None]:
    """Turn write errors under `directory` into a `StoreError` that says what to do.

    `needed` bytes must be free. `option` is the command-line option that names the directory.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(directory).free < needed:
            raise no_space_error(directory, needed, option=option)
        yield
    except OSError as error:
        if error.errno in NO_SPACE_ERRNOS:
            raise no_space_error(directory, needed, option=option) from error
        raise StoreError(
            f"cannot write to {directory}: {error.strerror or error}; make it writable, or "
            f"{_naming(directory, option)} a directory that is"
        ) from error


def no_space_error(directory: Path, needed: int, *, option: str = "") -> StoreError:
    """Return the error for a full disk."""
    how_much = f": {needed:,} bytes are needed there" if needed > 0 else ""
    return StoreError(
        f"no room in {directory}{how_much}; free some, or {_naming(directory, option)} a directory "
        f"on a larger disk"
    )


def _naming(directory: Path, option: str) -> str:
    if option:
        return f"set {option} to"
    return "set PODIUM_HOME to" if is_below_home(directory) else "name"


def read_json(path: Path, advice: str) -> Any:
    """Read JSON; `ConfigError` says what is wrong, and gives the advice."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}; {advice}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested deeper than can be read; {advice}") from error


def read_toml(path: Path, kind: str = "file") -> dict[str, Any]:
    """Read a TOML file; `kind` is what messages call it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such {kind}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
