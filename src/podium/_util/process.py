"""The identity of a process, so that only one performs a run.

A process is named by its machine and its number. Where several machines share a name, as containers
on their host's network do, `PODIUM_REPLICA` names each.
"""

from __future__ import annotations

import os
import socket
from typing import Final

REPLICA_VARIABLE: Final = "PODIUM_REPLICA"


def this_process() -> str:
    """Return this machine and process, as kept on a run."""
    return f"{_machine()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """True if that process is known to have ended.

    Of another machine's processes that is unknown here: they lose a run by missed heartbeats.
    """
    machine = process.rpartition(":")[0]
    return machine in ("", _machine()) and not is_alive(process)


def is_alive(process: str) -> bool:
    """True if that process runs on this machine."""
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
    return os.environ.get(REPLICA_VARIABLE) or socket.gethostname()
