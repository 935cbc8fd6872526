"""The engine: it executes workflows and never plans."""

from podium.core.retry import BreakerPolicy, RetryPolicy
from podium.core.worker import Toolbox
from podium.engine.calls import BudgetedCaller, CallPolicy
from podium.engine.execution import Execution, RunContext

__all__ = [
    "BreakerPolicy",
    "BudgetedCaller",
    "CallPolicy",
    "Execution",
    "RetryPolicy",
    "RunContext",
    "Toolbox",
]
