"""The one error of the API. Each dialect writes it in its own format.

`api_error_boundary` turns Podium's exceptions into it; what is for the operator goes to the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, Literal

from podium.core.errors import (
    BudgetExhausted,
    BudgetUnavailable,
    ConfigError,
    Conflict,
    GuardrailBlocked,
    NotFound,
    PlanError,
    PodiumError,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    StoreError,
    UnreadableRun,
    UsageError,
    WorkerError,
)
from podium.server.logs import LOGGER

Reason = Literal[
    "invalid",
    "unauthenticated",
    "forbidden",
    "not_found",
    "conflict",
    "too_large",
    "too_long",
    "blocked",
    "out_of_budget",
    "rate_limited",
    "overloaded",
    "upstream",
    "failed",
]
"""`too_long`: the prompt exceeds every context window. `blocked`: by a guardrail. `overloaded`: too
many requests, or the store is unavailable. `upstream`: no worker could answer. `failed`: a bug."""

STATUS: Final = MappingProxyType[Reason, int](
    {
        "invalid": 400,
        "unauthenticated": 401,
        "forbidden": 403,
        "not_found": 404,
        "conflict": 409,
        "too_large": 413,
        "too_long": 400,
        "blocked": 400,
        "out_of_budget": 402,
        "rate_limited": 429,
        "overloaded": 503,
        "upstream": 502,
        "failed": 500,
    }
)

STORE_UNAVAILABLE: Final = (
    "the run store is unavailable; try again later, or tell the operator of this server"
)

RETRY_SECONDS: Final = 1.0
"""`Retry-After` where the wait is unknown."""


class ApiError(Exception):
    """A request is refused or failed.

    `field` is the path of the faulty field, such as `messages.2.content`. `request_id` is sent to
    the client and logged.
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

    @property
    def headers(self) -> dict[str, str]:
        """The response headers of the error."""
        headers = {"X-Request-Id": self.request_id, "Request-Id": self.request_id}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after + 0.499)))
        if self.reason == "unauthenticated":
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def to_api_error(error: Exception) -> ApiError:
    """Convert an unexpected exception; the client learns no more than its type."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StoreError):
        return _convert_store_error(error)
    return ApiError("failed", f"internal server error: {type(error).__name__}")


def invalid(field: str, message: str) -> ApiError:
    """Return the error for a faulty field of the body."""
    return ApiError("invalid", message, field=field)


def prompt_too_long(why: str) -> ApiError:
    """Return the error for a conversation that exceeds every worker's context window."""
    message = f"the prompt is too long for the workers of this server; shorten it: {why}"
    return ApiError("too_long", message, field="messages")


def budget_unavailable() -> ApiError:
    """Return the error for a key whose budget cannot be looked up."""
    message = "the remaining budget of this key cannot be looked up; try again"
    return ApiError("overloaded", message, retry_after=RETRY_SECONDS)


@contextmanager
def api_error_boundary() -> Iterator[None]:
    """Raise Podium's exceptions as `ApiError`."""
    try:
        yield
    except PodiumError as error:
        converted = _convert(error)
        if converted is None:
            raise
        raise converted from error


def _convert(error: PodiumError) -> ApiError | None:
    match error:
        case GuardrailBlocked():
            return ApiError("blocked", str(error))
        case BudgetExhausted():
            return ApiError("out_of_budget", str(error))
        case NotFound():
            return ApiError("not_found", str(error))
        case Conflict():
            return ApiError("conflict", str(error))
        case PlanError():
            return invalid("podium.workflow", str(error))
        case ConfigError():
            LOGGER.warning("request refused because of the configuration: %s", error)
            return ApiError("invalid", _without_remedy(error))
        case UsageError():
            return ApiError("invalid", str(error))
        case RateLimited():
            return ApiError("rate_limited", str(error), retry_after=error.retry_after)
        case PromptTooLong():
            return prompt_too_long(str(error))
        case RequestRefused():
            return ApiError("invalid", str(error))
        case WorkerError():
            return ApiError("upstream", str(error), retry_after=error.retry_after)
        case StoreError():
            return _convert_store_error(error)
        case _:
            return None


def _convert_store_error(error: StoreError) -> ApiError:
    LOGGER.error("%s", error)
    if isinstance(error, UnreadableRun):
        return ApiError("failed", _without_remedy(error))
    if isinstance(error, BudgetUnavailable):
        return budget_unavailable()
    return ApiError("overloaded", STORE_UNAVAILABLE, retry_after=RETRY_SECONDS)


def _without_remedy(error: PodiumError) -> str:
    """Drop the advice after the semicolon: it is for the operator, and is in the log."""
    fact = str(error).partition(";")[0]
    return f"{fact}; only the operator of this server can change that"
