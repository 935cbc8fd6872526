"""The `podium` object of a body: what only Podium understands. It may be said in headers, for
clients whose body is not theirs to shape.

    X-Podium-Budget: usd=0.50, calls=12
    X-Podium-Exclude: deepseek, gpt-5
    X-Podium-Max-Steps: 3
    X-Podium-Rounds: 2
    X-Podium-Quality-Bias: 0.2
    X-Podium-Workflow: {"steps": [...]}

Headers are read into the object that the dialects read, so both are checked in one place. What
is said in both is refused: nobody could tell which was meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Protocol

from podium.core.errors import ConfigError
from podium.core.exclusion import check_excluded
from podium.server.api_error import invalid
from podium.server.dialects.base import PodiumParams
from podium.server.dialects.fields import Reader, document, listed, number, opened, text_of, whole

FIELD: Final = "podium"

BUDGET_CAPS: Final = ("calls", "tokens", "usd", "seconds", "depth")
WISHES: Final = frozenset({"budget", "exclude", "max_steps", "rounds", "workflow", "quality_bias"})


class Headers(Protocol):
    """The headers of a request."""

    def get(self, name: str, /) -> str | None:
        """One of them; `name` in lower case."""
        ...


def wished(value: object, path: str) -> PodiumParams:
    """The `podium` object, read."""
    fields = opened(value, path).only(WISHES)
    exclude = fields.optional("exclude", listed(text_of(1, 200), most=1000))
    return PodiumParams(
        budget=fields.optional("budget", _budget) or {},
        exclude=frozenset(exclude or ()),
        max_steps=fields.optional("max_steps", whole(1, 100)),
        rounds=fields.optional("rounds", whole(1, 100)),
        workflow=fields.optional("workflow", document),
        quality_bias=fields.optional("quality_bias", number(0, 1)),
    )


def _budget(value: object, path: str) -> dict[str, float]:
    fields = opened(value, path).only(BUDGET_CAPS)
    caps: dict[str, float] = {}
    for name in BUDGET_CAPS:
        read: Reader[float] = number(0, 1e12) if name in ("usd", "seconds") else whole(0)
        if (cap := fields.optional(name, read)) is not None:
            caps[name] = cap
    return caps


def with_headers(body: dict[str, Any], headers: Headers) -> dict[str, Any]:
    """The body with what the headers wish for in its `podium` object."""
    said: dict[str, Any] = {}
    for name, read in _READERS.items():
        value = headers.get(f"x-podium-{name.replace('_', '-')}")
        if value is not None:
            said[name] = read(value, name)
    if not said:
        return body
    own = body.get(FIELD) or {}
    if not isinstance(own, dict):
        return body  # the dialect says what is wrong with it
    for name in said:
        if own.get(name) is not None:
            raise invalid(
                f"{FIELD}.{name}", f"{FIELD}.{name} is in the body and in a header; send one"
            )
    return {**body, FIELD: {**own, **said}}


def excluded(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The names that a client excludes; refused where nobody has one."""
    try:
        return check_excluded(names, known)
    except ConfigError as error:
        raise invalid("podium.exclude", str(error)) from error


def _caps(value: str, name: str) -> dict[str, float]:
    caps: dict[str, float] = {}
    for part in value.split(","):
        cap, _, amount = part.partition("=")
        caps[cap.strip()] = _number(amount, name)
    return caps


def _names(value: str, name: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _number(value: str, name: str) -> float:
    try:
        return float(value) if "." in value or "e" in value.lower() else int(value)
    except ValueError:
        header = f"X-Podium-{name.replace('_', '-').title()}"
        raise invalid(
            f"{FIELD}.{name}", f"{header}: expected a number, got {value[:40]!r}"
        ) from None


def _json(value: str, name: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{FIELD}.{name}", f"X-Podium-Workflow is not JSON: {error}") from None


_READERS: Final = MappingProxyType[str, Callable[[str, str], Any]](
    {
        "budget": _caps,
        "exclude": _names,
        "max_steps": _number,
        "rounds": _number,
        "workflow": _json,
        "quality_bias": _number,
    }
)
