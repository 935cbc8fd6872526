"""What the server will not or cannot do, and why: one error, which every dialect words its own
way. Nothing here knows a wire format. `api_error_boundary` is where what Podium raises becomes
one."""

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
"""`invalid`: the body is at fault. `prompt_too_long`: it fits into no worker's window. `blocked`: a
guardrail did not let it pass. `out_of_budget`: money or tokens are spent. `overloaded`: this server
has too much to do, or cannot use its records. `upstream`: no worker could answer. `failed`: our own
fault."""

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
    "this server cannot use its records at the moment; try again later, or tell who runs it"
)
"""What a client is told of a store that fails; the log says how."""


RETRY_SECONDS: Final = 1.0
"""When to come back where nobody can know how long it takes."""


class ApiError(Exception):
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


def to_api_error(error: Exception) -> ApiError:
    """The error as a client may be told of it; of a fault of our own, no more than its kind."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StoreError):
        return _without_records(error)
    return ApiError("failed", f"the server failed: {type(error).__name__}")


def invalid(field: str, message: str) -> ApiError:
    """The body is at fault, in that field."""
    return ApiError("invalid", message, field=field)


def prompt_too_long(why: str) -> ApiError:
    """The conversation fits into no worker's window."""
    message = f"the prompt is too long for the workers here, so shorten it: {why}"
    return ApiError("too_long", message, field="messages")


def budget_unavailable() -> ApiError:
    """Nobody can tell what a key has left."""
    message = "what this key may still spend cannot be looked up now; try again"
    return ApiError("overloaded", message, retry_after=RETRY_SECONDS)


@contextmanager
def api_error_boundary() -> Iterator[None]:
    """The border: what Podium raises, as a `ApiError`."""
    try:
        yield
    except GuardrailBlocked as error:
        raise ApiError("blocked", str(error)) from error
    except BudgetExhausted as error:
        raise ApiError("out_of_budget", str(error)) from error
    except NotFound as error:
        raise ApiError("not_found", str(error)) from error
    except Conflict as error:
        raise ApiError("conflict", str(error)) from error
    except PlanError as error:
        raise invalid("podium.workflow", str(error)) from error
    except ConfigError as error:
        raise _of_the_configuration(error) from error
    except UsageError as error:
        raise ApiError("invalid", str(error)) from error
    except RateLimited as error:
        raise ApiError("rate_limited", str(error), retry_after=error.retry_after) from error
    except PromptTooLong as error:
        raise prompt_too_long(str(error)) from error
    except RequestRefused as error:
        raise ApiError("invalid", str(error)) from error
    except WorkerError as error:
        raise ApiError("upstream", str(error), retry_after=error.retry_after) from error
    except StoreError as error:
        raise _without_records(error) from error


def _without_records(error: StoreError) -> ApiError:
    """What a client may know of a store that fails: whether to come back."""
    LOGGER.error("%s", error)
    if isinstance(error, UnreadableRun):
        return ApiError("failed", _of_the_operators(error))
    if isinstance(error, BudgetUnavailable):
        return budget_unavailable()
    return ApiError("overloaded", STORE_UNAVAILABLE, retry_after=RETRY_SECONDS)


def _of_the_configuration(error: ConfigError) -> ApiError:
    """What a client may know of it: the fact, and not the remedy, which is for the log."""
    LOGGER.warning("refused for what is configured: %s", error)
    return ApiError("invalid", _of_the_operators(error))


def _of_the_operators(error: PodiumError) -> str:
    """The fact of the matter, without the remedy."""
    fact = str(error).partition(";")[0]
    return f"{fact}; only who runs this server can change that"
