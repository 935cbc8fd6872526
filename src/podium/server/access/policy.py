"""The door: what the server asks before it does anything, and tells when it has. The `AllowAll`
lets everyone in; who asks for keys is the `gatekeeper`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, final

from podium.core.budget import Account, Budget
from podium.core.frozen import quick
from podium.core.run import Run, Tier
from podium.core.usage import Usage
from podium.server.api_error import ApiError
from podium.server.names import tier_of
from podium.store.keys import NO_CAP, SCOPES, Allowance, Scope


def scope_of(model: str) -> Scope:
    """The scope that asking for a model takes."""
    return "gateway" if tier_of(model) is None else "ask"


@final
@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. `key_id` is also the owner of the runs that they make; it is empty where no keys
    are asked for.

    `tiers` and `workers` are those that may be asked for by name, or named in a workflow of their
    own, None being all. `exclude` names
    workers and providers that must see nothing of theirs. `ticket` is this visit's alone, so that
    what it holds can be told from what others with the same key hold. `address` is where they ask
    from, where an endpoint needs to know.
    """

    key_id: str = ""
    name: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    tiers: frozenset[Tier] | None = None
    workers: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    per_request: Allowance = NO_CAP
    ticket: int = 0
    address: str = ""

    def may(self, scope: Scope) -> bool:
        """Whether the key has that scope; `admin` has them all."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: Scope) -> None:
        """Refuse what the key has no scope for."""
        if not self.may(scope):
            scopes = "scope" if len(self.scopes) == 1 else "scopes"
            names = ", ".join(sorted(self.scopes))
            raise ApiError(
                "forbidden",
                f"the key {self.name!r} has the {scopes} {names}, and this "
                f"takes the scope {scope}; ask for a key that has it",
            )

    def may_see(self, owner: str) -> bool:
        """Whether the runs of that owner are theirs to see: their own, or every one for `admin`."""
        return owner == self.key_id or "admin" in self.scopes

    def allows(self, model: str, provider: str = "") -> bool:
        """Whether the key allows that tier, or that worker of that provider."""
        tier = tier_of(model)
        if tier is not None:
            return self.tiers is None or tier in self.tiers
        if model in self.exclude or provider in self.exclude:
            return False
        return self.workers is None or model in self.workers

    def check_model(self, model: str, provider: str = "") -> None:
        """Refuse a tier or a worker that the key does not allow."""
        if not self.allows(model, provider):
            raise ApiError(
                "forbidden",
                f"the key {self.name!r} does not allow the model {model!r}; ask for another, "
                f"GET /v1/models lists them, or for a key that allows it",
                field="model",
            )

    def check_workflow(self, workers: Mapping[str, str]) -> None:
        """Refuse a workflow of their own over workers, by name and with their providers, that
        they may not name."""
        self.require("workflow")
        for worker, provider in workers.items():
            if not self.allows(worker, provider):
                raise ApiError(
                    "forbidden",
                    f"the key {self.name!r} does not allow the worker {worker!r}; give the step to "
                    f"another, GET /v1/models lists them, or ask for a key that allows it",
                    field="podium.workflow",
                )

    def lists(self, model: str, provider: str = "") -> bool:
        """Whether that tier, or that worker of that provider, is one to show them: they may ask
        for it, and have the scope to."""
        return self.may(scope_of(model)) and self.allows(model, provider)


class AccessPolicy(Protocol):
    """What the server asks before it does anything, and tells when it has."""

    async def admit(self, token: str | None, address: str = "") -> Principal:
        """Who that is, at that address; raises `ApiError` unauthenticated, and rate_limited after
        too many wrong keys."""
        ...

    async def sign_in(self, token: str, address: str = "") -> str | None:
        """A session for whoever has that key, to be shown in its place; None where no key is
        asked for. Raises `ApiError` as `admit` does."""
        ...

    async def begin(
        self, visitor: Principal, *, tier_or_worker: str, tokens: int, scope: Scope | None = None
    ) -> None:
        """A request of about so many tokens begins; raises `ApiError` forbidden, out_of_budget or
        rate_limited. `tier_or_worker` is the model's name as the client gave it; `scope` is what
        the request takes, `ask` for a tier and `gateway` for a worker unless said otherwise.
        Every request that has begun must be settled, however it ends."""
        ...

    def budget_for(self, visitor: Principal, budget: Budget) -> Budget:
        """That budget, cut down to what the visitor's request, which has begun, may use."""
        ...

    def account_of(self, visitor: Principal) -> Account | None:
        """What the calls of the visitor's request, which has begun, draw on together with all
        others of the same key; None where nothing is capped."""
        ...

    def performs(self, visitor: Principal, run: Run) -> None:
        """The visitor's request, which has begun, performs that run, which is kept: should this
        process end, another goes on with the run and charges it."""
        ...

    async def settle(
        self,
        visitor: Principal,
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
        cut off with its process; None where nothing is capped. Raises `ApiError` unauthenticated
        where the key that owns the run is good no longer."""
        ...

    async def close(self) -> None:
        """Write what is not written yet."""
        ...


class AllowAll:
    """Lets everyone in, for everything: a server without keys."""

    async def admit(self, token: str | None, address: str = "") -> Principal:
        """Nobody in particular. A token that clients send by habit is not looked at."""
        return Principal()

    async def sign_in(self, token: str, address: str = "") -> str | None:
        """There is no need to."""
        return None

    async def begin(
        self, visitor: Principal, *, tier_or_worker: str, tokens: int, scope: Scope | None = None
    ) -> None:
        """Go ahead."""

    def budget_for(self, visitor: Principal, budget: Budget) -> Budget:
        """That budget."""
        return budget

    def account_of(self, visitor: Principal) -> Account | None:
        """Nobody's."""
        return None

    def performs(self, visitor: Principal, run: Run) -> None:
        """Nobody need know."""

    async def settle(
        self,
        visitor: Principal,
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
