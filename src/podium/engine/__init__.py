"""The engine: it carries a workflow out, and never plans."""

from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy, check_hedges
from podium.core.toolbox import Toolbox, servers_of, toolbox_excluding
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
    "servers_of",
    "toolbox_excluding",
]
