"""Names of conductors, as runs keep them, and what can be read from them.

model_conductor_name("gpt-5")                    "model(gpt-5)"
evolved_conductor_name("12ab34cd")               "evolved(12ab34cd)"
tier_conductor_name("podium", "rules")           "podium(rules)"
configured_conductor_name("podium(rules)")       "rules"
"""

from __future__ import annotations

import re
from typing import Final

from podium.core.run import Run, Tier

FIXED: Final = "fixed"
"""Also the conductor of a run whose workflow came with the question."""

ROUTER: Final = "router"
RULES: Final = "rules"

_TIER: Final = re.compile(r"(?:podium|mini)\((.*)\)", re.DOTALL)
_MODEL: Final = re.compile(r"model\((.*)\)", re.DOTALL)
_EVOLVED: Final = re.compile(r"evolved\(.*\)", re.DOTALL)


def model_conductor_name(worker: str) -> str:
    """Name the conductor that asks that worker to plan."""
    return f"model({worker})"


def evolved_conductor_name(fingerprint: str) -> str:
    """Name the conductor of an evolved coordinator."""
    return f"evolved({fingerprint})"


def tier_conductor_name(tier: Tier, configured: str, *, routed: bool = False) -> str:
    """Name the conductor of a tier; `routed` says that a learned router serves `mini`."""
    if tier == "mini":
        return f"mini({configured})" if routed else ROUTER
    return f"podium({configured})" if tier == "podium" else configured


def configured_conductor_name(name: str) -> str:
    """Return the configured conductor's name from that of a tier's conductor."""
    tier = _TIER.fullmatch(name)
    return tier[1] if tier else name


def planning_worker_name(name: str) -> str | None:
    """Return the worker that plans for the conductor of that name, if one does."""
    model = _MODEL.fullmatch(configured_conductor_name(name))
    return model[1] if model else None


def resume_conflict(run: Run, conductor: str) -> str | None:
    """Return why the conductor here must not resume the run; None where it may.

    An evolved coordinator and other conductors cannot resume each other's runs: one's turns are
    not the other's rounds. All others may, and a workflow that came with the question leads itself.
    """
    previous, current = (
        configured_conductor_name(run.conductor),
        configured_conductor_name(conductor),
    )
    evolved = any(_EVOLVED.fullmatch(name) for name in (previous, current))
    if previous == current or not evolved or run.conductor == FIXED:
        return None
    return (
        f"{run.id} was led by {previous}, and here {current} leads; configure in [conductor] what "
        f"led it, or name a conductor: podium runs resume {run.id} --conductor NAME, where a "
        f"coordinator is named as evolved:DIR"
    )
