"""What a run is charged to the key that owns it, whichever process ends it and however often its
end is written.

What a run has used only ever grows. So what it is charged is always its whole sum so far; the
store remembers of each run what was charged before, and adds the difference to what was used with
the key. The same sum again adds nothing, an older one that comes late adds nothing, and one that a
process could not write any more is in the next sum, whoever writes that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from podium.attempt import Attempt
from podium.run import Run, Tier
from podium.store.keys import Charged, KeyUsage
from podium.usage import Usage

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
    def charged(self) -> Charged:
        """What that comes to."""
        used = self.used
        return Charged(
            used.cost_usd + used.assumed_usd,
            used.input_tokens + used.output_tokens + used.assumed_tokens,
        )


def charge_of(run: Run, day: str) -> RunCharge:
    """What the run has used by now. For what its providers did not tell, it is charged what its
    budget counted for those calls: what each might have used at most, where anything is capped."""
    tokens_in = tokens_out = unknown_tokens = unknown_cost = 0
    cost = 0.0
    for call in run.calls:
        if believed(call.usage):
            tokens_in += call.usage.input_tokens or 0
            tokens_out += call.usage.output_tokens or 0
        else:
            unknown_tokens = 1
        if _is_known_cost(call):
            cost += call.cost_usd or 0.0
        else:
            unknown_cost = 1
    planning = run.orchestration
    known_planning = believed(planning)
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


def believed(usage: Usage) -> bool:
    """Whether a provider told what was read and written, and it can be."""
    inputs, outputs = usage.input_tokens, usage.output_tokens
    if inputs is None or outputs is None:
        return False
    return 0 <= inputs <= LARGEST_COUNT and 0 <= outputs <= LARGEST_COUNT


def _is_known_cost(call: Attempt) -> bool:
    return call.cost_usd is not None and 0 <= call.cost_usd < math.inf
