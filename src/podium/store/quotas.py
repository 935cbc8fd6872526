"""Quotas of keys: amounts, rates, reservations and charges.

A run is charged to the key that owns it, by whichever process ends it. What a run has used only
grows, so each charge is its whole sum so far; the store remembers what it charged before and adds
the difference. A repeated or late charge therefore adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, final

from podium.core.frozen import fast_init
from podium.core.request import Usage
from podium.core.run import Run, Tier
from podium.store.keys import Allowance, KeyUsage

MAX_TOKENS: Final = 10**12
"""More tokens than any request can use; a larger count is treated as unknown."""

MODEL_OF: Final[Mapping[Tier, str]] = MappingProxyType(
    {"mini": "podium-mini", "podium": "podium", "ultra": "podium-ultra"}
)
"""The model name that runs of a tier are charged as."""


@final
@fast_init
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


def larger_of(one: Amount, other: Amount) -> Amount:
    """Return the larger sum of money and the larger number of tokens."""
    return Amount(max(one.usd, other.usd), max(one.tokens, other.tokens))


def at_most(amount: Amount, cap: Allowance) -> Amount:
    """Return the amount, no more than the cap."""
    return Amount(
        amount.usd if cap.usd is None else min(amount.usd, cap.usd),
        amount.tokens if cap.tokens is None else min(amount.tokens, cap.tokens),
    )


def remainder(caps: Iterable[tuple[Allowance, Amount]], taken: Amount) -> Allowance:
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
    """What a key was charged today, this month and in total, and the time of its last use, in
    seconds since 1970."""

    day: Amount = ZERO
    month: Amount = ZERO
    total: Amount = ZERO
    used_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """The reservation of one request in flight, as other processes see it.

    `used` is what its calls have used, `needed` includes what its `calls` in flight may use, and
    `granted` is the last `needed` that the store accepted. New requests must leave `expected` to
    it, new calls `reserved`: its estimate, or what it has used or needs if that is more. `run_id`
    is the stored run that is charged in the end. A reservation that `takes_over` replaces those of
    the run's former processes.
    """

    id: str
    key_id: str
    model: str
    run_id: str = ""
    takes_over: bool = False
    used: Amount = ZERO
    expected: Amount = ZERO
    reserved: Amount = ZERO
    needed: Amount = ZERO
    granted: Amount = ZERO
    calls: int = 0


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """The reservations of other processes with the same key, and their calls in flight."""

    expected: Amount = ZERO
    reserved: Amount = ZERO
    calls: int = 0


NO_OTHERS: Final = OtherProcesses()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationResult:
    """The state of the key, and the amount granted to each reservation that was not refused."""

    charges: KeyCharges
    others: OtherProcesses
    granted: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class RunCharge:
    """What a run has used so far, charged on the day of `usage`. Its request is counted apart."""

    run_id: str
    usage: KeyUsage

    @property
    def amount(self) -> Amount:
        """The amount charged."""
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
    tokens_in = tokens_out = unknown_tokens = unknown_cost = 0
    cost = 0.0
    for call in run.calls:
        if is_plausible(call.usage):
            tokens_in += call.usage.input_tokens or 0
            tokens_out += call.usage.output_tokens or 0
        else:
            unknown_tokens = 1
        if call.cost_usd is not None and 0 <= call.cost_usd < math.inf:
            cost += call.cost_usd
        else:
            unknown_cost = 1
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
        unknown_tokens=unknown_tokens,
        unknown_cost=unknown_cost,
        assumed_tokens=max(0, run.spent.tokens - tokens_in - tokens_out) if unknown_tokens else 0,
        assumed_usd=max(0.0, run.spent.usd - cost) if unknown_cost else 0.0,
    )
    return RunCharge(run.id, usage)


def is_plausible(usage: Usage) -> bool:
    """True if the provider reported input and output tokens within reason."""
    inputs, outputs = usage.input_tokens, usage.output_tokens
    if inputs is None or outputs is None:
        return False
    return 0 <= inputs <= MAX_TOKENS and 0 <= outputs <= MAX_TOKENS
