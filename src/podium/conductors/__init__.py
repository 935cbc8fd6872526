"""Conductors: they read a planning context and write a plan, and never execute one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from podium._util.lab import lab_extra
from podium.conductors.builtin import (
    Complexity,
    FixedConductor,
    ModelConductor,
    RequestWorkflowConductor,
    RouterConductor,
    RulesConductor,
    classify_question,
)
from podium.conductors.prompt import Form, Length
from podium.conductors.tiers import (
    AdaptiveConductor,
    LearnedRouterConductor,
    LoadRouter,
    TierRouter,
    can_replan,
    conductor_for_tier,
)
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError
from podium.core.worker import Worker
from podium.core.workflow import Workflow

if TYPE_CHECKING:  # needs numpy, of the extra `router`
    from podium_lab.evolution.coordinator import Coordinator, Reader

KINDS: Final = ("model", "rules", "fixed", "router", "evolved")
"""The values of `conductor.kind`."""


def build(
    kind: str,
    *,
    worker: Worker | None = None,
    workflow: Workflow | None = None,
    prompt: Length = "full",
    few_shot: bool = True,
    temperature: float | None = None,
    fallback: str | None = None,
    overlap: bool = True,
    speculate: bool = False,
    coordinator: Coordinator | None = None,
    reader: Reader | None = None,
    notice: str = "",
) -> Conductor:
    """Build the conductor of that kind; `ConfigError` if it lacks what it requires.

    `model` requires `worker`, takes `prompt`, `few_shot`, `temperature`, `overlap`, `speculate`,
    and `fallback`, the worker that answers alone where there is no plan. `fixed` requires
    `workflow`. `evolved` requires `coordinator` and `reader`; `notice` is a warning for every
    run.
    """
    if kind == "model":
        if worker is None:
            raise ConfigError(
                "conductor.kind is 'model', but no model is named to conduct; set conductor.model"
            )
        return ModelConductor(
            worker,
            prompt=prompt,
            few_shot=few_shot,
            temperature=temperature,
            fallback=fallback,
            overlap=overlap,
            speculate=speculate,
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
    if kind == "evolved":
        if coordinator is None or reader is None:
            raise ConfigError(
                "conductor.kind is 'evolved', but no coordinator is named; set "
                "conductor.coordinator to the directory that `podium lab evolve` wrote"
            )
        with lab_extra():
            from podium_lab.evolution.coordinator import EvolvedConductor

        return EvolvedConductor(coordinator, reader, notice=notice)
    raise ConfigError(f"conductor.kind is {kind!r}; expected one of {', '.join(KINDS)}")


__all__ = [
    "KINDS",
    "AdaptiveConductor",
    "Complexity",
    "Conductor",
    "FixedConductor",
    "Form",
    "LearnedRouterConductor",
    "Length",
    "LoadRouter",
    "ModelConductor",
    "Plan",
    "PlanningContext",
    "RequestWorkflowConductor",
    "RouterConductor",
    "RulesConductor",
    "TierRouter",
    "build",
    "can_replan",
    "classify_question",
    "conductor_for_tier",
]
