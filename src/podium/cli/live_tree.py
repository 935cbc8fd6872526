"""The live tree: a run drawn on a terminal and redrawn as it happens.

`RunTracker` follows the events of a run, `LiveTree` draws it with rich. Text from models is
cleaned and passed to rich as text, never as markup.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from podium.cli.output import (
    clean_text,
    describe_access,
    describe_check,
    describe_plan,
    describe_run_end,
    describe_step_end,
    describe_step_usage,
    format_seconds,
    to_one_line,
)
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
)
from podium.core.run import GuardrailCheck, Round, Run, StepRecord, StepStatus
from podium.core.workflow import Step

State = StepStatus | Literal["waiting", "running"]

ANSWER_TAIL: Final = 4000
"""Characters of a streaming answer that are kept: a screenful or two."""


@dataclass(slots=True)
class StepView:
    """The state of a step. `retry_reason` is the error before its last retry."""

    index: int
    step: Step
    state: State = "waiting"
    since: float = 0.0
    retries: int = 0
    retry_reason: str = ""
    record: StepRecord | None = None
    nested: RunView | None = None


@dataclass(slots=True)
class RoundView:
    """The state of a round."""

    round: Round
    steps: list[StepView]


@dataclass(slots=True)
class RunView:
    """The state of a run. `parent` is the id of the run around it and that run's step."""

    run: Run
    since: float
    parent: tuple[str, int] | None = None
    rounds: list[RoundView] = field(default_factory=list)
    checks: list[GuardrailCheck] = field(default_factory=list)
    ended: bool = False

    @property
    def is_planning(self) -> bool:
        """True if the conductor is planning: there is no plan yet, or all its steps have ended."""
        if self.ended or not self.rounds:
            return not self.ended
        last = self.rounds[-1]
        return not last.round.accepts_answer and all(step.record for step in last.steps)

    def step(self, index: int) -> StepView:
        return self.rounds[-1].steps[index]


