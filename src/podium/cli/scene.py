"""What a run looks like while it happens: its rounds and steps so far, nested runs inside.

`Scene` follows the events of one run. It knows neither terminals nor words; `drawing` draws it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from podium.check import Check
from podium.events import (
    Event,
    GuardrailActed,
    Planned,
    RoundDone,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
)
from podium.run import Round, Run, StepRecord, StepStatus
from podium.workflow import Step

State = StepStatus | Literal["waiting", "running"]

ANSWER_TAIL: Final = 4000
"""How many characters of an answer are remembered while it comes in: a screenful or two."""


@dataclass(slots=True)
class StepView:
    """A step as it stands. `since` is when it began; `trouble` is why it was last retried."""

    index: int
    step: Step
    state: State = "waiting"
    since: float = 0.0
    retries: int = 0
    trouble: str = ""
    record: StepRecord | None = None
    nested: RunView | None = None


@dataclass(slots=True)
class RoundView:
    """A round that was planned."""

    round: Round
    steps: list[StepView]


@dataclass(slots=True)
class RunView:
    """A run as it stands. `parent` is the run it is nested in, and that run's step; `checks` are
    what guardrails have done."""

    run: Run
    since: float
    parent: tuple[str, int] | None = None
    rounds: list[RoundView] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    ended: bool = False

    @property
    def is_planning(self) -> bool:
        """Whether the conductor is at work: nothing is planned, or all that was is over."""
        if self.ended or not self.rounds:
            return not self.ended
        last = self.rounds[-1]
        return not last.round.accepted and all(step.record for step in last.steps)

    def step(self, index: int) -> StepView:
        """A step of the round that is being carried out."""
        return self.rounds[-1].steps[index]


class Scene:
    """Follows a run and those nested in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.top: RunView | None = None
        self.answer = ""
        self._runs: dict[str, RunView] = {}

    def tell(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case RunStarted():
                self._begin(event)
            case Planned(run_id, round_):
                self._plan(self._runs[run_id], round_)
            case StepStarted(run_id, _, index):
                step = self._runs[run_id].step(index)
                step.state, step.since = "running", self.clock()
                self._restart_answer(run_id, index)
            case StepRetried(run_id, _, index, _, error):
                step = self._runs[run_id].step(index)
                step.retries, step.trouble = step.retries + 1, error
            case StepDelta(run_id, _, _, text, thinking):
                if not thinking and self._speaks(self._runs[run_id]):
                    self.answer = (self.answer + text)[-ANSWER_TAIL:]
            case StepDone(run_id, record):
                step = self._runs[run_id].step(record.index)
                step.state, step.record = record.status, record
            case GuardrailActed(run_id, check):
                self._runs[run_id].checks.append(check)
            case RunDone(run):
                view = self._runs[run.id]
                view.run, view.ended = run, True
            case RoundDone():
                pass

    def _begin(self, event: RunStarted) -> None:
        view = RunView(event.run, self.clock(), event.parent, checks=[*event.run.checks])
        for round_ in event.run.rounds:
            self._plan(view, round_)
        self._runs[event.run_id] = view
        if event.parent is None:
            self.top = view
        else:
            above, index = event.parent
            self._runs[above].step(index).nested = view

    def _plan(self, run: RunView, round_: Round) -> None:
        """Show a plan; a resumed run shows what it had, and plans a cut-off round again."""
        planned = round_.workflow.steps if round_.workflow is not None else ()
        view = RoundView(round_, [StepView(index, step) for index, step in enumerate(planned)])
        for record in round_.steps:
            if record.status == "done":
                view.steps[record.index].state = record.status
                view.steps[record.index].record = record
        del run.rounds[round_.index :]
        run.rounds.append(view)

    def _restart_answer(self, run_id: str, index: int) -> None:
        """What was heard of an answer is void once its step starts. One that is asked again
        goes on with it."""
        run = self._runs[run_id]
        if index == len(run.rounds[-1].steps) - 1 and self._speaks(run):
            self.answer = ""

    def _speaks(self, run: RunView) -> bool:
        """Whether the run's last reply is the answer: the run itself, or a conductor in the
        last step of a run that does."""
        if run.parent is None:
            return True
        above, index = run.parent
        parent = self._runs[above]
        return index == len(parent.rounds[-1].steps) - 1 and self._speaks(parent)
