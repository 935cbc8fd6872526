"""How things ended: the exit codes, and the complaint that goes with a run."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from podium.cli.output import complain

if TYPE_CHECKING:  # exit codes are needed at every start, and a run is slow to import
    from podium.run import Run


CAP_OPTIONS: Final = {
    "calls": "--budget-calls N",
    "tokens": "--budget-tokens N",
    "usd": "--budget-usd USD",
    "seconds": "--budget-seconds S",
}

_SPENT: Final = re.compile(r"budget is spent: (\w+) is capped at")

_REFUSED: Final = re.compile(
    r"so check its key|answered HTTP (?:3\d\d|4(?!08|09|25|29)\d\d)|is excluded from this run"
)
"""How errors read of which the same request can only make another."""


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

    `resume` is the command that goes on with it, where it was stored; one that a guardrail blocked
    cannot go on.
    """
    go_on = _way_on(run.error or "", resume) if resume and not run.blocked_by else ""
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
            complain(f"there is no answer: {run.error}{go_on or '; raise that cap'}")
            return Exit.EXHAUSTED
        case "failed":
            complain(f"there is no answer: {run.error}{go_on}")
            return Exit.FAILED
        case "waiting":
            names = ", ".join(sorted({call.name for call in run.waiting_for}))
            complain(
                f"there is no answer yet: the run waits for what its client's tools say: {names}"
            )
            return Exit.FAILED
        case "interrupted" | "running":
            complain(f"interrupted{go_on or '; the run was not stored'}")
            return Exit.INTERRUPTED


def _way_on(error: str, resume: str) -> str:
    """The hint at what goes on with a run; nothing where that would only end the same way."""
    if spent := _SPENT.search(error):
        cap = CAP_OPTIONS.get(spent[1])  # none raises the depth of a run that has begun
        return f"; raise that cap to go on: {resume} {cap}" if cap else ""
    return "" if _REFUSED.search(error) else f"; go on with: {resume}"
