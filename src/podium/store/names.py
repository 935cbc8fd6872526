"""Requests that clients gave names of their own, so that one that is sent again begins no second
run. What a name stands for is a run; what the run came to is on the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRequest:
    """A request by its name, which is its owner's own. `digest` tells its body from others;
    `process` is to begin its run, or has."""

    owner: str
    name: str
    digest: str
    run_id: str
    process: str
    created_at: str


class NameStore(Protocol):
    """Keeps the names beside the runs, for a day."""

    async def give(self, request: NamedRequest) -> NamedRequest:
        """Write the request down unless one of its name is there already; give the one that is."""
        ...

    async def take_up(self, found: NamedRequest, process: str) -> NamedRequest | None:
        """Have that process begin the run of a request whose own process ended before, or has said
        nothing for as long as a lease: the request as it is then. None where it may still begin, or
        another did so first."""
        ...

    async def drop(self, request: NamedRequest) -> None:
        """Forget a request that came to no run, unless somebody has taken it up meanwhile."""
        ...
