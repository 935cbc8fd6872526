"""Keys in words and as JSON: what each may do, and what was used with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final, Literal

from podium.cli.wording import counted, local_time, money, tokens
from podium.core.run import timestamp
from podium.store.keys import NO_CAP, SCOPES, Allowance, Key, KeyUsage

State = Literal["active", "revoked", "expired"]

PERIODS: Final = (
    ("per_request", "a request"),
    ("per_day", "a day"),
    ("per_month", "a month"),
    ("in_total", "in all"),
)
"""The rules that cap money and tokens, and what they say."""


def state_of(key: Key) -> State:
    """Whether the key can still be used."""
    if key.revoked_at is not None:
        return "revoked"
    # Both are in UTC and written alike, so the later one is the greater text.
    return "expired" if key.expires_at is not None and key.expires_at <= timestamp() else "active"


def key_document(key: Key) -> dict[str, Any]:
    """A key as JSON; the digest of its token stays where it is."""
    rules = key.rules
    return {
        "id": key.id,
        "name": key.name,
        "state": state_of(key),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "scopes": [scope for scope in SCOPES if scope in rules.scopes],
        "tiers": None if rules.tiers is None else sorted(rules.tiers),
        "workers": None if rules.workers is None else sorted(rules.workers),
        "exclude": sorted(rules.exclude),
        "training": rules.training,
        **{name: asdict(getattr(rules, name)) for name, _ in PERIODS},
        "requests_per_minute": rules.requests_per_minute,
        "tokens_per_minute": rules.tokens_per_minute,
    }


def rules_line(key: Key) -> str:
    """What the key may do, in a line."""
    rules = key.rules
    parts = [" ".join(scope for scope in SCOPES if scope in rules.scopes)]
    if rules.tiers is not None:
        parts.append(f"tiers {' '.join(sorted(rules.tiers))}")
    if rules.workers is not None:
        parts.append(f"workers {' '.join(sorted(rules.workers))}")
    if rules.exclude:
        parts.append(f"without {' '.join(sorted(rules.exclude))}")
    if not rules.training:
        parts.append("not for training")
    for name, words in PERIODS:
        cap: Allowance = getattr(rules, name)
        if cap != NO_CAP:
            caps = [money(cap.usd)] if cap.usd is not None else []
            caps += [tokens(cap.tokens)] if cap.tokens is not None else []
            parts.append(f"{' and '.join(caps)} {words}")
    if rules.requests_per_minute is not None:
        parts.append(f"{counted(rules.requests_per_minute, 'request')} a minute")
    if rules.tokens_per_minute is not None:
        parts.append(f"{tokens(rules.tokens_per_minute)} a minute")
    if key.expires_at is not None:
        parts.append(f"until {local_time(key.expires_at)}")
    return ", ".join(parts)


def usage_line(row: KeyUsage) -> str:
    """What was used, in a line."""
    used = tokens(row.input_tokens + row.output_tokens)
    conducting = row.orchestration_input_tokens + row.orchestration_output_tokens
    if conducting:
        used += f" ({conducting:,} of them orchestration)"
    if row.unknown_tokens:
        used += f" and those of {counted(row.unknown_tokens, 'request')} unknown"
    cost = money(row.cost_usd)
    if row.unknown_cost:
        cost += f" and the cost of {counted(row.unknown_cost, 'request')} unknown"
    return f"{counted(row.requests, 'request')}, {used}, {cost}"
