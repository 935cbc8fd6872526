"""The visitor: who asks, as far as the server is concerned, and what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from podium.quick import quick
from podium.run import Tier
from podium.server.names import tier_of
from podium.server.refusal import Refusal
from podium.store.keys import NO_CAP, SCOPES, Allowance, Scope


def scope_of(model: str) -> Scope:
    """The scope that asking for a model takes."""
    return "gateway" if tier_of(model) is None else "ask"


@final
@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
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
            raise Refusal(
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
            raise Refusal(
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
                raise Refusal(
                    "forbidden",
                    f"the key {self.name!r} does not allow the worker {worker!r}; give the step to "
                    f"another, GET /v1/models lists them, or ask for a key that allows it",
                    field="podium.workflow",
                )

    def lists(self, model: str, provider: str = "") -> bool:
        """Whether that tier, or that worker of that provider, is one to show them: they may ask
        for it, and have the scope to."""
        return self.may(scope_of(model)) and self.allows(model, provider)
