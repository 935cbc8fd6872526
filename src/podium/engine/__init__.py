"""The engine: it carries a workflow out, and never plans."""

from podium.engine.calls import Calls, Switchboard
from podium.engine.execution import Assignment, Delegation, Execution, Nest, Scope
from podium.engine.retry import RetryPolicy

__all__ = [
    "Assignment",
    "Calls",
    "Delegation",
    "Execution",
    "Nest",
    "RetryPolicy",
    "Scope",
    "Switchboard",
]
