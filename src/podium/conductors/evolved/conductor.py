"""The evolved conductor: each round is a turn of the coordinator's preferred worker and role.

Deviations from the paper, where a run would end without an answer: no verifier before a worker has
answered; the last turn is a worker's if none has answered; a worker that failed in this run is
passed over while there are others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium.conductors.builtin import evolved_conductor_name
from podium.conductors.evolved.coordinator import Coordinator, Reader, Vector, chosen, shares
from podium.conductors.evolved.turns import (
    Turn,
    is_accepted,
    prompt_hash,
    subtask,
    suggested,
    transcript,
    turns_of,
)
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError
from podium.core.run import TurnRole
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow


class EvolvedConductor(Conductor):
    """Leads turn by turn, until a verifier accepts or no round is left.

    The preferred worker and role are taken; with a `generator` they are sampled, as in training.
    `notice` is a warning for every run.
    """

    is_trained = True
    """It decides by itself how much planning a question needs."""

    takes_turns = True
    """Its rounds are turns, not revisions."""

    def __init__(
        self,
        coordinator: Coordinator,
        reader: Reader,
        *,
        generator: np.random.Generator | None = None,
        notice: str = "",
    ) -> None:
        self.name = evolved_conductor_name(coordinator.fingerprint)
        self.reader: Reader = reader
        self.prompt_hash = prompt_hash()
        self._coordinator = coordinator
        self._generator = generator
        self._notice = notice

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan the next turn; accept the answer once a verifier does."""
        turns = turns_of(context.rounds)
        if is_accepted(turns) and context.answer is not None:
            return Plan(None)
        workers = self._workers(context, turns)
        logits = self._coordinator.decide(await self.reader.read(transcript(context)))
        described = self._coordinator.described
        worker = described.workers[chosen(logits.workers, workers, self._generator)]
        role, why = self._role(logits.roles, context, turns)
        preferences = _told(described.workers, shares(logits.workers, workers))
        is_first = not any(turn.is_done for turn in turns)
        step = Step(worker, subtask(role, context, is_first=is_first), () if is_first else "all")
        return Plan(
            Workflow((step,)),
            text=f"{worker} as {role}\n{preferences}\n{why}",
            warnings=(self._notice,) if self._notice and not turns else (),
            role=role,
        )

    def _workers(self, context: PlanningContext, turns: Sequence[Turn]) -> NDArray[np.bool_]:
        """Return the mask of workers to choose from: those of the pool that have not failed."""
        described = self._coordinator.described
        known, shared = described.workers, described.shared(context.pool)
        failed = {turn.step.worker for turn in turns if turn.step.status == "failed"}
        present = np.array([name in shared for name in known])
        if not present.any():
            raise ConfigError(
                f"the coordinator chooses among {', '.join(known)}, and this run may use none of "
                f"them; exclude fewer workers"
            )
        able = present & np.array([name not in failed for name in known])
        return able if able.any() else present

    def _role(
        self, logits: Vector, context: PlanningContext, turns: Sequence[Turn]
    ) -> tuple[TurnRole, str]:
        """Return the role of the next turn, and the reason for it."""
        roles = self._coordinator.described.roles
        has_answer = any(turn.role == "worker" and turn.is_done for turn in turns)
        if not roles:
            return "worker", "there are no roles"
        if not has_answer and context.rounds_left <= 1:
            return "worker", "this is the last turn, and there is no answer yet"
        allowed = np.array([has_answer or role != "verifier" for role in roles])
        wanted = suggested(turns)
        if wanted in roles and allowed[roles.index(wanted)]:
            return wanted, "the thinker suggested it"
        role = roles[chosen(logits, allowed, self._generator)]
        return role, _told(roles, shares(logits, allowed))


def _told(names: Sequence[str], parts: NDArray[np.float64]) -> str:
    return ", ".join(f"{name} {part:.0%}" for name, part in zip(names, parts, strict=True))
