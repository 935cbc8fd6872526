"""What the server will not or cannot do, and why: one error, which every dialect words its own
way. Nothing here knows a wire format."""

from __future__ import annotations

import secrets
from types import MappingProxyType
from typing import Final, Literal

Reason = Literal[
    "invalid",
    "unauthenticated",
    "forbidden",
    "not_found",
    "conflict",
    "too_large",
    "too_long",
    "out_of_budget",
    "rate_limited",
    "overloaded",
    "upstream",
    "failed",
]
"""`invalid`: the body is at fault. `too_long`: it fits into no worker's window. `out_of_budget`:
money or tokens are spent. `overloaded`: this server has too much to do. `upstream`: no worker could
answer. `failed`: our own fault."""

STATUS: Final = MappingProxyType[Reason, int](
    {
        "invalid": 400,
        "unauthenticated": 401,
        "forbidden": 403,
        "not_found": 404,
        "conflict": 409,
        "too_large": 413,
        "too_long": 400,
        "out_of_budget": 402,
        "rate_limited": 429,
        "overloaded": 503,
        "upstream": 502,
        "failed": 500,
    }
)


class Refusal(Exception):
    """A request is refused, or could not be carried out.

    `field` names what is at fault in the body, as a path such as `messages.2.content`;
    `retry_after` is in seconds. `str(refusal)` says what was expected, what came and what to do.
    By the `request_id` that the client is told, its line is found in the log.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field
        self.retry_after = retry_after
        self.request_id = f"req_{secrets.token_hex(8)}"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.reason]


def refusal_of(error: Exception) -> Refusal:
    """The error as a client may be told of it; of a fault of our own, no more than its kind."""
    if isinstance(error, Refusal):
        return error
    return Refusal("failed", f"the server failed: {type(error).__name__}")


def invalid(field: str, message: str) -> Refusal:
    """The body is at fault, in that field."""
    return Refusal("invalid", message, field=field)
