"""Showing a run: how it is told while it happens, and what is left when it has ended."""

from __future__ import annotations

import sys

from podium.cli.lines import Lines
from podium.cli.outcome import Exit, conclude
from podium.cli.output import is_drawable, say, say_json
from podium.cli.session import Show
from podium.document import run_document
from podium.events import Event
from podium.run import Run


class Silence:
    """Says nothing, for those who want only the result."""

    def tell(self, event: Event) -> None:
        """Take the next event."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


def onlooker(*, silent: bool) -> Show:
    """A tree where it can be redrawn, lines where it cannot."""
    if silent:
        return Silence()
    if not is_drawable(sys.stdout):
        return Lines()
    from podium.cli.drawing import LiveTree  # rich takes a while to load

    return LiveTree()


def deliver(run: Run, resume: str | None, *, json: bool, quiet: bool) -> Exit:
    """Print what came of the run, and give the exit code; `resume` as for `conclude`."""
    if json:
        say_json(run_document(run))
    elif run.answer is not None and quiet:
        say(run.answer)
    elif run.answer is not None:
        say(f"\n{_fitting(run.answer)}")
    return conclude(run, resume)


def _fitting(answer: str) -> str:
    """The answer as a terminal shows it best; a file or a pipe gets it as it is."""
    if not is_drawable(sys.stdout):
        return answer
    from podium.cli.drawing import wrapped  # rich takes a while to load

    return wrapped(answer)
