"""The router: one worker gets the question as it is, and nobody is asked to plan.

By default the worker is the cheapest of those that can take the question; `choose` puts any
other judgement in its place. One that has learned to choose is `podium.conductor.mini`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from podium.budget import estimated_input_tokens
from podium.conductor.base import Plan, Situation
from podium.conductor.names import ROUTER
from podium.demands import Needs, needs_of_one
from podium.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.request import Message, Request, Text, pictures_in
from podium.worker import Caller
from podium.workflow import Step, Workflow

Choose = Callable[[Situation], str]
"""Names the worker that answers."""

ROOM_FOR_AN_ANSWER: Final = 1024
"""Tokens that must be left in a worker's window after reading the question."""


class RouterConductor:
    """Hands the unaltered question to one worker, without a planning call."""

    def __init__(self, choose: Choose | None = None, *, name: str = ROUTER) -> None:
        self._choose = choose or cheapest_capable
        self.name = name

    async def plan(self, situation: Situation, call: Caller) -> Plan:
        """One step; once there is an answer, acceptance."""
        if situation.answer is not None:
            return Plan(None)
        worker = situation.pool[self._choose(situation)]
        return Plan(Workflow((Step(worker.name, situation.question),)))


def cheapest_capable(situation: Situation) -> str:
    """The name of the cheapest worker that can take the question."""
    return Pool(able_to_take(situation)).cheapest.name


def able_to_take(situation: Situation) -> tuple[WorkerProfile, ...]:
    """The workers that can take the question, by themselves: without their fallbacks.

    A worker can take it when the conversation and the question fit its window with some room
    for an answer, when it can do what is demanded of the answer, and when it can see, should the
    question or the conversation hold an image. A worker that is a conductor itself would plan, so
    it is passed over. When nobody qualifies, those who can do what is demanded, or else all, are as
    good a choice as any: the provider will say what is wrong.
    """
    asked = Message("user", (*situation.images, Text(situation.question)))
    request = Request((*situation.history, asked), tools=situation.terms.tools)
    pictures = pictures_in(request.messages)
    demanded = needs_of_one(situation.terms, situation.images)
    able = [worker for worker in situation.pool if _can_do(worker, demanded)]
    wanted = needs_of_one(situation.terms, pictures)
    capable = [worker for worker in able if _can_do(worker, wanted) and _fits(worker, request)]
    return tuple(replace(worker, fallback=None) for worker in capable or able or situation.pool)


def _can_do(worker: WorkerProfile, needs: Needs) -> bool:
    return worker.provider != CONDUCTOR_PROVIDER and needs <= worker.capabilities


def _fits(worker: WorkerProfile, request: Request) -> bool:
    window = worker.limits.context_window
    return window is None or estimated_input_tokens(request) + ROOM_FOR_AN_ANSWER <= window
