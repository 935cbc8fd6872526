"""Podium: an open conductor for language models.

A small model, the conductor, reads a question and a list of workers and writes a workflow in
plain language; an engine carries it out as concurrently as the workflow allows.

    from podium import Podium

    with Podium() as podium:
        print(podium.ask("What is the capital of Japan?").answer)
"""

import importlib
from typing import TYPE_CHECKING, Any

from podium._version import __version__

if TYPE_CHECKING:  # imported on first use: `podium --version` needs none of them
    from podium.client.client import AsyncPodium
    from podium.client.sync import Podium
    from podium.conductors import (
        Conductor,
        FixedConductor,
        ModelConductor,
        Plan,
        PlanningContext,
        RouterConductor,
        RulesConductor,
    )
    from podium.core.budget import Budget
    from podium.core.errors import PodiumError
    from podium.core.pool import Limits, Pool, WorkerProfile
    from podium.core.request import (
        Delta,
        Image,
        Message,
        Price,
        Reply,
        Request,
        ResponseOptions,
        Tool,
        ToolCall,
        ToolResult,
        Usage,
        assistant,
        system,
        user,
    )
    from podium.core.run import Round, Run, StepRecord
    from podium.core.task import Task, grader
    from podium.core.worker import Caller, Worker
    from podium.core.workflow import Step, Workflow
    from podium.engine import BreakerPolicy, RetryPolicy, Toolbox
    from podium.engine.guardrails import Grounding, Guardrail, GuardrailInput, Redaction
    from podium.engine.runner import ConductorWorker, Options
    from podium.store import RunStore, open_store
    from podium.workers import FunctionWorker, ScriptedWorker, worker

_NAMES = {
    "podium.client.client": "AsyncPodium",
    "podium.client.sync": "Podium",
    "podium.conductors": (
        "Conductor FixedConductor ModelConductor Plan PlanningContext RouterConductor "
        "RulesConductor"
    ),
    "podium.core.budget": "Budget",
    "podium.core.errors": "PodiumError",
    "podium.core.pool": "Limits Pool WorkerProfile",
    "podium.core.request": (
        "Delta Image Message Price Reply Request ResponseOptions Tool ToolCall ToolResult Usage "
        "assistant system user"
    ),
    "podium.core.run": "Round Run StepRecord",
    "podium.core.task": "Task grader",
    "podium.core.worker": "Caller Worker",
    "podium.core.workflow": "Step Workflow",
    "podium.engine": "BreakerPolicy RetryPolicy Toolbox",
    "podium.engine.guardrails": "Grounding Guardrail GuardrailInput Redaction",
    "podium.engine.runner": "ConductorWorker Options",
    "podium.store": "RunStore open_store",
    "podium.workers": "FunctionWorker ScriptedWorker worker",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


__all__ = [
    "AsyncPodium",
    "BreakerPolicy",
    "Budget",
    "Caller",
    "Conductor",
    "ConductorWorker",
    "Delta",
    "FixedConductor",
    "FunctionWorker",
    "Grounding",
    "Guardrail",
    "GuardrailInput",
    "Image",
    "Limits",
    "Message",
    "ModelConductor",
    "Options",
    "Plan",
    "PlanningContext",
    "Podium",
    "PodiumError",
    "Pool",
    "Price",
    "Redaction",
    "Reply",
    "Request",
    "ResponseOptions",
    "RetryPolicy",
    "Round",
    "RouterConductor",
    "RulesConductor",
    "Run",
    "RunStore",
    "ScriptedWorker",
    "Step",
    "StepRecord",
    "Task",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Toolbox",
    "Usage",
    "Worker",
    "WorkerProfile",
    "Workflow",
    "__version__",
    "assistant",
    "grader",
    "open_store",
    "system",
    "user",
    "worker",
]
