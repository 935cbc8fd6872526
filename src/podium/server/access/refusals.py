"""What the gatekeeper says when it lets somebody not in, or not on."""

from __future__ import annotations

import math
from typing import Final

from podium.server.access.purse import Exhausted
from podium.server.access.visitor import Visitor
from podium.server.refusal import RETRY_SECONDS, Refusal


def out_of_budget(visitor: Visitor, exhausted: Exhausted | None) -> Refusal:
    """The refusal that says which cap it is; none, where something came back meanwhile."""
    if exhausted is None:
        whole = f"a cap of the key {visitor.name!r}"
    else:
        shown = f"${exhausted.cap:g}" if exhausted.what == "usd" else f"{exhausted.cap:,} tokens"
        when = {"day": "today", "month": "this month", "total": "it has in all"}[exhausted.period]
        whole = f"the {shown} that the key {visitor.name!r} may spend {when}"
    if exhausted is None or exhausted.held:
        return Refusal(
            "rate_limited",
            f"requests in flight hold what is left of {whole}; try again when they are done",
            retry_after=RETRY_SECONDS,
        )
    return Refusal("out_of_budget", f"{whole} is spent; {_ADVICE[exhausted.period]}")


_ADVICE: Final = {
    "day": "it begins anew at midnight UTC",
    "month": "it begins anew on the first, UTC",
    "total": "ask for another key",
}


def too_many(wait: float) -> Refusal:
    """Too many wrong keys were shown."""
    return Refusal(
        "rate_limited",
        f"too many keys that this server does not know were tried; try again in "
        f"{math.ceil(wait)} s",
        retry_after=wait,
    )


def unauthenticated(message: str) -> Refusal:
    """Whoever asks has no key that is good."""
    return Refusal("unauthenticated", message)


def too_fast(visitor: Visitor, wait: float) -> Refusal:
    """The key is used faster than its rules allow."""
    return Refusal(
        "rate_limited",
        f"the key {visitor.name!r} is used faster than it may be; try again in {math.ceil(wait)} s",
        retry_after=wait,
    )


def unseen(what: str) -> Refusal:
    """The store cannot be asked."""
    message = f"{what} cannot be looked up now; try again"
    return Refusal("overloaded", message, retry_after=RETRY_SECONDS)
