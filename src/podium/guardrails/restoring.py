"""Marks put back while the words come, for whoever asked and for nobody else who watches.

A mark may be cut in two by the pieces of a stream, so what could still become one is held back
until it is known. `RestoredWords` does that for one reply, and `restoring` for all that is told of
a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from podium.events import Emit, Event, RunDone, RunStarted, StepDelta, StepDone
from podium.guardrails.redaction import LONGEST_MARK


class RestoredWords:
    """The words of one answer, restored piece by piece."""

    __slots__ = ("_held", "_restore")

    def __init__(self, restore: Callable[[str], str]) -> None:
        self._restore = restore
        self._held = ""

    def hear(self, text: str) -> str:
        """Take the next piece; what is to be told now."""
        text = self._held + text
        opened = text.rfind("[")
        whole = opened < 0 or "]" in text[opened:] or len(text) - opened >= LONGEST_MARK
        told, self._held = (text, "") if whole else (text[:opened], text[opened:])
        return self._restore(told)

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held


def restoring(emit: Emit) -> Emit:
    """Tell of a run as whoever asked is to hear of it: the pieces of the answer, and the run at its
    end, with what guardrails took out of the question."""
    restore: Callable[[str], str] | None = None
    words: dict[tuple[str, int, int], RestoredWords] = {}

    def tell(event: Event) -> None:
        nonlocal restore
        match event:
            case RunStarted():
                restore = restore or event.restore
            case StepDelta() if restore is not None and not event.thinking:
                place = (event.run_id, event.round, event.index)
                text = words.setdefault(place, RestoredWords(restore)).hear(event.text)
                if not text:
                    return
                event = replace(event, text=text)
            case StepDone(run_id=run_id, step=step):
                heard = words.pop((run_id, step.round, step.index), None)
                if heard is not None and (rest := heard.rest()):
                    emit(StepDelta(run_id, step.round, step.index, rest))
            case RunDone(run=run) if restore is not None and run.answer is not None:
                event = RunDone(replace(run, answer=restore(run.answer)))
        emit(event)

    return tell
