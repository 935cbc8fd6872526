"""What a client gets to know of a run while it goes on: the answer's words as they come, the
worker's thinking, and lines on what is being done. How it is sent is `endpoints.stream`."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import shorten
from typing import Final, Protocol

from podium.events import (
    Emit,
    Event,
    GuardrailActed,
    Planned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
)
from podium.guardrails.restoring import restoring
from podium.run import Run
from podium.workflow import Workflow

LONGEST_SUBTASK: Final = 160
"""Characters of a subtask that a line tells."""


class Teller(Protocol):
    """Who is told while an answer comes. Every method returns at once."""

    def opened(self, run: str, *, kept: bool) -> None:
        """The answer has an id now; `kept` says that it is that of a run on record."""
        ...

    def progress(self, line: str) -> None:
        """A line on what is being done."""
        ...

    def thinking(self, text: str) -> None:
        """A piece of the answering worker's thinking."""
        ...

    def text(self, text: str) -> None:
        """A piece of the answer."""
        ...

    def anew(self) -> None:
        """The pieces so far are void: the answer begins again."""
        ...


class Watch:
    """Follows one run. `run` is the run as it ended, once it has. `begun` gets one that is not to
    be kept as it begins, and `performs` one that is.

    Only what will be the answer is told, and only the run itself is reported on, not the runs
    nested in it. A round that the conductor may still improve upon is
    held back until the run has ended: its words could not be taken back. What guardrails took out
    of the question is put back for the teller, and for nobody else.
    """

    def __init__(
        self,
        teller: Teller | None = None,
        *,
        begun: Callable[[Run], None] | None = None,
        performs: Callable[[Run], None] | None = None,
        broadcast: Emit | None = None,
    ) -> None:
        self.run: Run | None = None
        self._broadcast = broadcast
        self._teller = teller
        self._begun = begun
        self._performs = performs
        self._started: dict[str, RunStarted] = {}
        self._last_rounds: set[str] = set()
        self._speaker: tuple[str, int, int] | None = None
        self._root = ""
        self._hear = restoring(self._take)

    def fall_silent(self) -> None:
        """Tell no piece of what comes: whoever asked gets it as a whole."""
        self._teller = None

    def __call__(self, event: Event) -> None:
        """Take the next event."""
        if self._broadcast is not None:
            self._broadcast(event)
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        self._hear(event)

    def _take(self, event: Event) -> None:
        """Take an event as whoever asked is to hear of it."""
        match event:
            case StepDelta():
                self._delta(event)
            case RunStarted():
                self._started[event.run_id] = event
                if event.parent is None:
                    self._begin(event.run)
            case Planned() if self._is_last(event):
                self._last_rounds.add(event.run_id)
            case StepRetried() if not event.kept and self._speaks(event):
                self._speaker = None
        if self._teller is not None and event.run_id == self._root:
            line = _line(event)
            if line is not None:
                self._teller.progress(line)

    def _begin(self, run: Run) -> None:
        self._root = run.id
        if self._begun is not None:
            self._begun(run)
        if self._performs is not None:
            self._performs(run)
        if self._teller is not None:
            self._teller.opened(run.id, kept=self._begun is None)

    def _delta(self, delta: StepDelta) -> None:
        if self._teller is None or not self._is_live(delta.run_id):
            return
        speaker = (delta.run_id, delta.round, delta.index)
        if speaker != self._speaker:
            self._teller.anew()
            self._speaker = speaker
        if delta.thinking:
            self._teller.thinking(delta.text)
        else:
            self._teller.text(delta.text)

    def _speaks(self, retried: StepRetried) -> bool:
        return (retried.run_id, retried.round, retried.index) == self._speaker

    def _is_last(self, planned: Planned) -> bool:
        if planned.round.is_one_workers:
            return True
        return planned.round.index + 1 >= self._started[planned.run_id].run.max_rounds

    def _is_live(self, run_id: str) -> bool:
        """Whether that run's words are the answer's: it is in its last round, and so are the
        runs that it is nested in."""
        while run_id in self._last_rounds:
            parent = self._started[run_id].parent
            if parent is None:
                return True
            run_id = parent[0]
        return False


def _line(event: Event) -> str | None:
    """What a person may want to know of an event."""
    match event:
        case Planned(round=round_) if round_.workflow is not None and round_.role is not None:
            step = round_.workflow.steps[-1]
            return f"Turn {round_.index + 1}: {step.worker} is the {round_.role}."
        case Planned(round=round_) if round_.workflow is not None:
            again = "" if round_.index == 0 else f"Round {round_.index + 1}: "
            return again + _plan(round_.workflow)
        case Planned():
            return "The answer was accepted."
        case StepStarted(index=index, worker=worker):
            return f"Step {index + 1}: {worker} is asked."
        case StepRetried(index=index, worker=worker):
            return f"Step {index + 1}: a call failed; {worker} is asked again."
        case GuardrailActed(check=check):
            return f"The guardrail {check.guardrail} looked at the {check.place}: {check.deed}."
        case StepDone(step=step):
            ended = "is done" if step.status == "done" else f"ended: {step.status}"
            return f"Step {step.index + 1}: {step.answered_by or step.worker} {ended}."
        case _:
            return None


def _plan(workflow: Workflow) -> str:
    count = "one step" if len(workflow) == 1 else f"{len(workflow)} steps"
    workers = ", ".join(dict.fromkeys(step.worker for step in workflow.steps))
    lines = [f"Planned {count} for {workers}."]
    if len(workflow) > 1:
        lines += (
            f"{number}. {step.worker}: {shorten(step.subtask, LONGEST_SUBTASK, placeholder=' …')}"
            for number, step in enumerate(workflow.steps, 1)
        )
    return "\n".join(lines)
