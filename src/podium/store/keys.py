"""API keys: what a key allows, and what was used with it.

The store holds only the digest of a key's token. Tokens are made and checked by the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, ClassVar, Final, Literal, final, get_args

from pydantic import ConfigDict, Field, PlainSerializer

from podium.core.errors import ConfigError
from podium.core.frozen import fast_init
from podium.core.run import Tier, timestamp

Period = Literal["day", "month", "total"]

KeyState = Literal["active", "revoked", "expired"]

Scope = Literal[
    "ask", "plan", "workflow", "runs:read", "runs:delete", "gateway", "metrics", "admin"
]
"""The permissions of a key. `ask`: run questions. `plan`: see plans. `workflow`: run one's own
workflow. `runs:read`, `runs:delete`: the runs of this key. `gateway`: call a worker by name.
`metrics`: the server's metrics. `admin`: everything, for the runs of every key."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

USUAL_SCOPES: Final[frozenset[Scope]] = frozenset(SCOPES) - {"metrics", "admin"}
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

    scopes: Scopes = USUAL_SCOPES
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


@final
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """The usage of a key on one day (UTC) of one model.

    Tokens and cost are sums over the requests that reported them; `unknown_tokens` and
    `unknown_cost` count the others, and `assumed_tokens` and `assumed_usd` are what the key's
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
    unknown_tokens: int = 0
    unknown_cost: int = 0
    assumed_tokens: int = 0
    assumed_usd: float = 0.0


AMOUNTS: Final = tuple(
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
    sums = {name: sum(getattr(item, name) for item in same) for name in ("requests", *AMOUNTS)}
    return replace(same[0], **sums)
