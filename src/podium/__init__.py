"""Podium: an open conductor for language models.

A small model, the conductor, reads a question and a list of workers and writes a workflow in
plain language; an engine carries it out as concurrently as the workflow allows.

    from podium import Podium

    with Podium() as podium:
        print(podium.ask("What is the capital of Japan?").answer)
"""

from podium._version import __version__
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
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
)
from podium.core.run import Round, Run, StepRecord
from podium.core.usage import Price, Usage
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow
from podium.engine import BreakerPolicy, Hedge, RetryPolicy, Toolbox
from podium.engine.guardrails import Grounding, Guardrail, GuardrailInput, Redaction
from podium.engine.runner import ConductorWorker, Options
from podium.store import RunStore, open_store
from podium.workers import Faults, FaultyWorker, ScriptedWorker

__all__ = [
    "AsyncPodium",
    "BreakerPolicy",
    "Budget",
    "Caller",
    "Conductor",
    "ConductorWorker",
    "Delta",
    "Faults",
    "FaultyWorker",
    "FixedConductor",
    "Grounding",
    "Guardrail",
    "GuardrailInput",
    "Hedge",
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
    "Tool",
    "ToolCall",
    "ToolResult",
    "Toolbox",
    "Usage",
    "Worker",
    "WorkerProfile",
    "Workflow",
    "__version__",
    "open_store",
]
