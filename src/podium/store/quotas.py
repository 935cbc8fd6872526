"""What a run is charged to the key that owns it, whichever process ends it and however often its
end is written.

What a run has used only ever grows. So what it is charged is always its whole sum so far; the
store remembers of each run what was charged before, and adds the difference to what was used with
the key. The same sum again adds nothing, an older one that comes late adds nothing, and one that a
process could not write any more is in the next sum, whoever writes that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from podium.core.run import Attempt, Run, Tier
from podium.core.usage import Usage
from podium.store.keys import ZERO, Amount, KeyCharges, KeyUsage, Rules

SECONDS: Final = 60.0
"""What a rate counts in."""


class Bucket:
    """Refills at `per_minute`. It is full at first, unless something else is `left`, and never
    holds more than a minute's worth."""

    __slots__ = ("_at", "left", "per_minute")

    def __init__(self, per_minute: float, now: float, left: float | None = None) -> None:
        self.per_minute = per_minute
        self.left = per_minute if left is None else min(left, per_minute)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """How many seconds must pass until that much can be taken; 0 is now.

        What is more than the bucket can ever hold may be taken as soon as it is full.
        """
        self._refill(now)
        missing = min(amount, self.per_minute) - self.left
        return max(0.0, missing * SECONDS / self.per_minute)

    def take(self, amount: float) -> None:
        """Take that much, into debt if need be; less than nothing is put back."""
        self.left = min(self.left - amount, self.per_minute)

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._at)  # a clock may be set back
        self._at = now
        self.left = min(self.left + passed * self.per_minute / SECONDS, self.per_minute)


class Rates:
    """The buckets of one key: requests, and tokens. None is no limit. They are full at first, or
    have `left` what they had."""

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
        """How many seconds must pass until a request of so many tokens may begin; 0 is now."""
        requests = 0.0 if self._requests is None else self._requests.wait(1.0, now)
        return max(requests, 0.0 if self._tokens is None else self._tokens.wait(tokens, now))

    def begin(self, tokens: int) -> None:
        """Take a request and its tokens."""
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def correct(self, tokens: int) -> None:
        """So many more tokens, or fewer, were used than had been taken."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    @property
    def left(self) -> tuple[float | None, float | None]:
        """What is in the buckets of requests and of tokens."""
        return (
            None if self._requests is None else self._requests.left,
            None if self._tokens is None else self._tokens.left,
        )


def _bucket(per_minute: float | None, now: float, left: float | None) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, now, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """A tab as others see it. `used` is what its calls have used, and `needed` has what those of
    its `calls` that are in flight may use besides; `granted` is what it could need by the last
    word of the store. What others must leave to the request is `claimed` as they begin requests,
    and `taken` as they make calls: what it will probably use, or what it has used or needs where
    that is more. `run_id` is the run on record that is charged in the end, or empty; a tab that
    `takes_over` counts what the run had used before, in the place of the tab that it had then.
    """

    id: str
    key_id: str
    model: str
    run_id: str = ""
    takes_over: bool = False
    used: Amount = ZERO
    claimed: Amount = ZERO
    taken: Amount = ZERO
    needed: Amount = ZERO
    granted: Amount = ZERO
    calls: int = 0


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """What the tabs of other processes with the same key claim and take, and how many calls they
    have in flight."""

    claimed: Amount = ZERO
    taken: Amount = ZERO
    calls: int = 0


NO_OTHERS: Final = OtherProcesses()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationResult:
    """How the key stands now, and which tabs got what: what each that has grown needs, and what
    each that was opened claims."""

    standing: KeyCharges
    elsewhere: OtherProcesses
    granted: Mapping[str, Amount]


def larger_of(one: Amount, other: Amount) -> Amount:
    """Of money and of tokens, whichever is more."""
    return Amount(max(one.usd, other.usd), max(one.tokens, other.tokens))


class ReservationStore(Protocol):
    """The tabs of one process among several. Every method raises `StoreError` when the store
    cannot do its work."""

    async def draw(
        self,
        key_id: str,
        rules: Rules,
        day: str,
        *,
        opened: Sequence[ReservationRow] = (),
        grown: Sequence[ReservationRow] = (),
        changed: Sequence[ReservationRow] = (),
    ) -> ReservationResult:
        """Write tabs of one key, so far as its caps have room beside the tabs of every process.

        One that is `opened` claims what it asks for, or what is left where that is less, but is
        not granted where nothing is. One that has `grown` gets all that it needs, or no more than
        it had: what it has used counts either way. One that was `changed` needs no more than
        before. This process's lease is renewed where it has run out, or little of it is left.
        """
        ...

    async def renew(self) -> None:
        """The tabs of this process are good for another lease."""
        ...

    async def sweep(self) -> int:
        """Settle the tabs whose lease has run out, and say how many: what was used is charged,
        unless it is a run's that goes on; the end of that run will charge it."""
        ...


LARGEST_COUNT: Final = 10**12
"""More tokens than any request can have used. A provider that claims more is not believed."""

MODEL_OF: Final[Mapping[Tier, str]] = MappingProxyType(
    {"mini": "podium-mini", "podium": "podium", "ultra": "podium-ultra"}
)
"""The model that a client asked for to get a run of that tier, and that the run is charged as."""


@dataclass(frozen=True, slots=True)
class RunCharge:
    """What a run has used so far, as its key is charged for it on the day that `used` says. The
    request for the run is counted where it was made, and not here."""

    run_id: str
    used: KeyUsage

    @property
    def charged(self) -> Amount:
        """What that comes to."""
        used = self.used
        return Amount(
            used.cost_usd + used.assumed_usd,
            used.input_tokens + used.output_tokens + used.assumed_tokens,
        )


def charge_of(run: Run, day: str) -> RunCharge:
    """What the run has used by now. For what its providers did not tell, it is charged what its
    budget counted for those calls: what each might have used at most, where anything is capped."""
    tokens_in = tokens_out = unknown_tokens = unknown_cost = 0
    cost = 0.0
    for call in run.calls:
        if is_plausible(call.usage):
            tokens_in += call.usage.input_tokens or 0
            tokens_out += call.usage.output_tokens or 0
        else:
            unknown_tokens = 1
        if _is_known_cost(call):
            cost += call.cost_usd or 0.0
        else:
            unknown_cost = 1
    planning = run.orchestration
    known_planning = is_plausible(planning)
    used = KeyUsage(
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
    return RunCharge(run.id, used)


def is_plausible(usage: Usage) -> bool:
    """Whether a provider told what was read and written, and it can be."""
    inputs, outputs = usage.input_tokens, usage.output_tokens
    if inputs is None or outputs is None:
        return False
    return 0 <= inputs <= LARGEST_COUNT and 0 <= outputs <= LARGEST_COUNT


def _is_known_cost(call: Attempt) -> bool:
    return call.cost_usd is not None and 0 <= call.cost_usd < math.inf
