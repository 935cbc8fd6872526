"""Plans that nobody wrote: a plan that was wrong, with another worker in one place.

A policy that has settled on the wrong worker for a kind of subtask hardly draws another one, and
what is not drawn is not rewarded. So where no plan for a question was right, some of them make
room for such variations of the best (`grpo.explore`). One that earns more than the others is
learned from like any plan; one that earns no more only pushes itself away.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from podium.pool import Pool
from podium.workflow import Workflow


def variations(workflow: Workflow, pool: Pool, count: int, rng: Random) -> list[Workflow]:
    """So many different ones, or as many as there are."""
    choices = [
        (place, name)
        for place, step in enumerate(workflow.steps)
        for name in pool.names
        if name != step.worker
    ]
    return [
        Workflow(
            tuple(
                replace(step, worker=name) if number == place else step
                for number, step in enumerate(workflow.steps)
            )
        )
        for place, name in rng.sample(choices, min(count, len(choices)))
    ]
