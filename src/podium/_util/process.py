"""Which process performs a run, so that no other one performs it too.

A process is named by its machine and its number. Where several machines have one name, as
containers in the network of their host do, `PODIUM_REPLICA` names each.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from typing import Final


def shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Each one's part of the whole, the largest first; who has none is left out."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return {name: count / total for name, count in ordered if count}


def entropy_bits(counts: Mapping[str, float]) -> float:
    """How evenly the counts are spread: 0 for one alone, the logarithm of n for n alike."""
    return sum(-part * math.log2(part) for part in shares(counts).values()) + 0.0


NAMED_BY: Final = "PODIUM_REPLICA"
"""The variable that has the name of this machine, where its own is not enough."""


def this_process() -> str:
    """This machine and process, as kept on a run."""
    return f"{_machine()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether that process is known to have ended. Of one on another machine that cannot be seen
    from here: it is gone when it no longer says that it is at work."""
    machine = process.rpartition(":")[0]
    return machine in ("", _machine()) and not is_alive(process)


def is_alive(process: str) -> bool:
    """Whether that process still runs. One of another machine cannot be seen from here, and
    counts as gone."""
    machine, _, number = process.rpartition(":")
    if machine != _machine() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _machine() -> str:
    return os.environ.get(NAMED_BY) or socket.gethostname()
