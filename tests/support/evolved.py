"""A coordinator whose decisions a test writes down: its head is the identity, so that what the
reader returns is what is preferred. Needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from podium.conductors.evolved_turns import ROLES, CoordinatorDescription
from podium.core.run import TurnRole
from podium_lab.evolution.coordinator import Coordinator, Scales, Vector

WORKERS = ("ann", "bob")


def described(workers: Sequence[str] = WORKERS, **changes: Any) -> CoordinatorDescription:
    """A description as wide as it has rows."""
    roles = changes.pop("roles", ROLES)
    width = changes.pop("width", len(workers) + len(roles))
    return CoordinatorDescription(
        workers=tuple(workers),
        roles=roles,
        base=changes.pop("base", "tiny"),
        width=width,
        **changes,
    )


def coordinator(workers: Sequence[str] = WORKERS, **changes: Any) -> Coordinator:
    """Prefers what the hidden state says."""
    about = described(workers, **changes)
    return Coordinator(about, np.eye(about.rows, about.width, dtype=np.float32).ravel())


class Reading:
    """Reads the given choices in turn, the last one again and again, and keeps the transcripts."""

    def __init__(self, *choices: tuple[str, TurnRole], workers: Sequence[str] = WORKERS) -> None:
        self._choices = choices
        self._workers = workers
        self.transcripts: list[str] = []

    async def read(self, transcript: str, scales: Scales = ()) -> Vector:
        worker, role = self._choices[min(len(self.transcripts), len(self._choices) - 1)]
        self.transcripts.append(transcript)
        hidden = np.zeros(len(self._workers) + len(ROLES), np.float32)
        hidden[self._workers.index(worker)] = 2.0
        hidden[len(self._workers) + ROLES.index(role)] = 2.0
        return hidden
