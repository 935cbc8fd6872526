"""The interface between the server and access control.

    principal = await access.authenticate(token)                  # 401, 429
    principal = await access.reserve(principal, model="podium", tokens=900)  # 403, 402, 429
    ...                                                           # the run, within principal.quota
    await access.settle(principal, model="podium", cost=cost)

`AccessPolicy` serves every request; its subclass `KeyAuthenticator` requires API keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from podium.core.budget import Budget, SharedBudget
from podium.core.request import NO_USAGE, Usage, subtract
from podium.core.run import Run, Tier
from podium.server.api_error import ApiError
from podium.server.model_catalog import parse_tier
from podium.store.keys import SCOPES, Rules, Scope


def scope_of(model: str) -> Scope:
    """Return the scope that a request for the model requires."""
    return "gateway" if parse_tier(model) is None else "ask"


class RequestQuota:
    """The limits of one request. This base class has none.

    `shared_budget` serves all requests of the same key; None where nothing is capped.
    """

    __slots__ = ()

    @property
    def shared_budget(self) -> SharedBudget | None:
        """The budget that each call of the request reserves from."""
        return None

    def narrow(self, budget: Budget) -> Budget:
        """Lower the budget to what the request may use."""
        return budget

    def attach_run(self, run: Run) -> None:
        """Charge the request as this stored run, which another process may resume."""


UNLIMITED: Final = RequestQuota()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller of a request.

    `key_id` also owns the runs of the request; it is empty where no keys are required. `tiers` and
    `workers` may be requested by name or named in the caller's own workflow; None allows all.
    Workers and providers in `exclude` receive nothing of the request, nor do workers in `disabled`,
    which an administrator switched off for all keys.
    """

    key_id: str = ""
    name: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    tiers: frozenset[Tier] | None = None
    workers: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    quota: RequestQuota = UNLIMITED
    address: str = ""

    def has_scope(self, scope: Scope) -> bool:
        """True if the key has the scope; `admin` includes every scope."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise `ApiError` forbidden if the key lacks the scope."""
        if not self.has_scope(scope):
            scopes = "scope" if len(self.scopes) == 1 else "scopes"
            names = ", ".join(sorted(self.scopes))
            raise ApiError(
                "forbidden",
                f"scope {scope!r} required: key {self.name!r} has the {scopes} {names}; "
                f"use a key that has it",
            )

    def can_see(self, owner: str) -> bool:
        """True if runs of the owner are visible: the caller's own, or all for `admin`."""
        return owner == self.key_id or "admin" in self.scopes

    def can_use(self, model: str, provider: str = "") -> bool:
        """True if the key allows the tier, or the worker of that provider."""
        tier = parse_tier(model)
        if tier is not None:
            return self.tiers is None or tier in self.tiers
        if model in self.disabled or model in self.exclude or provider in self.exclude:
            return False
        return self.workers is None or model in self.workers

    def check_model(self, model: str, provider: str = "", field: str = "model") -> None:
        """Raise `ApiError` forbidden if the key does not allow the tier or worker."""
        self.check_enabled(model)
        if not self.can_use(model, provider):
            raise ApiError(
                "forbidden",
                f"key {self.name!r} does not allow the model {model!r}; choose one of "
                f"GET /v1/models, or use another key",
                field=field,
            )

    def check_enabled(self, worker: str) -> None:
        """Raise `ApiError` forbidden if the worker is disabled."""
        if worker in self.disabled:
            message = f"worker {worker!r} is disabled; choose another model of GET /v1/models"
            raise ApiError("forbidden", message, field="model")

    def check_workflow(self, workers: Mapping[str, str]) -> None:
        """Check the workers (name to provider) of the caller's own workflow."""
        self.require("workflow")
        for worker, provider in workers.items():
            self.check_model(worker, provider, field="podium.workflow")

    def check_grant(self, rules: Rules) -> None:
        """Raise `ApiError` forbidden if the rules of another key allow more than this key has."""
        for scope in sorted(rules.scopes):
            self.require(scope)
        for field in ("tiers", "workers"):
            own, granted = getattr(self, field), getattr(rules, field)
            if own is not None and (granted is None or not granted <= own):
                raise self._cannot_grant(field, f"expected some of {', '.join(sorted(own))}")
        if not self.exclude <= rules.exclude:
            raise self._cannot_grant("exclude", f"expected {', '.join(sorted(self.exclude))}")

    def _cannot_grant(self, field: str, expected: str) -> ApiError:
        message = f"{field}: key {self.name!r} cannot allow more than it has; {expected}"
        return ApiError("forbidden", message, field=field)

    def can_list(self, model: str, provider: str = "") -> bool:
        """True if the model belongs in the caller's list of models."""
        return self.has_scope(scope_of(model)) and self.can_use(model, provider)


@dataclass(slots=True)
class RequestCost:
    """The usage and cost of a request so far, also if it was cut off. `run` is the run that it
    started or resumed."""

    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    run: Run | None = None

    def add_run(self, run: Run, before: Run | None) -> None:
        """Take what this request added to the run; `before` is the run as it was resumed."""
        self.run = run
        self.usage, _, self.cost_usd, self.orchestration = run.totals
        if before is not None:
            usage, _, cost_usd, orchestration = before.totals
            self.usage -= usage
            self.orchestration -= orchestration
            self.cost_usd = subtract(self.cost_usd, cost_usd)


class AccessPolicy:
    """Authenticates requests, reserves their quota and charges them.

    This base class serves every request, as a server without keys does.
    """

    async def authenticate(self, token: str | None, address: str = "") -> Principal:
        """Identify the caller; raises `ApiError` unauthenticated, or rate_limited after too many
        wrong keys from the address."""
        return Principal()

    async def sign_in(self, token: str, address: str = "") -> str | None:
        """Exchange a key for a session token; None where no keys are required."""
        return None

    async def reserve(
        self, principal: Principal, *, model: str, tokens: int, scope: Scope | None = None
    ) -> Principal:
        """Reserve quota for a request of about `tokens` input tokens; the principal returned has
        it. Settle each reservation, whatever becomes of the request.

        Raises `ApiError` forbidden, out_of_budget or rate_limited. `scope` defaults to the one
        that the model requires.
        """
        return principal

    async def settle(self, principal: Principal, *, model: str, cost: RequestCost) -> None:
        """Charge the request and release its reservation. Unknown usage is charged at its estimate;
        a run is charged once, however often it is settled."""

    @asynccontextmanager
    async def shared_budget_for_run(self, run: Run) -> AsyncIterator[SharedBudget | None]:
        """Open the shared budget of a run resumed without a request; None where nothing is capped.
        Raises `ApiError` unauthenticated if the owner's key is not valid any more."""
        yield None

    def refresh(self, key_id: str) -> None:
        """Read the key again before its next request."""

    async def flush(self) -> None:
        """Write all pending usage."""

    async def close(self) -> None:
        """Write all pending usage, and stop."""
