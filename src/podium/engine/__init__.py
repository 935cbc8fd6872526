"""The engine: it executes workflows and never plans."""

from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy, check_hedges
from podium.core.worker import Toolbox
from podium.engine.calls import CallPolicy, Calls
from podium.engine.execution import Execution, RunContext

__all__ = [
    "BreakerPolicy",
    "CallPolicy",
    "Calls",
    "Execution",
    "Hedge",
    "RetryPolicy",
    "RunContext",
    "Toolbox",
    "check_hedges",
]