class RunTracker:
    """Follows the events of a run and of the runs nested in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.top: RunView | None = None
        self.answer = ""
        self._runs: dict[str, RunView] = {}

    def show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._begin(event)
            case RoundPlanned(run_id, round_):
                self._plan(self._runs[run_id], round_)
            case StepStarted(run_id, _, index):
                step = self._runs[run_id].step(index)
                step.state, step.since = "running", self.clock()
                self._restart_answer(run_id, index)
            case StepRetried(run_id, _, index, _, error):
                step = self._runs[run_id].step(index)
                step.retries, step.retry_reason = step.retries + 1, error
            case StepDelta(run_id, _, _, text, thinking):
                if not thinking and self._is_answering(self._runs[run_id]):
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
        view = RunView(event.run, self.clock(), event.parent, checks=[*event.run.guardrail_checks])
        for round_ in event.run.rounds:
            self._plan(view, round_)
        self._runs[event.run_id] = view
        if event.parent is None:
            self.top = view
        else:
            above, index = event.parent
            self._runs[above].step(index).nested = view

    def _plan(self, run: RunView, round_: Round) -> None:
        """Add a round; a resumed run keeps finished steps and replaces an interrupted round."""
        planned = round_.workflow.steps if round_.workflow is not None else ()
        view = RoundView(round_, [StepView(index, step) for index, step in enumerate(planned)])
        for record in round_.steps:
            if record.status == "done":
                view.steps[record.index].state = record.status
                view.steps[record.index].record = record
        del run.rounds[round_.index :]
        run.rounds.append(view)

    def _restart_answer(self, run_id: str, index: int) -> None:
        """Drop the answer so far when its step starts; a retried step continues it."""
        run = self._runs[run_id]
        if index == len(run.rounds[-1].steps) - 1 and self._is_answering(run):
            self.answer = ""

    def _is_answering(self, run: RunView) -> bool:
        """True if the run's last reply is the answer: the top run, or a conductor in the last step
        of a run that answers."""
        if run.parent is None:
            return True
        above, index = run.parent
        parent = self._runs[above]
        return index == len(parent.rounds[-1].steps) - 1 and self._is_answering(parent)


REDRAWS_PER_SECOND: Final = 10
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_SPINNER: Final = "|/-\\"
MARKS: Final[dict[State, str]] = {
    "waiting": "○",
    "done": "✓",
    "failed": "✗",
    "skipped": "-",
    "cancelled": "✗",
}
PLAIN_MARKS: Final[dict[State, str]] = {
    "waiting": ".",
    "done": "+",
    "failed": "x",
    "skipped": "-",
    "cancelled": "x",
}
STYLES: Final[dict[State, str]] = {
    "waiting": "dim",
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "skipped": "yellow",
    "cancelled": "yellow",
}
MIN_ANSWER_LINES: Final = 3


class LiveTree(AbstractContextManager[Emit]):
    """Draws a run from its events. The finished tree stays on the screen."""

    def __init__(self, console: Console | None = None, tracker: RunTracker | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._tracker = tracker or RunTracker()
        self.show = self._tracker.show
        self._live = Live(
            console=self._console,
            refresh_per_second=REDRAWS_PER_SECOND,
            get_renderable=self.draw,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Emit:
        self._live.start()
        return self.show

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self) -> RenderableType:
        run = self._tracker.top
        if run is None:
            return Text("")
        parts: list[RenderableType] = [_check_line(check) for check in [*run.checks]]
        parts += [self._tree(run, round_) for round_ in [*run.rounds]]
        if run.is_planning:
            parts.append(self._planning(run))
        if run.ended:
            parts.append(Text(to_one_line(describe_run_end(run.run)), "dim"))
        elif self._tracker.answer:
            parts += [Text(""), self._answer(self._height(run))]
        return Group(*parts)

    def _tree(self, run: RunView, view: RoundView) -> Tree:
        tree = Tree(_line(describe_plan(run.run, view.round), "bold"), guide_style="dim")
        for step in view.steps:
            branch = tree.add(self._step(step))
            if step.nested is not None:
                for check in [*step.nested.checks]:
                    branch.add(_check_line(check))
                for nested in [*step.nested.rounds]:
                    branch.add(self._tree(step.nested, nested))
                if step.nested.is_planning:
                    branch.add(self._planning(step.nested))
        if view.round.routing is not None:
            tree.add(_line(to_one_line(view.round.routing.explanation), "dim"))
        for warning in view.round.warnings:
            tree.add(_line(f"note: {to_one_line(warning)}", "yellow"))
        return tree

    def _step(self, view: StepView) -> Text:
        """Two lines: worker and subtask, then access, usage and outcome."""
        label = Text(no_wrap=True, overflow="ellipsis")
        label.append(f"{self._mark(view)} ", STYLES[view.state])
        label.append(f"{view.index} {to_one_line(view.step.worker)}", "bold")
        label.append(f"  {to_one_line(view.step.subtask)}\n")
        label.append(f"  {self._details(view)}", "dim")
        return label

    def _details(self, view: StepView) -> str:
        parts = [describe_access(view.step.access)]
        if view.retries:
            parts.append(f"retried {view.retries} x")
        if view.record is not None:
            parts.append(
                describe_step_usage(view.record)
                if view.state == "done"
                else describe_step_end(view.record)
            )
        elif view.state == "running":
            parts += [format_seconds(self._tracker.clock() - view.since), view.retry_reason]
        return to_one_line("; ".join(part for part in parts if part))

    def _planning(self, run: RunView) -> Text:
        elapsed = format_seconds(self._tracker.clock() - run.since)
        return _line(
            f"{self._spinner()} {to_one_line(run.run.conductor)} is planning, {elapsed}", "cyan"
        )

    def _mark(self, view: StepView) -> str:
        if view.state == "running":
            return self._spinner()
        return (PLAIN_MARKS if self._is_plain else MARKS)[view.state]

    def _spinner(self) -> str:
        frames = PLAIN_SPINNER if self._is_plain else SPINNER
        return frames[int(self._tracker.clock() * REDRAWS_PER_SECOND) % len(frames)]

    @property
    def _is_plain(self) -> bool:
        return self._console.options.ascii_only

    def _height(self, run: RunView) -> int:
        taken = len(run.checks) + sum(1 + 2 * len(view.steps) for view in run.rounds) + 3
        return max(MIN_ANSWER_LINES, self._console.height - taken)

    def _answer(self, height: int) -> Text:
        """The last lines of the answer so far."""
        lines = Text(clean_text(self._tracker.answer)).wrap(self._console, self._console.width)
        return Text("\n").join(lines[-height:])


def wrap_text(text: str, console: Console | None = None) -> str:
    console = console or Console()
    lines = Text(clean_text(text)).wrap(console, console.width, overflow="fold")
    return "\n".join(line.plain.rstrip() for line in lines)


def _check_line(check: GuardrailCheck) -> Text:
    return _line(describe_check(check), "yellow")


def _line(text: str, style: str) -> Text:
    return Text(to_one_line(text), style, no_wrap=True, overflow="ellipsis")
