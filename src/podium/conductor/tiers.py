"""Tiers: how much conducting a question gets, from the model name that a client asks for.

`mini` answers with the least latency (by a learned router, where there is one), `ultra` plans with
whatever conductor is configured, and `podium` decides between the two for each question: by its
words, unless the conductor was trained to decide that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from podium.conductor.base import Conductor, Plan, Situation
from podium.conductor.fixed import FixedConductor
from podium.conductor.mini import Mini, MiniConductor
from podium.conductor.names import of_tier
from podium.conductor.router import RouterConductor
from podium.conductor.rules import RulesConductor, verdict
from podium.run import Tier
from podium.worker import Caller, Worker

UNHEEDED: Final = (
    "the dial had no effect: this question is not simple by its words, so the conductor planned "
    "and no router was asked; the tier mini routes every question"
)


def for_tier(tier: Tier, configured: Conductor, mini: Mini | None = None) -> Conductor:
    """The conductor that serves a tier, where `configured` is the one set up for this pool and
    `mini` the router that was trained for it, if one was."""
    if tier == "mini":
        return _least_latency(configured, mini)
    if tier == "podium":
        return ByQuestion(configured, mini)
    return configured


def _least_latency(configured: Conductor, mini: Mini | None) -> Conductor:
    return RouterConductor() if mini is None else MiniConductor(mini, configured)


def may_plan_again(
    tier: Tier, configured: Conductor, question: str, mini: Mini | None = None
) -> bool:
    """Whether who leads may plan again after seeing an answer. Where nobody does, the first answer
    is known to be the last one. What a learned router is not sure of, the conductor may."""
    leading = for_tier(tier, configured, mini)
    if isinstance(leading, ByQuestion):
        leading = leading.who_leads(question)
    if isinstance(leading, MiniConductor):
        leading = configured
    return not isinstance(leading, RulesConductor | RouterConductor | FixedConductor)


class ByQuestion:
    """Routes what is simple by its words, and has the rest conducted.

    A conductor that was trained to plan sees more than words do: which questions have several
    parts, and who of a pool of specialists can take one that has not. It leaves a single question
    to one worker by itself, so it is asked every time.
    """

    def __init__(self, configured: Conductor, mini: Mini | None = None) -> None:
        self._configured = configured
        self.always_conducts = bool(getattr(configured, "is_trained", False))
        self._router = _least_latency(configured, mini)
        self.name = of_tier("podium", configured.name)

    async def plan(self, situation: Situation, call: Caller) -> Plan:
        """Leave the question to the router or to the configured conductor. A dial that is not
        heeded, for the question is not simple, is a warning on the first round."""
        leading = self.who_leads(situation.question)
        plan = await leading.plan(situation, call)
        if situation.dial is None or situation.rounds or leading is self._router:
            return plan
        return replace(plan, warnings=(*plan.warnings, UNHEEDED))

    def who_leads(self, question: str) -> Conductor:
        """The router, or the configured conductor. It depends on the question alone, so every
        round of a run goes the same way."""
        routes = not self.always_conducts and verdict(question) == "simple"
        return self._router if routes else self._configured

    @property
    def worker(self) -> Worker | None:
        """The worker that plans for the configured conductor, where one does."""
        worker: Worker | None = getattr(self._configured, "worker", None)
        return worker

    @property
    def prompt_hash(self) -> str:
        """The fingerprint of the configured conductor's prompts, where it has any."""
        return str(getattr(self._configured, "prompt_hash", ""))
