"""The door: what the server asks before it does anything, and tells when it has. The `OpenDoor`
lets everyone in; who asks for keys is the `gatekeeper`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from podium.budget import Account, Budget
from podium.run import Run
from podium.server.access.visitor import Visitor
from podium.store.keys import Scope
from podium.usage import Usage


class Door(Protocol):
    """What the server asks before it does anything, and tells when it has."""

    async def admit(self, token: str | None, address: str = "") -> Visitor:
        """Who that is, at that address; raises `Refusal` unauthenticated, and rate_limited after
        too many wrong keys."""
        ...

    async def sign_in(self, token: str, address: str = "") -> str | None:
        """A session for whoever has that key, to be shown in its place; None where no key is
        asked for. Raises `Refusal` as `admit` does."""
        ...

    async def begin(
        self, visitor: Visitor, *, tier_or_worker: str, tokens: int, scope: Scope | None = None
    ) -> None:
        """A request of about so many tokens begins; raises `Refusal` forbidden, out_of_budget or
        rate_limited. `tier_or_worker` is the model's name as the client gave it; `scope` is what
        the request takes, `ask` for a tier and `gateway` for a worker unless said otherwise.
        Every request that has begun must be settled, however it ends."""
        ...

    def budget_for(self, visitor: Visitor, budget: Budget) -> Budget:
        """That budget, cut down to what the visitor's request, which has begun, may use."""
        ...

    def account_of(self, visitor: Visitor) -> Account | None:
        """What the calls of the visitor's request, which has begun, draw on together with all
        others of the same key; None where nothing is capped."""
        ...

    def performs(self, visitor: Visitor, run: Run) -> None:
        """The visitor's request, which has begun, performs that run, which is kept: should this
        process end, another goes on with the run and charges it."""
        ...

    async def settle(
        self,
        visitor: Visitor,
        *,
        model: str,
        usage: Usage,
        orchestration: Usage,
        cost_usd: float | None,
        run: Run | None = None,
    ) -> None:
        """The request is over, and this is what it used: `NO_USAGE` and 0.0 where it came to
        nothing. What is unknown is charged as it was claimed. `run` is the run that it began or
        went on with, as that ended: what a run used is charged once, whoever tells it."""
        ...

    def account_for(self, run: Run) -> AbstractAsyncContextManager[Account | None]:
        """What the calls of a run draw on that goes on without a request, for the one before was
        cut off with its process; None where nothing is capped. Raises `Refusal` unauthenticated
        where the key that owns the run is good no longer."""
        ...

    async def close(self) -> None:
        """Write what is not written yet."""
        ...


class OpenDoor:
    """Lets everyone in, for everything: a server without keys."""

    async def admit(self, token: str | None, address: str = "") -> Visitor:
        """Nobody in particular. A token that clients send by habit is not looked at."""
        return Visitor()

    async def sign_in(self, token: str, address: str = "") -> str | None:
        """There is no need to."""
        return None

    async def begin(
        self, visitor: Visitor, *, tier_or_worker: str, tokens: int, scope: Scope | None = None
    ) -> None:
        """Go ahead."""

    def budget_for(self, visitor: Visitor, budget: Budget) -> Budget:
        """That budget."""
        return budget

    def account_of(self, visitor: Visitor) -> Account | None:
        """Nobody's."""
        return None

    def performs(self, visitor: Visitor, run: Run) -> None:
        """Nobody need know."""

    async def settle(
        self,
        visitor: Visitor,
        *,
        model: str,
        usage: Usage,
        orchestration: Usage,
        cost_usd: float | None,
        run: Run | None = None,
    ) -> None:
        """Nobody is charged; what a run used stands on the run."""

    @asynccontextmanager
    async def account_for(self, run: Run) -> AsyncIterator[Account | None]:
        """Nobody's."""
        yield None

    async def close(self) -> None:
        """Nothing is held."""
