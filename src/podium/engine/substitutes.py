"""Who takes a step over when its worker has failed, the named substitutes one after another, and
who is asked beside one that takes long."""

from __future__ import annotations

from podium.demands import Needs, before_the_end, can, final_needs, needs_of_one
from podium.engine.assignment import Assignment
from podium.engine.retry import Hedge
from podium.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.request import NO_TERMS


def substitute_for(
    name: str, tried: list[str], assignment: Assignment, *, is_final: bool
) -> str | None:
    """The next substitute of that worker that can do what the worker was asked to do; whoever is
    looked at is added to those that were `tried`."""
    pool = assignment.pool
    needs = _needs(pool[name], assignment, is_final=is_final)
    following = pool[name].fallback
    while following is not None and following not in tried:
        tried.append(following)
        if can(pool[following], needs, pool):
            return following
        following = pool[following].fallback
    return None


def hedge_for(worker: str, hedge: Hedge, assignment: Assignment, *, is_final: bool) -> str | None:
    """Whom to ask beside that worker, if somebody is there who can do what it was asked to do. A
    conductor is not asked: its run is more than a call."""
    pool = assignment.pool
    name = hedge.to or pool[worker].fallback or worker
    if name not in pool.names or pool[name].provider == CONDUCTOR_PROVIDER:
        return None
    needs = _needs(pool[worker], assignment, is_final=is_final)
    return name if can(pool[name], needs, pool) else None


def _needs(profile: WorkerProfile, assignment: Assignment, *, is_final: bool) -> Needs:
    """What a substitute of that worker must be able to do in this step."""
    if assignment.terms == NO_TERMS and not assignment.images:
        return frozenset()
    terms = assignment.terms if is_final else before_the_end(assignment.terms)
    used = profile.capabilities & needs_of_one(terms, assignment.images)
    return used | final_needs(terms)
