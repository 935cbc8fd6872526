"""Processes and checkpoints of a training.

Trainers write the state of the training last; a directory without it is no checkpoint.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium._util.files import NO_SPACE_ERRNOS
from podium.core.errors import ConfigError, StoreError


def process_count() -> int:
    """Return the number of processes of this training."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_index() -> int:
    """Return the index of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def wait_for_everyone() -> None:
    """Wait until every process has come this far."""
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


def is_main_process() -> bool:
    """True if this process logs and writes for all."""
    return process_index() == 0


DIRECTORY: Final = "checkpoints"
"""The directory of checkpoints, below the output."""

STATE_FILE: Final = "trainer_state.json"
"""The file that is written last."""

ANEW: Final = "begin anew in another directory with --output"

_NAME: Final = re.compile(r"checkpoint-(\d+)")
_FULL_IN_WORDS: Final = ("no space left", "disk quota", "inline_container", "iostream error")
"""Messages of a full disk without an error number; the last two are torch's."""
_NO_MEMORY: Final = "out of memory"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    step: int


def last_checkpoint(output: Path) -> Checkpoint | None:
    """Return the checkpoint to resume from, if any."""
    found = [
        Checkpoint(path, int(name[1]))
        for path in (output / DIRECTORY).glob("checkpoint-*")
        if (name := _NAME.fullmatch(path.name)) and _is_whole(path)
    ]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def _is_whole(path: Path) -> bool:
    try:
        json.loads((path / STATE_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return True


@contextmanager
def explain_out_of_space(output: Path, *, fewer: str) -> Iterator[None]:
    """Turn a full disk or GPU into an error that says which checkpoint is left.

    `fewer` names the recipe keys that need less memory when they are lower.
    """
    try:
        yield
    except Exception as error:
        kept = last_checkpoint(output)
        left = f"the checkpoint of step {kept.step} is whole" if kept else "no checkpoint is whole"
        if isinstance(error, RuntimeError) and _NO_MEMORY in str(error):
            raise ConfigError(
                f"the graphics card is full, and {left} ({_first_sentence(error)}); end what else "
                f"computes there, then go on by --resume, or begin anew with less at a time: "
                f"{fewer}"
            ) from error
        if not _is_about_room(error):
            raise
        raise StoreError(
            f"no room in {output}: what was being written is lost, {left}; free some, then go on "
            f"by --resume"
        ) from error


def _first_sentence(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". ")[0]


def _is_about_room(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS:
        return True
    words = str(error).lower()
    return any(sign in words for sign in _FULL_IN_WORDS)
