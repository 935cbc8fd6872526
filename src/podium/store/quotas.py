"""Quotas of keys: amounts, rates, reservations and charges.

A run is charged to the key that owns it, by whichever process ends it. What a run has used only
grows, so each charge is its whole sum so far; the store remembers what it charged before and adds
the difference. A repeated or late charge therefore adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, final

from podium.core.frozen import fast_init
from podium.core.run import Run, Tier
from podium.core.usage import Usage
from podium.store.keys import KeyUsage, Rules

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCharges:
    """What a key was charged today, this month, and in total."""

    day: Amount = ZERO
    month: Amount = ZERO
    total: Amount = ZERO


class Bucket:
    """A token bucket that refills at `per_minute` and holds at most a minute's worth."""

    __slots__ = ("_at", "left", "per_minute")

    def __init__(self, per_minute: float, now: float, left: float | None = None) -> None:
        self.per_minute = per_minute
        self.left = per_minute if left is None else min(left, per_minute)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until the amount can be taken; 0 is now.

        An amount larger than the bucket can be taken as soon as the bucket is full.
        """
        passed = max(0.0, now - self._at)  # the clock may be set back
        self._at = now
        self.left = min(self.left + passed * self.per_minute / 60, self.per_minute)
        missing = min(amount, self.per_minute) - self.left
        return max(0.0, missing * 60 / self.per_minute)

    def take(self, amount: float) -> None:
        """Take the amount, into debt if need be; a negative amount is put back."""
        self.left = min(self.left - amount, self.per_minute)


class Rates:
    """The rate limits of one key, on requests and on tokens; None is no limit."""

    __slots__ = ("_requests", "_tokens")

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
        left: tuple[float | None, float | None] = (None, None),
    ) -> None:
        self._requests = _bucket(requests_per_minute, now, left[0])
        self._tokens = _bucket(tokens_per_minute, now, left[1])

    def wait(self, tokens: int, now: float) -> float:
        """Return the seconds until a request of so many tokens may begin; 0 is now."""
        requests = 0.0 if self._requests is None else self._requests.wait(1.0, now)
        return max(requests, 0.0 if self._tokens is None else self._tokens.wait(tokens, now))

    def take(self, tokens: int) -> None:
        """Count a request and its tokens."""
        if self._requests is not None:
            self._requests.take(1.0)
        self.correct(tokens)

    def correct(self, tokens: int) -> None:
        """Count tokens used beyond those taken before; a negative number is put back."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    @property
    def left(self) -> tuple[float | None, float | None]:
        """The requests and tokens left."""
        return (
            None if self._requests is None else self._requests.left,
            None if self._tokens is None else self._tokens.left,
        )


def _bucket(per_minute: float | None, now: float, left: float | None) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, now, left)


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
        model=MODEL_OF[run.tier],
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


class ReservationStore(Protocol):
    """The reservations of one process among several; methods raise `StoreError`."""

    async def update(
        self,
        key_id: str,
        rules: Rules,
        day: str,
        *,
        opened: Sequence[ReservationRow] = (),
        grown: Sequence[ReservationRow] = (),
        changed: Sequence[ReservationRow] = (),
    ) -> ReservationResult:
        """Write reservations of one key as far as its caps have room.

        An `opened` one is granted what it expects, or what is left if that is less and not zero. A
        `grown` one is granted all that it needs, or nothing more; what it used counts either way.
        A `changed` one needs no more than before. Renews the lease of this process if necessary.
        """
        ...

    async def renew_lease(self) -> None:
        """Extend the reservations of this process by a lease."""
        ...

    async def settle_expired(self) -> int:
        """Charge and delete reservations of dead processes; return how many. Those of a stored run
        are charged by the end of that run."""
        ...


class QuotaStore(Protocol):
    """Charges of keys, their rate limits and reservations; methods raise `StoreError`."""

    async def record(
        self,
        usage: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        settled: Sequence[str] = (),
    ) -> None:
        """Add usage, charge runs what they were not charged yet, and delete settled reservations,
        in one transaction."""
        ...

    async def charges(self, key_id: str, day: str) -> KeyCharges:
        """Return what the key was charged, as of that day."""
        ...

    async def charged_for(self, run_id: str) -> Amount:
        """Return what was charged for the run so far."""
        ...

    async def take(
        self, key_id: str, rules: Rules, tokens: Sequence[int], correction: int = 0
    ) -> list[float]:
        """Take requests of so many tokens from the key's shared rate limits; return 0 for each
        that may begin, or the seconds until it may. The correction of earlier requests is taken
        first."""
        ...

    def reservations(self, process: str, lease_seconds: float) -> ReservationStore:
        """Return the reservations of a process, which expire with its lease."""
        ...
