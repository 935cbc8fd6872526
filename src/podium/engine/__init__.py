"""The engine: it executes workflows and never plans."""

from podium.core.retry import BreakerPolicy, RetryPolicy
from podium.core.worker import Toolbox
from podium.engine.calls import CallPolicy, Calls
from podium.engine.execution import Execution, RunContext

__all__ = [
    "BreakerPolicy",
    "CallPolicy",
    "Calls",
    "Execution",
    "RetryPolicy",
    "RunContext",
    "Toolbox",
]
