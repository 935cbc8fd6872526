"""The one error of the API. Each dialect writes it in its own format.

`to_api_error` turns other exceptions into it; what is for the operator goes to the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

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
    StoreError,
    UnreadableRun,
    UsageError,
    WorkerError,
)
from podium.server.logs import LOGGER, MAX_LOGGED_MESSAGE

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
    "timeout",
    "unprocessable",
    "rate_limited",
    "overloaded",
    "upstream",
    "upstream_key",
    "failed",
]
"""`too_long`: the prompt exceeds every context window. `blocked`: by a guardrail. `overloaded`: too
many requests, or the store is unavailable. `upstream`: no worker could answer. `upstream_key`: a
provider rejects the key of a worker, so a retry fails again. `failed`: a bug."""


class ErrorKind(NamedTuple):
    """The HTTP status of a reason, OpenAI's type and code, and Anthropic's type."""

    status: int
    openai_type: str
    openai_code: str | None
    anthropic_type: str


_INVALID: Final = "invalid_request_error"

ERRORS: Final[Mapping[Reason, ErrorKind]] = {
    "invalid": ErrorKind(400, _INVALID, None, _INVALID),
    "unauthenticated": ErrorKind(
        401, "authentication_error", "invalid_api_key", "authentication_error"
    ),
    "forbidden": ErrorKind(403, "permission_error", "permission_denied", "permission_error"),
    "not_found": ErrorKind(404, _INVALID, "not_found", "not_found_error"),
    "conflict": ErrorKind(409, _INVALID, "conflict", "conflict_error"),
    "too_large": ErrorKind(413, _INVALID, "request_too_large", "request_too_large"),
    "too_long": ErrorKind(400, _INVALID, "context_length_exceeded", _INVALID),
    "blocked": ErrorKind(400, _INVALID, "content_filter", _INVALID),
    "out_of_budget": ErrorKind(402, "insufficient_quota", "insufficient_quota", "billing_error"),
    "timeout": ErrorKind(408, "server_error", "timeout", "timeout_error"),
    "unprocessable": ErrorKind(422, _INVALID, "unprocessable_entity", _INVALID),
    "rate_limited": ErrorKind(429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"),
    "overloaded": ErrorKind(503, "server_error", "server_overloaded", "overloaded_error"),
    "upstream": ErrorKind(502, "server_error", "upstream_error", "api_error"),
    "upstream_key": ErrorKind(500, "server_error", "upstream_authentication_error", "api_error"),
    "failed": ErrorKind(500, "server_error", "internal_error", "api_error"),
}

_UPSTREAM_REASONS: Final[Mapping[int, Reason]] = {
    401: "upstream_key",
    402: "upstream_key",
    403: "upstream_key",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "unprocessable",
    425: "upstream",
    429: "rate_limited",
}
"""Reasons by a provider's status; any other 4xx is `invalid`, all else `upstream`."""

STORE_UNAVAILABLE: Final = (
    "the run store is unavailable; try again later, or tell the operator of this server"
)

RETRY_SECONDS: Final = 1.0
"""`Retry-After` where the wait is unknown."""


class ApiError(Exception):
    """A request is refused or failed.

    `field` is the path of the faulty field, such as `messages.2.content`. `code` is OpenAI's, where
    it says more than the reason. `request_id` is set once the request is known.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field
        self.code = code
        self.retry_after = retry_after
        self.request_id = ""

    @property
    def status(self) -> int:
        return ERRORS[self.reason].status

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after + 0.499)))
        if self.reason == "upstream_key":
            headers["X-Should-Retry"] = "false"
        if self.reason == "unauthenticated":
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def error_fields(error: ApiError) -> dict[str, Any]:
    """Return the fields of the log line of a failed request."""
    return {
        "request_id": error.request_id,
        "error_reason": error.reason,
        "error_message": str(error)[:MAX_LOGGED_MESSAGE],
        "field": error.field,
    }


def to_api_error(error: Exception, where: str = "a request") -> ApiError:
    """Convert an exception. Of an unexpected one the client learns no more than its type."""
    if isinstance(error, ApiError):
        return error
    converted = _convert(error)
    if converted is None:
        LOGGER.error("%s failed", where, exc_info=error)
        converted = ApiError("failed", f"internal server error: {type(error).__name__}")
    converted.__cause__ = error
    return converted


def invalid(field: str, message: str) -> ApiError:
    """Return the error for a faulty field of the body."""
    return ApiError("invalid", message, field=field)


def prompt_too_long(why: str) -> ApiError:
    """Return the error for a conversation that exceeds every worker's context window."""
    message = f"the prompt is too long for the workers of this server; shorten it: {why}"
    return ApiError("too_long", message, field="messages")


def upstream_error(message: str, status: int | None, retry_after: float | None = None) -> ApiError:
    """Return the error for a worker's failure, with the meaning of its provider's status."""
    is_refusal = status is not None and 400 <= status < 500
    reason = _UPSTREAM_REASONS.get(status or 0, "invalid" if is_refusal else "upstream")
    if reason == "rate_limited" and retry_after is None:
        retry_after = RETRY_SECONDS
    return ApiError(reason, message, retry_after=retry_after)


def budget_unavailable() -> ApiError:
    """Return the error for a key whose budget cannot be looked up."""
    message = "the remaining budget of this key cannot be looked up; try again"
    return ApiError("overloaded", message, retry_after=RETRY_SECONDS)


def _convert(error: Exception) -> ApiError | None:
    match error:
        case PlanError():
            return invalid("podium.workflow", str(error))
        case PromptTooLong():
            return prompt_too_long(str(error))
        case WorkerError():
            return upstream_error(str(error), error.status, error.retry_after)
        case StoreError():
            return _convert_store_error(error)
        case ConfigError():
            LOGGER.warning("request refused because of the configuration: %s", error)
            return ApiError("invalid", _without_remedy(error))
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
    return None if reason is None else ApiError(reason, str(error))


_REASONS: Final[tuple[tuple[type[PodiumError], Reason], ...]] = (
    (GuardrailBlocked, "blocked"),
    (BudgetExhausted, "out_of_budget"),
    (NotFound, "not_found"),
    (Conflict, "conflict"),
    (UsageError, "invalid"),
)
"""The reasons of errors whose message is the client's; the first that fits counts."""


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
