"""Tiers: how much conducting a question gets, from the model name that a client asks for.

`mini` answers with the least latency, `ultra` plans with whatever conductor is configured, and
`podium` decides between the two for each question: by its words, unless the conductor was trained
to decide that.
"""

from __future__ import annotations

from podium.conductor.base import Conductor, Plan, Situation
from podium.conductor.fixed import FixedConductor
from podium.conductor.router import RouterConductor
from podium.conductor.rules import RulesConductor, verdict
from podium.run import Tier
from podium.worker import Caller, Worker


def for_tier(tier: Tier, configured: Conductor) -> Conductor:
    """The conductor that serves a tier, where `configured` is the one set up for this pool."""
    if tier == "mini":
        return RouterConductor()
    if tier == "podium":
        return ByQuestion(configured)
    return configured


def may_plan_again(tier: Tier, configured: Conductor, question: str) -> bool:
    """Whether who leads may plan again after seeing an answer. Where nobody does, the first answer
    is known to be the last one."""
    leading = for_tier(tier, configured)
    if isinstance(leading, ByQuestion):
        leading = RouterConductor() if leading.routes(question) else configured
    return not isinstance(leading, RulesConductor | RouterConductor | FixedConductor)


class ByQuestion:
    """Routes what is simple by its words, and has the rest conducted.

    A conductor that was trained to plan sees more than words do: which questions have several
    parts, and who of a pool of specialists can take one that has not. It leaves a single question
    to one worker by itself, so it is asked every time.
    """

    def __init__(self, configured: Conductor) -> None:
        self._configured = configured
        self._decides = bool(getattr(configured, "is_trained", False))
        self._router = RouterConductor()
        self.name = f"podium({configured.name})"

    async def plan(self, situation: Situation, call: Caller) -> Plan:
        """Leave the question to the router or to the configured conductor.

        The verdict depends on the question alone, so every round of a run goes the same way.
        """
        conductor = self._router if self.routes(situation.question) else self._configured
        return await conductor.plan(situation, call)

    def routes(self, question: str) -> bool:
        """Whether the question goes to one worker, and nobody plans."""
        return not self._decides and verdict(question) == "simple"

    @property
    def worker(self) -> Worker | None:
        """The worker that plans for the configured conductor, where one does."""
        worker: Worker | None = getattr(self._configured, "worker", None)
        return worker

    @property
    def prompt_hash(self) -> str:
        """The fingerprint of the configured conductor's prompts, where it has any."""
        return str(getattr(self._configured, "prompt_hash", ""))
