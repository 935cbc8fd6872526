"""Conductors: they read a situation and write a plan, and never carry one out."""

from __future__ import annotations

from typing import Final

from podium.conductor.base import Conductor, Plan, Situation
from podium.conductor.fixed import FixedConductor, GivenConductor
from podium.conductor.model import ModelConductor
from podium.conductor.prompt import Form, Length
from podium.conductor.router import RouterConductor
from podium.conductor.rules import RulesConductor, Verdict, verdict
from podium.conductor.tiers import for_tier, may_plan_again
from podium.errors import ConfigError
from podium.worker import Worker
from podium.workflow import Workflow

KINDS: Final = ("model", "rules", "fixed", "router")
"""The kinds of conductor that a configuration can name."""


def build(
    kind: str,
    *,
    worker: Worker | None = None,
    workflow: Workflow | None = None,
    prompt: Length = "full",
    few_shot: bool = True,
    temperature: float | None = None,
    fallback: str | None = None,
) -> Conductor:
    """The conductor of that kind.

    `model` needs the `worker` that plans and takes `prompt`, `few_shot`, `temperature` and
    `fallback`; `fixed` needs its `workflow`; `rules` and `router` need nothing.
    """
    if kind == "model":
        if worker is None:
            raise ConfigError(
                "conductor.kind is 'model', but no model is named to conduct; set conductor.model"
            )
        return ModelConductor(
            worker, prompt=prompt, few_shot=few_shot, temperature=temperature, fallback=fallback
        )
    if kind == "fixed":
        if workflow is None:
            raise ConfigError(
                "conductor.kind is 'fixed', but there is no workflow; set conductor.workflow"
            )
        return FixedConductor(workflow)
    if kind == "rules":
        return RulesConductor()
    if kind == "router":
        return RouterConductor()
    raise ConfigError(f"conductor.kind is {kind!r}; expected one of {', '.join(KINDS)}")


__all__ = [
    "KINDS",
    "Conductor",
    "FixedConductor",
    "Form",
    "GivenConductor",
    "Length",
    "ModelConductor",
    "Plan",
    "RouterConductor",
    "RulesConductor",
    "Situation",
    "Verdict",
    "build",
    "for_tier",
    "may_plan_again",
    "verdict",
]
