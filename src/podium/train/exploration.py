"""Plans that nobody wrote: a plan that was wrong, with another worker in one place. After a first
round, one step may also read all of that: a worker who did not know is asked otherwise.

A policy that has settled on the wrong worker for a kind of subtask hardly draws another one, and
what is not drawn is not rewarded. So where no plan for a question was right, some of them make
room for such variations of the best (`grpo.explore`). One that earns more than the others is
learned from like any plan; one that earns no more only pushes itself away.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from podium.core.pool import Pool
from podium.core.workflow import Workflow


def variations(
    workflow: Workflow, pool: Pool, count: int, rng: Random, *, is_later: bool = False
) -> list[Workflow]:
    """So many different ones, or as many as there are; `is_later` says that a round lies behind,
    which a step may read."""
    changes = [
        (place, replace(step, worker=name))
        for place, step in enumerate(workflow.steps)
        for name in pool.names
        if name != step.worker
    ]
    if is_later:
        changes += [
            (place, replace(step, access="all"))
            for place, step in enumerate(workflow.steps)
            if step.access != "all"
        ]
    return [
        Workflow((*workflow.steps[:place], changed, *workflow.steps[place + 1 :]))
        for place, changed in rng.sample(changes, min(count, len(changes)))
    ]
