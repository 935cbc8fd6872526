"""The table `faults` of a worker: what is to go wrong with its calls, for a rehearsal.

What each fault does is `podium.providers.faulty`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from podium.catalogue.entries import Table
from podium.providers.faulty import Faults

Share = Annotated[float, Field(ge=0, le=1)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FaultsTable(Table):
    """For tests and rehearsals alone: the share of calls, from 0 to 1, that each fault befalls."""

    latency: Share = Field(default=0.0, description="a delay, and then a good reply")
    rate_limited: Share = Field(default=0.0, description="HTTP 429")
    rate_limited_with_retry_after: Share = Field(
        default=0.0, description="HTTP 429 that says when to come back"
    )
    server_error: Share = Field(default=0.0, description="HTTP 500, 502, 503 or 529")
    reset: Share = Field(default=0.0, description="a connection that is lost before a reply")
    truncated_stream: Share = Field(
        default=0.0, description="a reply that breaks off in the middle"
    )
    malformed_json: Share = Field(default=0.0, description="a reply that cannot be parsed")
    wrong_usage: Share = Field(
        default=0.0, description="a good reply with impossible counts of tokens, or none"
    )
    endless: Share = Field(default=0.0, description="a reply that goes on until it is stopped")
    latency_seconds: Delay = Field(default=0.05, description="the average of the delays")
    retry_after_seconds: Delay = Field(
        default=0.05, description="the wait that a 429 asks for, where it does"
    )
    seed: int = Field(default=0, description="another seed, other calls that go wrong")

    def faults(self) -> Faults:
        """The faults that the table means."""
        return Faults(**self.model_dump(exclude={"seed"}))
