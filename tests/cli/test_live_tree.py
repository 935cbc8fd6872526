from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from cli.support import REPOSITORY, Vendor
from podium import (
    AsyncPodium,
    Guardrail,
    Plan,
    PlanningContext,
    Redaction,
    ScriptedWorker,
    Step,
    Workflow,
)
from podium.cli.live_tree import SPINNER, LiveTree, RunTracker, wrap_text
from podium.conductors import FixedConductor
from podium.core.conductor import Conductor
from podium.core.errors import Unavailable
from podium.core.events import Event, RunDone, StepDelta, StepDone, StepRetried, StepStarted
from podium.core.worker import Caller
from podium.engine import RetryPolicy
from podium.engine.runner import ConductorWorker

EVIL = "\x1b]0;owned\x07\x1b[2J[red]well[/red]"


class TwoLevels(Conductor):
    """Plans a join over a conductor, which plans one step; and accepts in the second round."""

    name = "two-levels"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        if context.rounds:
            return Plan(None)
        if context.question == "go deeper":
            return Plan(Workflow((Step("a", "the bottom"),)))
        steps = (
            Step("a", f"first {EVIL}"),
            Step("conductor", "go deeper"),
            Step("a", "bring it together", "all"),
        )
        return Plan(Workflow(steps), warnings=("the plan was odd",))


@pytest.fixture
async def events() -> list[Event]:
    """What happens in a run with a nested run, a retry, a warning and two rounds."""
    seen: list[Event] = []
    crew = [
        ScriptedWorker("a", ["one", Unavailable(f"busy {EVIL}"), "two", EVIL]),
        ConductorWorker(),
    ]
    retry = RetryPolicy(initial_wait_seconds=0.001)
    async with AsyncPodium(crew, TwoLevels(), retry=retry) as podium:
        await podium.ask("q?", rounds=2, emit=seen.append, stream=True)
    return seen


