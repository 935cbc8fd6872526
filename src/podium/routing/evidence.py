"""What a router learns from: a table of what each worker earned on each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.errors import ConfigError
from podium.routing.arrays import Array
from podium.routing.router import Known


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A row for each question, a column for each worker; not a number where that worker was not
    asked that question."""

    questions: tuple[str, ...]
    workers: tuple[Known, ...]
    rewards: Array

    def __post_init__(self) -> None:
        expected = (len(self.questions), len(self.workers))
        if self.rewards.shape != expected:
            raise ValueError(f"expected rewards of the shape {expected}, not {self.rewards.shape}")

    @property
    def costs(self) -> Array:
        """What a question costs with each worker."""
        return np.array([worker.cost for worker in self.workers])

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Which questions every worker was asked. Only on them it is known what routing earns,
        whomever it chooses: one that sends hard questions to a worker who was never asked them
        would otherwise drop them from its own score."""
        found: NDArray[np.bool_] = np.logical_and.reduce(~np.isnan(self.rewards), axis=1)
        return found

    def of(self, rows: Sequence[int]) -> Evidence:
        """The same for some of the questions, by their places."""
        chosen = list(rows)
        return Evidence(
            tuple(self.questions[row] for row in chosen), self.workers, self.rewards[chosen]
        )

    def check(self, least: int) -> None:
        """Refuse what is too little to learn from."""
        if len(self.questions) < least:
            raise ConfigError(
                f"the questions to learn from are {len(self.questions)}, and {least} are the least "
                f"that a router is held against; ask more"
            )
        whole = int(self.whole.sum())
        if whole < least:
            raise ConfigError(
                f"every worker was asked {whole} of the {len(self.questions)} questions, and "
                f"{least} such are the least that a router is held against; put questions to all "
                f"of them by `podium eval run --strategy best-single`, and add what comes of it by "
                f"`podium train data --from-evaluation DIR`"
            )
