"""What conductors are called, and what can be told by their names.

A run keeps the name of whoever led it: of the configured conductor, or of the one that leads a
tier, which has the configured one's in it.

    of_model("gpt-5")                    "model(gpt-5)"
    of_coordinator("12ab34cd")           "evolved(12ab34cd)"
    of_tier("podium", "rules")           "podium(rules)"
    configured_in("podium(rules)")       "rules"

Names are made here and read here, and nowhere else.
"""

from __future__ import annotations

import re
from typing import Final

from podium.core.run import Run, Tier

FIXED: Final = "fixed"
"""Also who leads a run of which the workflow was given."""

ROUTER: Final = "router"
RULES: Final = "rules"

_TIER: Final = re.compile(r"(?:podium|mini)\((.*)\)", re.DOTALL)
_MODEL: Final = re.compile(r"model\((.*)\)", re.DOTALL)
_COORDINATOR: Final = re.compile(r"evolved\(.*\)", re.DOTALL)


def model_conductor_name(worker: str) -> str:
    """The conductor that asks that worker to plan."""
    return f"model({worker})"


def evolved_conductor_name(fingerprint: str) -> str:
    """The conductor that an evolved coordinator is."""
    return f"evolved({fingerprint})"


def tier_conductor_name(tier: Tier, configured: str, *, routed: bool = False) -> str:
    """Who leads a tier, where that is the configured conductor; `routed` says that a learned router
    serves `mini`."""
    if tier == "mini":
        return f"mini({configured})" if routed else ROUTER
    return f"podium({configured})" if tier == "podium" else configured


def configured_conductor_name(name: str) -> str:
    """The name of the configured conductor, in that of one who leads a tier."""
    tier = _TIER.fullmatch(name)
    return tier[1] if tier else name


def planning_worker_name(name: str) -> str | None:
    """The worker that is asked to plan by whoever leads a tier; None where nobody is."""
    asked = _MODEL.fullmatch(configured_conductor_name(name))
    return asked[1] if asked else None


def resume_conflict(run: Run, leading: str) -> str | None:
    """Why who leads here must not go on with a run by itself; None where it may.

    What an evolved coordinator led goes on by that one, and what it did not lead goes on without
    it: it would take the rounds of others for turns of its own, and others its turns for rounds.
    All others may go on with each other's runs, and a workflow that was given leads itself.
    """
    led, leads = configured_conductor_name(run.conductor), configured_conductor_name(leading)
    coordinated = any(_COORDINATOR.fullmatch(name) for name in (led, leads))
    if led == leads or not coordinated or run.conductor == FIXED:
        return None
    return (
        f"{run.id} was led by {led}, and here {leads} leads; configure in [conductor] what led it, "
        f"or say who is to go on with it: podium runs resume {run.id} --conductor NAME, where a "
        f"coordinator is named as evolved:DIR"
    )
