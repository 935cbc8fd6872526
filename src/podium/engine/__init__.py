"""The engine: it carries a workflow out, and never plans."""

from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy, check_hedges
from podium.core.toolbox import Toolbox, servers_of, toolbox_excluding
from podium.engine.assignment import Assignment, Delegation, Nest, Scope
from podium.engine.calls import Calls, Switchboard
from podium.engine.execution import Execution

__all__ = [
    "Assignment",
    "BreakerPolicy",
    "Calls",
    "Delegation",
    "Execution",
    "Hedge",
    "Nest",
    "RetryPolicy",
    "Scope",
    "Switchboard",
    "Toolbox",
    "check_hedges",
    "servers_of",
    "toolbox_excluding",
]
