"""API keys: what a key allows, what was used with it, and its quotas.

The store holds only the digest of a key's token. Tokens are made and checked by the server.

A run is charged to the key that owns it, by whichever process ends it. What a run has used only
grows, so each charge is its whole sum so far; the store remembers what it charged before and adds
the difference. A repeated or late charge therefore adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, get_args

from pydantic import ConfigDict, Field, PlainSerializer

from podium.core.errors import ConfigError
from podium.core.request import Usage
from podium.core.run import Run, Tier, timestamp

Period = Literal["day", "month", "total"]

KeyState = Literal["active", "revoked", "expired"]

Scope = Literal[
    "ask", "plan", "workflow", "runs:read", "runs:delete", "gateway", "metrics", "admin"
]
"""The permissions of a key. `ask`: run questions. `plan`: see plans. `workflow`: run one's own
workflow. `runs:read`, `runs:delete`: the runs of this key. `gateway`: call a worker by name.
`metrics`: the server's metrics. `admin`: everything, for the runs of every key."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

DEFAULT_SCOPES: Final[frozenset[Scope]] = frozenset(SCOPES) - {"metrics", "admin"}
"""The default scopes: none that concern other keys."""

_STRICT: Final = ConfigDict(extra="forbid")
"""An unknown rule must not be read as no rule."""

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0)]
PerMinute = Annotated[int, Field(ge=1)]
Names = Annotated[frozenset[str], PlainSerializer(sorted, list[str])]
Tiers = Annotated[frozenset[Tier], PlainSerializer(sorted, list[Tier])]
Scopes = Annotated[
    frozenset[Scope],
    PlainSerializer(lambda scopes: sorted(scopes, key=SCOPES.index), list[Scope]),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A cap on money and tokens; None is no cap."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    usd: Dollars | None = None
    tokens: Tokens | None = None

    def __post_init__(self) -> None:
        for name in ("usd", "tokens"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"the cap on {name} is {value}; expected a number from 0 up")


NO_CAP: Final = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a key.

    `tiers` and `workers` may be requested by name; None allows all. They do not limit the
    conductor's choice. Workers and providers in `exclude` receive nothing of the key's requests,
    not even in nested runs. `training` allows runs to become training data. Days and months are
    those of UTC.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    scopes: Scopes = DEFAULT_SCOPES
    tiers: Tiers | None = None
    workers: Names | None = None
    exclude: Names = frozenset()
    training: bool = True
    per_request: Allowance = NO_CAP
    per_day: Allowance = NO_CAP
    per_month: Allowance = NO_CAP
    in_total: Allowance = NO_CAP
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected a number from 1 up")
        _check_known("scope", self.scopes, SCOPES)
        _check_known("tier", self.tiers or (), get_args(Tier))


def _check_known(kind: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    for name in sorted(set(given) - set(known)):
        raise ConfigError(f"unknown {kind} {name!r}; expected one of {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key; `digest` is that of its token."""

    id: str
    name: str
    digest: str
    created_at: str
    rules: Rules = field(default_factory=Rules)
    expires_at: str | None = None
    revoked_at: str | None = None

    @property
    def state(self) -> KeyState:
        """Whether the key works. Times are UTC in one format, so they compare as text."""
        if self.revoked_at is not None:
            return "revoked"
        is_over = self.expires_at is not None and self.expires_at <= timestamp()
        return "expired" if is_over else "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """The usage of a key on one day (UTC) of one model.

    Tokens and cost are sums over the requests that reported them; `unknown_usage_count` and
    `unknown_cost_count` count the others, and `assumed_tokens` and `assumed_usd` are what the key's
    budget was charged for those. Orchestration tokens are included in the others.
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
    unknown_usage_count: int = 0
    unknown_cost_count: int = 0
    assumed_tokens: int = 0
    assumed_usd: float = 0.0


CHARGED_FIELDS: Final = tuple(
    item.name
    for item in fields(KeyUsage)
    if item.name not in ("key_id", "day", "model", "requests")
)
"""The fields of `KeyUsage` that runs are charged."""


def merge_usage(usage: Iterable[KeyUsage]) -> list[KeyUsage]:
    """Add up the usage of the same key, day and model, in that order."""
    lines: dict[tuple[str, str, str], list[KeyUsage]] = {}
    for item in usage:
        lines.setdefault((item.key_id, item.day, item.model), []).append(item)
    return [_add_up(lines[key]) for key in sorted(lines)]


def _add_up(same: Sequence[KeyUsage]) -> KeyUsage:
    if len(same) == 1:
        return same[0]
    sums = {
        name: sum(getattr(item, name) for item in same) for name in ("requests", *CHARGED_FIELDS)
    }
    return replace(same[0], **sums)


MAX_TOKENS: Final = 10**12
"""More tokens than any request can use; a larger count is treated as unknown."""

MODEL_OF: Final[Mapping[Tier, str]] = MappingProxyType(
    {"mini": "podium-mini", "podium": "podium", "ultra": "podium-ultra"}
)
"""The model name that runs of a tier are charged as."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and tokens."""

    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.usd + other.usd, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.usd - other.usd, self.tokens - other.tokens)


ZERO: Final = Amount()


def max_amount(one: Amount, other: Amount) -> Amount:
    """Return the larger sum of money and the larger number of tokens."""
    return Amount(max(one.usd, other.usd), max(one.tokens, other.tokens))


def cap_amount(amount: Amount, cap: Allowance) -> Amount:
    return Amount(
        amount.usd if cap.usd is None else min(amount.usd, cap.usd),
        amount.tokens if cap.tokens is None else min(amount.tokens, cap.tokens),
    )


def remaining_allowance(caps: Iterable[tuple[Allowance, Amount]], taken: Amount) -> Allowance:
    """Return what is left of all caps, each with what was charged, besides what is taken."""
    caps = tuple(caps)
    usd = [cap.usd - charged.usd - taken.usd for cap, charged in caps if cap.usd is not None]
    tokens = [
        cap.tokens - charged.tokens - taken.tokens
        for cap, charged in caps
        if cap.tokens is not None
    ]
    return Allowance(
        usd=max(0.0, min(usd)) if usd else None, tokens=max(0, min(tokens)) if tokens else None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCharges:
    """The amounts charged to a key today, this month and in total, and the time of its last use, in
    seconds since 1970."""

    day: Amount = ZERO
    month: Amount = ZERO
    total: Amount = ZERO
    used_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """The reservation of one request in flight, as other processes see it.

    `used` is what its calls have used, `needed` adds what its `calls` in flight may use at most,
    and `granted` is the last `needed` that the store accepted. Two amounts are held for it.
    `withheld_from_requests` is not available to new requests: its estimate, or `used` if that is
    more. `withheld_from_calls` is not available to other requests' calls: its estimate, or `needed`
    if that is more. `run_id` is the stored run that is charged in the end. A reservation that
    `is_takeover` replaces those of the run's former processes.
    """

    id: str
    key_id: str
    model: str
    run_id: str = ""
    is_takeover: bool = False
    used: Amount = ZERO
    withheld_from_requests: Amount = ZERO
    withheld_from_calls: Amount = ZERO
    needed: Amount = ZERO
    granted: Amount = ZERO
    calls: int = 0


@dataclass(frozen=True, slots=True)
class OtherReservations:
    """The reservations of other processes with the same key, and their calls in flight."""

    withheld_from_requests: Amount = ZERO
    withheld_from_calls: Amount = ZERO
    calls: int = 0


NO_OTHERS: Final = OtherReservations()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationResult:
    """The state of the key, and the amount granted to each reservation that was not refused."""

    charges: KeyCharges
    others: OtherReservations
    granted: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class RunCharge:
    """The usage of a run so far, charged on the day of `usage`. Its request is counted apart."""

    run_id: str
    usage: KeyUsage

    @property
    def amount(self) -> Amount:
        return charged_amount(self.usage)


def charged_amount(usage: KeyUsage) -> Amount:
    """Return what the usage counts against a budget, including what was assumed."""
    return Amount(
        usage.cost_usd + usage.assumed_usd,
        usage.input_tokens + usage.output_tokens + usage.assumed_tokens,
    )


def charge_of(run: Run, day: str) -> RunCharge:
    """Compute what the run has used by now.

    Calls with unknown usage are charged what the run's budget counted for them: their maximum,
    where anything is capped.
    """
    tokens_in = tokens_out = unknown_usage_count = unknown_cost_count = 0
    cost = 0.0
    for call in run.calls:
        if is_plausible(call.usage):
            tokens_in += call.usage.input_tokens or 0
            tokens_out += call.usage.output_tokens or 0
        else:
            unknown_usage_count = 1
        if call.cost_usd is not None and 0 <= call.cost_usd < math.inf:
            cost += call.cost_usd
        else:
            unknown_cost_count = 1
    planning = run.orchestration
    known_planning = is_plausible(planning)
    usage = KeyUsage(
        key_id=run.owner,
        day=day,
        model=run.direct_worker or MODEL_OF[run.tier],
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        orchestration_input_tokens=(planning.input_tokens or 0) if known_planning else 0,
        orchestration_output_tokens=(planning.output_tokens or 0) if known_planning else 0,
        cost_usd=cost,
        unknown_usage_count=unknown_usage_count,
        unknown_cost_count=unknown_cost_count,
        assumed_tokens=max(0, run.spent.tokens - tokens_in - tokens_out)
        if unknown_usage_count
        else 0,
        assumed_usd=max(0.0, run.spent.usd - cost) if unknown_cost_count else 0.0,
    )
    return RunCharge(run.id, usage)


def is_plausible(usage: Usage) -> bool:
    """True if the provider reported input and output tokens within reason."""
    inputs, outputs = usage.input_tokens, usage.output_tokens
    if inputs is None or outputs is None:
        return False
    return 0 <= inputs <= MAX_TOKENS and 0 <= outputs <= MAX_TOKENS
