"""Conductors: they read a planning context and write a plan, and never execute one."""

from __future__ import annotations

from typing import Final

from podium.conductors.builtin import (
    FixedConductor,
    ModelConductor,
    RouterConductor,
    RulesConductor,
    classify_question,
)
from podium.conductors.prompt import PlanFormat, PromptStyle
from podium.conductors.tiers import (
    AdaptiveConductor,
    LearnedRouterConductor,
    LoadRouter,
    TierRouter,
    can_replan,
    conductor_for_tier,
)
from podium.core.conductor import Conductor, Plan, PlanningContext

KINDS: Final = ("model", "rules", "fixed", "router", "evolved")


__all__ = [
    "KINDS",
    "AdaptiveConductor",
    "Conductor",
    "FixedConductor",
    "LearnedRouterConductor",
    "LoadRouter",
    "ModelConductor",
    "Plan",
    "PlanFormat",
    "PlanningContext",
    "PromptStyle",
    "RouterConductor",
    "RulesConductor",
    "TierRouter",
    "can_replan",
    "classify_question",
    "conductor_for_tier",
]
