"""Keys to a server, as data: what a key allows, what was used with it, and what keeps both.

A key's token is not here: the store holds its digest alone. How a token is made and checked, and
how a key's rules are held to, is the server's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, final, get_args

from pydantic import ConfigDict

from podium.core.errors import ConfigError
from podium.core.frozen import fast_init
from podium.core.run import Tier

if TYPE_CHECKING:
    from podium.store.quotas import ReservationStore, RunCharge

Scope = Literal[
    "ask", "plan", "workflow", "runs:read", "runs:delete", "gateway", "metrics", "admin"
]
"""What a key may be used for. `ask`: have questions answered. `plan`: see plans, carried out or
not. `workflow`: have a workflow of one's own carried out, instead of a plan. `runs:read` and
`runs:delete`: the runs that were made with this very key. `gateway`: call a worker by its own
name. `metrics`: the numbers of the whole server. `admin`: all of these, and the runs of every
key."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

USUAL_SCOPES: Final[frozenset[Scope]] = frozenset(SCOPES) - {"metrics", "admin"}
"""What a key may be used for where nobody says: nothing that is about other keys."""

_AS_WRITTEN: Final = ConfigDict(extra="forbid")
"""A rule that this Podium does not know must not be taken for no rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The most that may be used within some time. None is no cap."""

    __pydantic_config__: ClassVar[ConfigDict] = _AS_WRITTEN

    usd: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("usd", "tokens"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"the cap on {name} is {value}; a cap is a number from 0 up")


NO_CAP: Final = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a key allows.

    `tiers` and `workers` are what may be asked for by name, None being all of them; `workers` is
    about calling a worker directly or naming it in a workflow of one's own, and says nothing of
    whom a conductor chooses. `exclude` names the
    workers and providers that must not see anything of what is asked with this key: in no step
    of no round, in no nested run, and not directly either. `training` is whether what is asked
    with it may become training data. Days and months are those of UTC.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _AS_WRITTEN

    scopes: frozenset[Scope] = USUAL_SCOPES
    tiers: frozenset[Tier] | None = None
    workers: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    training: bool = True
    per_request: Allowance = NO_CAP
    per_day: Allowance = NO_CAP
    per_month: Allowance = NO_CAP
    in_total: Allowance = NO_CAP
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; a rate is a number from 1 up")
        _check_known("scope", self.scopes, SCOPES)
        _check_known("tier", self.tiers or (), get_args(Tier))


def _check_known(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    for name in sorted(set(given) - set(known)):
        raise ConfigError(f"there is no {what} {name!r}; there is {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key. `digest` is all that is kept of its token; moments are as `podium.run.timestamp`
    writes them."""

    id: str
    name: str
    digest: str
    created_at: str
    rules: Rules = field(default_factory=Rules)
    expires_at: str | None = None
    revoked_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """What was used with a key on one day (of UTC, as 2026-01-31) of one model.

    Tokens and cost are sums over the requests of which they are known. `unknown_tokens` and
    `unknown_cost` count those of which they are not: with either, the sum is only the least it
    can be. `assumed_tokens` and `assumed_usd` are what the key's budget was charged for those.
    Orchestration tokens are a part of the others.
    """

    key_id: str
    day: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    orchestration_input_tokens: int = 0
    orchestration_output_tokens: int = 0
    cost_usd: float = 0.0
    unknown_tokens: int = 0
    unknown_cost: int = 0
    assumed_tokens: int = 0
    assumed_usd: float = 0.0


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Amount:
    """What a budget was charged: what was used, and what was assumed where that is unknown."""

    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.usd + other.usd, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        """What is left of this without the other; it may be less than nothing."""
        return Amount(self.usd - other.usd, self.tokens - other.tokens)


ZERO: Final = Amount()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCharges:
    """What a key has been charged: today, this month, and since it was made."""

    day: Amount = Amount()
    month: Amount = Amount()
    total: Amount = Amount()


class KeyStore(Protocol):
    """Keeps keys and what was used with them. Every method raises `StoreError` when the store
    cannot do its work."""

    async def add(self, key: Key) -> None:
        """Write a key that was made."""
        ...

    async def key(self, key_id: str) -> Key | None:
        """The key with that id, revoked ones included, or None."""
        ...

    async def keys(self) -> list[Key]:
        """Every key, revoked ones included, the newest first."""
        ...

    async def revoke(self, key_id: str) -> None:
        """Revoke a key for good; again is no fault. Raises `NotFound` when there is none."""
        ...

    async def allow_training(self, key_id: str, *, allowed: bool) -> None:
        """Set whether what was and will be asked with a key, a revoked one included, may become
        training data. Raises `NotFound` when there is none."""
        ...

    async def record(
        self,
        used: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        closed: Sequence[str] = (),
    ) -> None:
        """Add to what was used, charge runs what they have not been charged yet, and close the
        tabs of requests that are charged by this: all of it, or nothing where an error is
        raised."""
        ...

    def reservations(self, process: str, lease_seconds: float) -> ReservationStore:
        """The tabs of a process of that name, among others that share the store; each is good for
        so long unless it is renewed."""
        ...

    async def take(
        self, key_id: str, rules: Rules, tokens: Sequence[int], owed: int = 0
    ) -> list[float]:
        """Take requests of so many tokens from the key's buckets, which all processes share, each
        that can be: 0, or the seconds until it can. What is owed for requests before is taken
        first, into debt if need be, or put back where it is less than nothing."""
        ...

    async def standing(self, key_id: str, day: str) -> KeyCharges:
        """What the key has been charged, as of that day."""
        ...

    async def charged_for(self, run_id: str) -> Amount:
        """What a key has been charged for that run so far."""
        ...

    async def usage(
        self, *, key_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> list[KeyUsage]:
        """What was used, by day, key and model; `since` and `until` are days, both included."""
        ...
