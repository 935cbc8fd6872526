"""Strategies: the ways to answer that an evaluation compares.

registry            strategies by name
baselines           without a plan: single workers, votes, Mixture-of-Agents, self-reflection
conducting          with a plan: a conductor's, the ideal one, a random one
learned, routers    fitted strategies, their files and their models
fit                 fitting them
cross_validation    evaluating them on tasks that they did not learn from
"""

from __future__ import annotations

from podium.evals.strategies.registry import (
    NEEDS_CONDUCTOR,
    STRATEGIES,
    check_strategy,
    expand_candidates,
    make_strategy,
    strategy_checksums,
    strategy_note,
)

__all__ = [
    "NEEDS_CONDUCTOR",
    "STRATEGIES",
    "check_strategy",
    "expand_candidates",
    "make_strategy",
    "strategy_checksums",
    "strategy_note",
]
