"""A worker called by its own name: no plan and no run, but the same gates, retries, deadlines and
budget as in any run."""

from __future__ import annotations

import time

from podium.budget import Budget, Ledger
from podium.engine import Calls, Switchboard
from podium.errors import WorkerError
from podium.request import Delta, Image, Request
from podium.run import new_run_id, total_cost, total_usage
from podium.server.access import Door, Visitor
from podium.server.answering import Answered, Bill, refusals, tightened
from podium.server.conversation import inside
from podium.server.dialects.base import Answer, Asked
from podium.server.refusal import Refusal, invalid
from podium.server.watching import Teller
from podium.worker import Worker


class Gateway:
    """Passes requests on to workers."""

    def __init__(self, board: Switchboard, door: Door, budget: Budget) -> None:
        self._board = board
        self._door = door
        self._budget = budget

    async def answer(
        self,
        asked: Asked,
        visitor: Visitor,
        worker: Worker,
        bill: Bill,
        teller: Teller | None = None,
    ) -> Answered:
        """The worker's reply; raises `Refusal`. `bill` is filled in however it ends."""
        _check(asked, worker)
        request = _request(asked)
        budget = self._door.budget_for(visitor, tightened(self._budget, asked.wished.budget))
        board = self._board
        board.bind()
        id_ = new_run_id()
        calls = Calls(board, Ledger(budget), board.clock(), visitor.exclude | asked.wished.exclude)
        listener = _Listener(teller, request) if teller is not None else None
        if teller is not None:
            teller.opened(id_, kept=False)
        try:
            with refusals():
                budget.check((worker.profile,))
                reply = await calls.make(
                    worker,
                    request,
                    listener.delta if listener else None,
                    listener.retried if listener else None,
                )
        finally:
            bill.usage = total_usage(iter(calls.attempts))
            bill.cost_usd = total_cost(iter(calls.attempts))
        return Answered(
            answer=Answer(
                id=id_,
                model=asked.model,
                created=int(time.time()),
                text=reply.text,
                thinking=reply.thinking,
                tool_calls=reply.tool_calls,
                finish=reply.finish,
                usage=bill.usage,
            )
        )


class _Listener:
    """Tells what a worker streams; after a retry it begins anew."""

    def __init__(self, teller: Teller, request: Request) -> None:
        self._teller = teller
        self._request = request

    def delta(self, delta: Delta) -> None:
        if delta.kind == "thinking":
            self._teller.thinking(delta.text)
        else:
            self._teller.text(delta.text)

    def retried(self, worker: str, error: WorkerError, wait: float) -> Request:
        self._teller.anew()
        return self._request


def _request(asked: Asked) -> Request:
    terms = asked.terms
    return Request(
        messages=inside(asked.messages),
        max_tokens=terms.max_tokens,
        temperature=terms.temperature,
        top_p=terms.top_p,
        seed=terms.seed,
        stop=terms.stop,
        tools=terms.tools,
        tool_choice=terms.tool_choice,
        schema=terms.schema,
        effort=terms.effort,
    )


def _check(asked: Asked, worker: Worker) -> None:
    """Refuse what one worker cannot do, rather than let it be lost on the way."""
    profile, wished = worker.profile, asked.wished
    for name in ("workflow", "max_steps", "rounds"):
        if getattr(wished, name) is not None:
            raise invalid(
                f"podium.{name}",
                f"podium.{name} is for runs, and {profile.name!r} is a single worker; drop it, or "
                f"ask for podium-ultra",
            )
    if asked.previous is not None:
        raise invalid(
            "previous_response_id",
            f"{profile.name!r} is a single worker, whose replies are not kept; send the "
            f"conversation, or ask for a tier",
        )
    for name in (profile.name, profile.provider):
        if name and name in wished.exclude:
            raise Refusal("invalid", f"{name!r} is excluded and asked for", field="podium.exclude")
    capabilities = profile.capabilities
    if not capabilities:  # nobody said what it can do; its provider will
        return
    if asked.terms.tools and "tools" not in capabilities:
        raise invalid("tools", f"{profile.name!r} cannot call tools; ask another")
    pictured = any(isinstance(part, Image) for turn in asked.messages for part in turn.parts)
    if pictured and "vision" not in capabilities:
        raise invalid("messages", f"{profile.name!r} cannot see pictures; ask another")
