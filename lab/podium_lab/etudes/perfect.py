"""Perfect workers for the études: they show what a plan is worth, whoever carries it out.

With them, nothing has to be downloaded and nothing but the plan can be at fault.
"""

from __future__ import annotations

from typing import Final

from podium._util.lab import ORACLE
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request
from podium.core.usage import FREE, Usage
from podium.core.worker import Worker
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.pools import GENERALIST, MISLEADING, ROLES
from podium_lab.etudes.vocabulary import UNSURE

MISLED: Final = "7"
"""What the misleading worker always says, with confidence and without reading."""


class OracleWorker(Worker):
    """The worker of one role of the études as it would be if it never erred.

    A specialist does what is of its family and does not know the rest; the generalist knows
    nothing of what specialists do; the misleading one is as sure as it is wrong. Tokens are
    counted as words.
    """

    def __init__(self, role: str) -> None:
        self.profile = WorkerProfile(name=role, provider=ORACLE, model=role, price=FREE)

    async def reply(self, request: Request) -> Reply:
        """Answer the last message."""
        text = self._answer(request.messages[-1].text)
        return Reply(text, Usage(len(request.text.split()), len(text.split()), 0, 0, 0))

    def _answer(self, message: str) -> str:
        role = self.profile.name
        if role == MISLEADING:
            return MISLED
        return UNSURE if role == GENERALIST else oracle_reply(role, message)


def oracle_workers() -> tuple[OracleWorker, ...]:
    """One for each role."""
    return tuple(OracleWorker(role) for role in ROLES)
