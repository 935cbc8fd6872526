"""The stage: what all strategies share, so that nothing but the strategy makes the difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random

from podium.engine import Switchboard
from podium.evals.case import Case
from podium.run import Run
from podium.runner import Options
from podium.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The workers by name, the engine's switchboard, and what holds for every run. `repeat` is
    how often the tasks were put before."""

    workers: Mapping[str, Worker]
    board: Switchboard
    options: Options
    seed: int
    repeat: int = 0

    def draw(self, case: Case, purpose: str) -> Random:
        """Chance for one purpose on one task: the same in every run with the same seed, another
        one in every repeat."""
        again = f"/{self.repeat}" if self.repeat else ""
        return Random(f"{self.seed}/{case.task.id}/{purpose}{again}")  # noqa: S311 - repeatable


Strategy = Callable[[Case, Stage], Awaitable[Run]]
"""A way to answer: one function, from a task to the run that answers it."""
