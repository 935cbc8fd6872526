"""Which process performs a run, so that no other one performs it too."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """This machine and process, as kept on a run."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether that process is known to have ended. Of one on another machine that cannot be seen
    from here: it is gone when it no longer says that it is at work."""
    machine = process.rpartition(":")[0]
    return machine in ("", socket.gethostname()) and not is_alive(process)


def is_alive(process: str) -> bool:
    """Whether that process still runs. One of another machine cannot be seen from here, and
    counts as gone."""
    machine, _, number = process.rpartition(":")
    if machine != socket.gethostname() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
