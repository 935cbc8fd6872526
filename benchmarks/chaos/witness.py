"""Somebody who stands beside a worker and notes what each call came to, for the run it was for.

It sees what the engine sees and nothing of what the engine makes of it, so that what runs tell of
their usage can be checked against it. Which run a call is for it knows by the context that the
call is made in, which every task of a run inherits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Final

from benchmarks.chaos.checks import Billed
from podium.core.errors import WorkerError
from podium.core.request import Delta, Reply, Request
from podium.core.usage import NO_USAGE, UNKNOWN_USAGE, Usage, believable
from podium.core.worker import Worker

CALLS: Final[ContextVar[list[Billed]]] = ContextVar("calls")
"""Where the calls of the run in whose context we are get noted."""


class Witness:
    """The worker, with a note of every call."""

    def __init__(self, worker: Worker) -> None:
        self.profile = worker.profile
        self._worker = worker

    async def reply(self, request: Request) -> Reply:
        """The worker's reply."""
        try:
            reply = await self._worker.reply(request)
        except BaseException as error:
            self._note(_hidden_by(error))
            raise
        self._note(reply.usage)
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """The worker's stream."""
        noted = False
        usage = UNKNOWN_USAGE
        try:
            async with aclosing(self._worker.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        self._note(piece.usage)
                        noted = True
                    yield piece
        except BaseException as error:
            usage = _hidden_by(error)
            raise
        finally:
            if not noted:
                self._note(usage)

    def _note(self, said: Usage) -> None:
        usage = said if said is NO_USAGE else believable(said)
        price = self.profile.price
        cost = 0.0 if usage is NO_USAGE else price.cost(usage) if price else None
        CALLS.get().append(Billed(self.profile.name, usage, cost))


def _hidden_by(error: BaseException) -> Usage:
    """What is known of the usage of a call that failed: it was none, or it is unknown."""
    refused = isinstance(error, WorkerError) and not error.billed
    return NO_USAGE if refused else UNKNOWN_USAGE
