"""Showing a run: how it is told while it happens, and what is left when it has ended."""

from __future__ import annotations

import sys
from collections import Counter

from podium.cli.formatting import check_line, ending, one_line, plan_line, step_line, total
from podium.cli.output import Exit, conclude, is_drawable, say, say_json
from podium.cli.session import Show
from podium.client.documents import run_document
from podium.core.events import (
    Event,
    GuardrailActed,
    Planned,
    RunDone,
    RunStarted,
    StepDone,
    StepRetried,
)
from podium.core.run import Run


class Lines:
    """Says each plan as it is made and each step as it ends; nested runs are indented."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._calls: dict[tuple[str, int, int], Counter[str]] = {}

    def tell(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case RunStarted(run):
                self._runs[run.id] = run
                for check in run.checks:  # what guardrails did to the question
                    self._say(run, check_line(check))
                for round_ in run.rounds:  # a resumed run begins with what it had
                    self.tell(Planned(run.id, round_))
            case Planned(run_id, round_):
                run = self._runs[run_id]
                self._say(run, plan_line(run, round_))
                for index, step in enumerate(round_.workflow.steps if round_.workflow else ()):
                    self._say(run, f"  {step_line(index, step)}")
                if round_.routed is not None:
                    self._say(run, f"  {round_.routed.sentence}")
                for warning in round_.warnings:
                    self._say(run, f"  note: {warning}")
            case StepRetried():
                self._say(self._runs[event.run_id], self._asked_again(event))
            case GuardrailActed(run_id, check):
                self._say(self._runs[run_id], check_line(check))
            case StepDone(run_id, step):
                self._say(self._runs[run_id], f"step {step.index} {step.worker}: {ending(step)}")
            case RunDone(run) if run.depth == 0:
                self._say(run, total(run))
            case _:
                pass

    def _asked_again(self, event: StepRetried) -> str:
        """Which call is next. Why, the step's end says once; a fallback is asked for a reason."""
        calls = self._calls.setdefault((event.run_id, event.round, event.index), Counter())
        if event.wait_seconds == 0 and not calls[event.worker]:
            calls[event.worker] = 1
            return f"step {event.index} asks {event.worker} instead: {event.error}"
        calls[event.worker] = max(1, calls[event.worker]) + 1
        wait = f"{event.wait_seconds:.1f} s"
        return (
            f"step {event.index} asks {event.worker} again in {wait} (call {calls[event.worker]})"
        )

    def _say(self, run: Run, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        say("    " * run.depth + " " * indent + one_line(line))

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


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
    from podium.cli.live_tree import LiveTree

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
    from podium.cli.live_tree import wrapped

    return wrapped(answer)