class Canvas:
    """A terminal of 80 columns on which every picture can be read."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.now = 0.0
        file = io.TextIOWrapper(io.BytesIO(), encoding)
        self.console = Console(file=file, width=80, height=25, highlight=False, color_system=None)
        self.tree = LiveTree(self.console, RunTracker(lambda: self.now))

    def picture(self) -> str:
        with self.console.capture() as captured:
            self.console.print(self.tree.draw())
        return captured.get()

    def after(self, events: list[Event], last: type[Event]) -> str:
        """Tell the events up to the first of that kind, and look."""
        for event in events:
            self.tree.show(event)
            if isinstance(event, last):
                break
        return self.picture()


def test_planning_is_shown_before_the_first_plan(events: list[Event]) -> None:
    canvas = Canvas()
    canvas.tree.show(events[0])
    canvas.now = 2.5
    assert canvas.picture() == "⠴ two-levels is planning, 2.5 s\n"


async def test_guardrail_actions_on_question_and_replies_are_shown() -> None:
    seen: list[Event] = []
    guard = Guardrail("privacy", Redaction())
    workers = [ScriptedWorker("a", "Ask bob@example.com.")]
    conductor = FixedConductor(Workflow((Step("a", "say"),)))
    async with AsyncPodium(workers, conductor, guardrails=[guard]) as podium:
        await podium.ask("Who is ada@example.com?", emit=seen.append)
    canvas = Canvas()
    canvas.tree.show(seen[0])
    first = "guardrail privacy redacted the question: 1 × e-mail"
    assert canvas.picture().splitlines()[0] == first
    lines = canvas.after(seen, RunDone).splitlines()
    assert lines[:2] == [first, "guardrail privacy redacted the reply: 1 × e-mail"]


def test_a_running_step_shows_its_worker_its_inputs_and_its_time(
    events: list[Event],
) -> None:
    canvas = Canvas()
    canvas.after(events, StepStarted)
    canvas.now = 1.0
    lines = canvas.picture().splitlines()
    assert lines[0] == "round 1 by two-levels: 3 steps, fan-out/join"
    assert lines[1] == "├── ⠋ 0 a  first [red]well[/red]"
    assert lines[2] == "│     reads nothing; 1.0 s"
    assert lines[5] == "├── ○ 2 a  bring it together"
    assert lines[6] == "│     reads all steps before it"
    assert lines[7] == "└── note: the plan was odd"


def test_a_retry_shows_why(events: list[Event]) -> None:
    picture = Canvas().after(events, StepRetried)
    assert "retried 1 x; 0.0 s; busy [red]well[/red]" in picture


def test_a_finished_step_shows_what_it_took(events: list[Event]) -> None:
    picture = Canvas().after(events, StepDone)
    assert "✓ 0 a  first" in picture
    assert "tokens, cost unknown, 0.0 s" in picture


def test_the_end_shows_nested_runs_rounds_and_the_total(events: list[Event]) -> None:
    canvas = Canvas()
    for event in events:
        canvas.tree.show(event)
    picture = canvas.picture()
    lines = picture.splitlines()
    assert "│   ├── round 1 by two-levels: 1 step, one-shot" in lines
    assert "│   │   └── ✓ 0 a  the bottom" in lines
    assert "round 2 by two-levels: answer accepted" in lines
    assert lines[-1].startswith("answered: 4 calls, ")
    assert "\x1b" not in picture


def test_the_id_at_the_end_is_whole_however_narrow_the_terminal(events: list[Event]) -> None:
    canvas = Canvas()
    for event in events:
        canvas.tree.show(event)
    canvas.console.width = 50
    assert canvas.picture().split()[-1] == events[0].run_id


def test_the_answer_is_seen_as_it_comes_in(events: list[Event]) -> None:
    canvas = Canvas()
    last = max(where for where, event in enumerate(events) if isinstance(event, StepDelta))
    for event in events[: last + 1]:
        canvas.tree.show(event)
    picture = canvas.picture()
    assert picture.endswith("\n\n[red]well[/red]\n")
    assert "\x1b" not in picture


def test_words_of_a_call_that_failed_stand(events: list[Event]) -> None:
    canvas = Canvas()
    last = max(where for where, event in enumerate(events) if isinstance(event, StepDelta))
    spoken = events[last]
    assert isinstance(spoken, StepDelta)
    for event in events[: last + 1]:
        canvas.tree.show(event)
    canvas.tree.show(StepRetried(spoken.run_id, 0, spoken.index, "a", "broken off", 0.1, 4))
    assert "well" in canvas.picture().splitlines()[-1]


def test_an_answer_is_broken_between_words_and_keeps_its_form() -> None:
    console = Console(width=12)
    assert wrap_text("one two three four", console) == "one two\nthree four"
    assert wrap_text("a\n\n    code\n[b]x[/b]", console) == "a\n\n    code\n[b]x[/b]"
    assert wrap_text("0123456789abcdef", console) == "0123456789ab\ncdef"


def test_a_terminal_without_unicode_gets_plain_marks(events: list[Event]) -> None:
    canvas = Canvas("ascii")
    canvas.after(events, StepDone)
    assert canvas.picture().isascii()


def read_all(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how a terminal says that the other side has left
            return
        if not piece:
            return
        yield piece


def test_on_a_real_terminal_the_tree_is_drawn_and_redrawn(vendor: Vendor, tmp_path: Path) -> None:
    vendor.replies = {"lead": f"{EVIL}\nand good", "left": EVIL}
    vendor.hangs = {"lead"}
    pool = vendor.pool("lead", "left", "right", directory=tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "podium", "ask", "--pool", str(pool), f"Compare {EVIL}"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY / "src"),
            "TERM": "xterm-256color",
            "COLUMNS": "100",
            "LINES": "40",
        },
    )
    os.close(theirs)
    seen = b""
    for piece in read_all(ours):
        seen += piece
        if seen.count("✓".encode()) >= 2:  # two steps are seen done while the third still runs
            vendor.released.set()
    os.close(ours)
    drawn = seen.decode()
    assert process.wait(timeout=60) == 0
    assert "plan by rules: 3 steps, fan-out/join" in drawn
    assert set(SPINNER) & set(drawn), "no step was seen running"
    assert drawn.count("✓") >= 5
    assert "\x1b[1A" in drawn, "nothing was redrawn"
    assert "reads 0, 1" in drawn
    assert drawn.endswith("\r\n[red]well[/red]\r\nand good\r\n")
    assert "owned" not in drawn
    assert "\x1b[2J" not in drawn
