"""Convert a vendor's errors, a status or an error object, to a `WorkerError`.

All vendors use the same status codes and nearly the same JSON, so one reading serves all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from podium._util.addresses import redact_url, strip_credentials
from podium.core.errors import (
    AuthenticationFailed,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    Unavailable,
    WorkerError,
)

MESSAGE_CHARACTERS: Final = 400
SHORTEST_KEY: Final = 8

KEY_PREFIX: Final = 12
"""Characters of a key that identify it where a message cuts it short; vendors' common prefixes are
shorter."""

_MAYBE_BILLED: Final = frozenset({408, 504, 524})
"""Gateway timeouts: the model behind it may have continued and charged."""

_STATUS_OF: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 403,
    "insufficient_quota": 403,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status codes of vendors' error names."""

_TOO_LONG: Final = re.compile(
    r"maximum context length|exceeds? (the )?(available )?context|(prompt|input) (is )?too long"
    r"|exceeds the maximum number of tokens|context_length_exceeded|exceed_context_size",
    re.IGNORECASE,
)
"""Messages for a prompt that is too long; few servers have a code for it."""

_OUT_OF_CREDIT: Final = 403
"""A 429 without credit is a 403: waiting does not help."""


def error_from_status(
    worker: str, status: int, headers: Mapping[str, str], body: bytes
) -> WorkerError:
    document = _parse(body)
    detail = _vendor_message(document) or body.decode("utf-8", "replace")
    if 300 <= status < 400:
        target = redact_url(headers.get("Location", "nowhere"))
        detail = f"redirected to {target}; set base_url to that address"
    wait = _retry_after(headers, document)
    line = f"{worker} answered HTTP {status}"
    if status == 429 and _named_status(_error_in(document)) == _OUT_OF_CREDIT:
        status = _OUT_OF_CREDIT
    names = _names(_error_in(document))
    return _error(status, line, detail, wait, names, billed=status in _MAYBE_BILLED)


def error_from_stream(worker: str, error: Any) -> WorkerError:
    """Return the error that a vendor reported inside or instead of a reply."""
    label = next((name for name in _names(error) if isinstance(name, str) and name), "")
    detail = ": ".join(filter(None, (label, _vendor_message({"error": error}))))
    line = f"{worker} failed in the middle of its reply"
    wait = _retry_after({}, {"error": error})
    return _error(_named_status(error) or 500, line, detail, wait, _names(error), billed=True)


def truncated_stream(worker: str) -> WorkerError:
    return Unavailable(f"{worker} stopped streaming before its reply was complete", billed=True)


def clean_message(message: str, key: str = "") -> str:
    """Return a message on one line of bounded length, without keys or passwords.

    Keys shorter than any real one stay: replacing every "x" would garble the message.
    """
    line = " ".join(strip_credentials(redact_key(message, key)).split())
    return line if len(line) <= MESSAGE_CHARACTERS else line[: MESSAGE_CHARACTERS - 1] + "…"


def redact_key(message: str, key: str) -> str:
    """Remove the key, and its beginning where the message was cut."""
    if len(key) < SHORTEST_KEY:
        return message
    message = message.replace(key, "<key>")
    longest = len(key) - 1 if key[:KEY_PREFIX] in message else 0
    for length in range(longest, KEY_PREFIX - 1, -1):
        message = message.replace(key[:length], "<key>")
    return message


def _error(
    status: int,
    line: str,
    detail: str,
    retry_after: float | None,
    names: list[Any],
    *,
    billed: bool,
) -> WorkerError:
    """Classify; the remedy comes before the vendor's words, which are cut."""
    detail = f": {detail}" if detail else ""
    if status in (401, 402, 403):
        advice = "check its key, the key's permissions and credit"
        return AuthenticationFailed(f"{line}, {advice}{detail}", status=status)
    if status == 429:
        return RateLimited(f"{line}{detail}", retry_after=retry_after, billed=billed)
    if status in (408, 409, 425) or status >= 500:
        return Unavailable(f"{line}{detail}", retry_after=retry_after, billed=billed, status=status)
    if any(_TOO_LONG.search(str(item)) for item in (detail, *names)):
        return PromptTooLong(f"{line}, the prompt is too long{detail}", billed=billed)
    return RequestRefused(f"{line}{detail}", billed=billed, status=status)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_in(document: Any) -> Any:
    """Return the error object, whichever shape the vendor uses."""
    if isinstance(document, list) and document:
        document = document[0]
    return document.get("error", document) if isinstance(document, Mapping) else None


def _names(error: Any) -> list[Any]:
    names = ("code", "type", "status")
    return [error.get(name) for name in names] if isinstance(error, Mapping) else []


def _named_status(error: Any) -> int:
    """Return the status that the error's code, type or status implies, or 0."""
    for name in _names(error):
        if isinstance(name, int) or (isinstance(name, str) and re.fullmatch("[45][0-9]{2}", name)):
            if 400 <= int(name) < 600:
                return int(name)
        elif isinstance(name, str) and name in _STATUS_OF:
            return _STATUS_OF[name]
    return 0


def _vendor_message(document: Any) -> str:
    error = _error_in(document)
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or error.get("msg")
    if error is None:
        return ""
    return error if isinstance(error, str) else json.dumps(error)


def _retry_after(headers: Mapping[str, str], document: Any) -> float | None:
    waits = [
        _number(headers.get("retry-after-ms"), 0.001),
        _number(headers.get("Retry-After"), 1.0),
        _until(headers.get("Retry-After")),
        *(_duration(delay) for delay in _retry_delays(_error_in(document))),
    ]
    return next((max(0.0, wait) for wait in waits if wait is not None), None)


def _number(value: str | None, scale: float) -> float | None:
    if value is None or not re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]*)?\s*", value):
        return None
    return float(value) * scale


def _until(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - datetime.now(UTC)).total_seconds()


def _retry_delays(error: Any) -> Iterator[Any]:
    """Yield Google's delays in the error details: `{"retryDelay": "3.5s"}`."""
    details = error.get("details") if isinstance(error, Mapping) else None
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, Mapping):
            yield detail.get("retryDelay")


def _duration(value: Any) -> float | None:
    return _number(value.removesuffix("s"), 1.0) if isinstance(value, str) else None
