"""Strategies: the ways to answer that an evaluation measures.

    by_name         which there are, what each needs, and what makes it
    baselines       without a plan: one worker alone or several times, votes, mixtures, reflection
    conducting      with a plan: a conductor's, the ideal one, one drawn at random
    transcript      the calls of a strategy that makes them itself, kept as a run
    named           functions of somebody's own
    learned         those that were fitted, written down and read back; `routers/` are their inside
    fit, folds      teaching them, and measuring them on tasks that they did not learn from

What a strategy is, and what it may use, is `podium.evals.stage`; measuring strategies over cases
is `podium.evals.evaluation`. `fit` and `folds` measure too, so nothing else here imports them.
"""

from __future__ import annotations

from podium.evals.strategies.by_name import (
    PLANNED,
    STRATEGIES,
    candidates,
    check_strategy,
    made_of,
    note_on,
    strategy_named,
)

__all__ = [
    "PLANNED",
    "STRATEGIES",
    "candidates",
    "check_strategy",
    "made_of",
    "note_on",
    "strategy_named",
]
