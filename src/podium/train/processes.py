"""The processes of one training: this one alone, or as many as accelerate has started.

Each knows its number and how many there are from the environment, as torch has it.
"""

from __future__ import annotations

import os


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def index() -> int:
    """Which of them this one is, from 0."""
    return int(os.environ.get("RANK", "0"))


def wait_for_all() -> None:
    """Go on when every process has come this far. Needs accelerate where there are several."""
    if count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


def is_first() -> bool:
    """Whether this is the one that speaks and writes for all."""
    return index() == 0
