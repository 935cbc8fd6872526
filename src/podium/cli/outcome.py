"""How things ended: the exit codes, and the complaint that goes with a run."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from podium.cli.output import complain

if TYPE_CHECKING:  # exit codes are needed at every start, and a run is slow to import
    from podium.run import Run


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

    `resume` is the command that goes on with it, where it was stored.
    """
    go_on = f"; go on with: {resume}" if resume else ""
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
            larger = f"{go_on} --budget-…" if resume else ""
            complain(f"there is no answer: {run.error}; raise the cap{larger}")
            return Exit.EXHAUSTED
        case "failed":
            complain(f"there is no answer: {run.error}{go_on}")
            return Exit.FAILED
        case "interrupted" | "running":
            complain(f"interrupted{go_on or '; the run was not stored'}")
            return Exit.INTERRUPTED
