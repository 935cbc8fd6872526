"""The live tree: a run drawn on a terminal, and redrawn as it happens.

What is drawn is the `Scene`. Everything that others wrote is cleaned and handed to rich as text,
never as markup.
"""

from __future__ import annotations

from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from podium.check import Check
from podium.cli.scene import RoundView, RunView, Scene, State, StepView
from podium.cli.text import clean, one_line, reads, seconds
from podium.cli.wording import check_line, ending, plan_line, took, total
from podium.events import Event

REDRAWS_A_SECOND: Final = 10
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
LEAST_ANSWER_LINES: Final = 3


class LiveTree:
    """Draws a run from its events. Leaving it leaves the finished tree on the screen."""

    def __init__(self, console: Console | None = None, scene: Scene | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._scene = scene or Scene()
        self._live = Live(
            console=self._console,
            refresh_per_second=REDRAWS_A_SECOND,
            get_renderable=self.draw,
            vertical_overflow="crop",
        )

    def tell(self, event: Event) -> None:
        """Take the next event; the picture follows at its next redrawing."""
        self._scene.tell(event)

    def __enter__(self) -> LiveTree:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self) -> RenderableType:
        """The picture as of now."""
        run = self._scene.top
        if run is None:
            return Text("")
        parts: list[RenderableType] = [_guarded(check) for check in [*run.checks]]
        parts += [self._tree(run, round_) for round_ in [*run.rounds]]
        if run.is_planning:
            parts.append(self._planning(run))
        if run.ended:
            parts.append(Text(one_line(total(run.run)), "dim"))  # whole: it ends with the id
        elif self._scene.answer:
            parts += [Text(""), self._answer(self._height(run))]
        return Group(*parts)

    def _tree(self, run: RunView, view: RoundView) -> Tree:
        tree = Tree(_line(plan_line(run.run, view.round), "bold"), guide_style="dim")
        for step in view.steps:
            branch = tree.add(self._step(step))
            if step.nested is not None:
                for check in [*step.nested.checks]:
                    branch.add(_guarded(check))
                for nested in [*step.nested.rounds]:
                    branch.add(self._tree(step.nested, nested))
                if step.nested.is_planning:
                    branch.add(self._planning(step.nested))
        if view.round.routed is not None:
            tree.add(_line(one_line(view.round.routed.sentence), "dim"))
        for warning in view.round.warnings:
            tree.add(_line(f"note: {one_line(warning)}", "yellow"))
        return tree

    def _step(self, view: StepView) -> Text:
        """Two lines: who does what, and beneath it what that reads, takes and came to."""
        label = Text(no_wrap=True, overflow="ellipsis")
        label.append(f"{self._mark(view)} ", STYLES[view.state])
        label.append(f"{view.index} {one_line(view.step.worker)}", "bold")
        label.append(f"  {one_line(view.step.subtask)}\n")
        label.append(f"  {self._details(view)}", "dim")
        return label

    def _details(self, view: StepView) -> str:
        parts = [reads(view.step.access)]
        if view.retries:
            parts.append(f"asked again {view.retries} x")
        if view.record is not None:
            parts.append(took(view.record) if view.state == "done" else ending(view.record))
        elif view.state == "running":
            parts += [seconds(self._scene.clock() - view.since), view.trouble]
        return one_line("; ".join(part for part in parts if part))

    def _planning(self, run: RunView) -> Text:
        elapsed = seconds(self._scene.clock() - run.since)
        return _line(
            f"{self._spinner()} {one_line(run.run.conductor)} is planning, {elapsed}", "cyan"
        )

    def _mark(self, view: StepView) -> str:
        if view.state == "running":
            return self._spinner()
        return (PLAIN_MARKS if self._is_plain else MARKS)[view.state]

    def _spinner(self) -> str:
        frames = PLAIN_SPINNER if self._is_plain else SPINNER
        return frames[int(self._scene.clock() * REDRAWS_A_SECOND) % len(frames)]

    @property
    def _is_plain(self) -> bool:
        return self._console.options.ascii_only

    def _height(self, run: RunView) -> int:
        """The lines that are left for the answer below the tree."""
        taken = len(run.checks) + sum(1 + 2 * len(view.steps) for view in run.rounds) + 3
        return max(LEAST_ANSWER_LINES, self._console.height - taken)

    def _answer(self, height: int) -> Text:
        """The last lines of what has come of the answer."""
        lines = Text(clean(self._scene.answer)).wrap(self._console, self._console.width)
        return Text("\n").join(lines[-height:])


def wrapped(text: str, console: Console | None = None) -> str:
    """The text with its long lines broken between words, where the terminal would break words."""
    console = console or Console()
    lines = Text(clean(text)).wrap(console, console.width, overflow="fold")
    return "\n".join(line.plain.rstrip() for line in lines)


def _guarded(check: Check) -> Text:
    return _line(check_line(check), "yellow")


def _line(text: str, style: str) -> Text:
    return Text(one_line(text), style, no_wrap=True, overflow="ellipsis")
