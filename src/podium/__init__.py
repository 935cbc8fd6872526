"""Podium: an open conductor for language models.

A small model, the conductor, reads a question and a list of workers and writes a workflow in
plain language; an engine carries it out as concurrently as the workflow allows.

    from podium import Podium

    with Podium() as podium:
        print(podium.ask("What is the capital of Japan?").answer)
"""

from podium._version import __version__
from podium.api import AsyncPodium
from podium.budget import Budget
from podium.conductor import (
    Conductor,
    FixedConductor,
    ModelConductor,
    Plan,
    RouterConductor,
    RulesConductor,
    Situation,
)
from podium.engine import BreakerPolicy, Hedge, RetryPolicy, Toolbox
from podium.errors import PodiumError
from podium.guardrails import Checked, Grounding, Guardrail, Redaction
from podium.pool import Limits, Pool, WorkerProfile
from podium.providers import Faults, FaultyWorker, ScriptedWorker
from podium.request import Delta, Image, Message, Reply, Request, Terms, Tool, ToolCall, ToolResult
from podium.run import Round, Run, StepRecord
from podium.runner import ConductorWorker, Options
from podium.store import RunStore, open_store
from podium.sync import Podium
from podium.usage import Price, Usage
from podium.worker import Caller, Worker
from podium.workflow import Step, Workflow

__all__ = [
    "AsyncPodium",
    "BreakerPolicy",
    "Budget",
    "Caller",
    "Checked",
    "Conductor",
    "ConductorWorker",
    "Delta",
    "Faults",
    "FaultyWorker",
    "FixedConductor",
    "Grounding",
    "Guardrail",
    "Hedge",
    "Image",
    "Limits",
    "Message",
    "ModelConductor",
    "Options",
    "Plan",
    "Podium",
    "PodiumError",
    "Pool",
    "Price",
    "Redaction",
    "Reply",
    "Request",
    "RetryPolicy",
    "Round",
    "RouterConductor",
    "RulesConductor",
    "Run",
    "RunStore",
    "ScriptedWorker",
    "Situation",
    "Step",
    "StepRecord",
    "Terms",
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
