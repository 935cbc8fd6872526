"""Everyday questions: what people ask an assistant that has nothing to do with études.

They have no answer that could be graded, but it is clear what a sensible plan for one of them
looks like: the question goes, unaltered, to one worker who can take it.
"""

from __future__ import annotations

from functools import cache

from podium.core.workflow import Workflow
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.pools import GENERALIST
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.splits import Split
from podium_lab.etudes.values import read_table
from podium_lab.etudes.vocabulary import UNSURE


@cache
def everyday(split: Split) -> tuple[str, ...]:
    """The questions of that split; none of them is in the other."""
    return tuple(read_table("everyday.toml")[split])


def sensible(workflow: Workflow, question: str) -> bool:
    """Whether the plan hands the question, as it is, to the generalist, or to a specialist who
    knows the answer; workers are named by their roles, as `pool_profiles` names them."""
    if len(workflow) != 1 or workflow.steps[0].subtask != question:
        return False
    worker = workflow.steps[0].worker
    if worker in FAMILIES:
        return oracle_reply(worker, question) != UNSURE
    return worker == GENERALIST
