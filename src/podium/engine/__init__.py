"""The engine: it executes workflows and never plans."""

from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy, check_hedges
from podium.core.worker import Toolbox
from podium.engine.assignment import Assignment, Delegation, Nest, Scope
from podium.engine.calls import CallPolicy, Calls
from podium.engine.execution import Execution

__all__ = [
    "Assignment",
    "BreakerPolicy",
    "CallPolicy",
    "Calls",
    "Delegation",
    "Execution",
    "Hedge",
    "Nest",
    "RetryPolicy",
    "Scope",
    "Toolbox",
    "check_hedges",
]
