"""Spending by key, tier, worker or day (UTC).

Usage of keys comes from the key's usage records, whatever became of the run; runs without a key
come from the store. No request is in both. Only runs know their workers, so spending by worker is
added up from runs, and the rest is shown separately. Unknown amounts are counted, not summed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, Literal

from podium.core.run import Tier
from podium.server.model_catalog import parse_tier
from podium.server.statistics.workers import RunDigest
from podium.store.base import DailyTotals
from podium.store.keys import KeyUsage

DAY_SECONDS: Final = 86_400

By = Literal["key", "tier", "worker", "day"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A sum of spending. `requests` come from clients, `calls` go to workers (None if unknown).
    `unknown_cost` and `unknown_tokens` count what is in no sum; `assumed_usd` is what keys were
    charged for it."""

    requests: int = 0
    calls: int | None = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unknown_tokens: int = 0
    unknown_cost: int = 0
    assumed_usd: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            requests=self.requests + other.requests,
            calls=None if self.calls is None or other.calls is None else self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unknown_tokens=self.unknown_tokens + other.unknown_tokens,
            unknown_cost=self.unknown_cost + other.unknown_cost,
            assumed_usd=self.assumed_usd + other.assumed_usd,
        )


NOTHING = Spending()


@dataclass(frozen=True, slots=True)
class SpendingEntry:
    """Spending of a key (empty: none) on a day, for a tier or a worker called by name."""

    day: str
    key_id: str
    tier: Tier | None
    worker: str | None
    spent: Spending


@dataclass(frozen=True, slots=True)
class SpendingGroup:
    """Spending of one key, tier, worker or day, in total and by day."""

    name: str
    total: Spending
    days: Mapping[str, Spending]


def spending_entries(
    used: Iterable[KeyUsage], unowned: Iterable[DailyTotals]
) -> list[SpendingEntry]:
    """Return the entries of usage records and of runs without a key."""
    return [_of_key(usage) for usage in used] + [_of_runs(sums) for sums in unowned]


def _of_key(usage: KeyUsage) -> SpendingEntry:
    tier = parse_tier(usage.model)
    spent = Spending(
        requests=usage.requests,
        calls=None,
        tokens=usage.input_tokens + usage.output_tokens,
        cost_usd=usage.cost_usd,
        unknown_tokens=usage.unknown_tokens,
        unknown_cost=usage.unknown_cost,
        assumed_usd=usage.assumed_usd,
    )
    worker = usage.model if tier is None else None
    return SpendingEntry(usage.day, usage.key_id, tier, worker, spent)


def _of_runs(sums: DailyTotals) -> SpendingEntry:
    spent = Spending(
        requests=sums.runs,
        calls=None,
        tokens=sums.tokens,
        cost_usd=sums.cost_usd,
        unknown_tokens=sums.unknown_tokens,
        unknown_cost=sums.unknown_cost,
    )
    return SpendingEntry(sums.day, "", sums.tier, None, spent)


DIRECTLY = "gateway"
"""Stands among the tiers for workers called by name."""


def group_spending(spending_entries: Iterable[SpendingEntry], by: By) -> list[SpendingGroup]:
    """Group by key, tier or day; most expensive first, days in order."""
    found = defaultdict[str, dict[str, Spending]](dict)
    for entry in spending_entries:
        match by:
            case "key":
                name = entry.key_id
            case "tier":
                name = entry.tier or DIRECTLY
            case "day":
                name = entry.day
            case "worker":
                raise AssertionError("only runs know their workers")
        _put(found[name], entry.day, entry.spent)
    groups = [_group(name, days) for name, days in found.items()]
    return (
        sorted(groups, key=lambda group: group.name)
        if by == "day"
        else _most_expensive_first(groups)
    )


def group_by_worker(
    spending_entries: Iterable[SpendingEntry], digests: Iterable[RunDigest], since: str, until: str
) -> list[SpendingGroup]:
    """Group by worker: calls in runs, and requests by its name. Calls after midnight in a run of
    the last day count for that day."""
    found = defaultdict[str, dict[str, Spending]](dict)
    for digest in digests:
        is_known = digest.is_cost_known
        for call in digest.calls:
            spent = Spending(
                calls=1,
                tokens=call.tokens or 0,
                unknown_tokens=int(call.tokens is None),
                cost_usd=call.cost_usd or 0.0 if is_known else 0.0,
                unknown_cost=int(call.cost_usd is None),
            )
            _put(found[call.worker], min(max(_day(call.at), since), until), spent)
    for entry in spending_entries:
        if entry.worker is not None:
            asked_by_name = replace(entry.spent, calls=0)  # none of them in a run
            _put(found[entry.worker], entry.day, asked_by_name)
    return _most_expensive_first([_group(name, days) for name, days in found.items()])


@lru_cache(maxsize=4096)
def _day_of(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def _day(seconds: float) -> str:
    return _day_of(int(seconds // DAY_SECONDS))


def total_spending(spending_entries: Iterable[SpendingEntry]) -> Spending:
    """Sum all entries."""
    return sum((entry.spent for entry in spending_entries), NOTHING)


def _put(days: dict[str, Spending], day: str, spent: Spending) -> None:
    days[day] = days.get(day, NOTHING) + spent


def _group(name: str, days: Mapping[str, Spending]) -> SpendingGroup:
    return SpendingGroup(name, sum(days.values(), NOTHING), dict(sorted(days.items())))


def _most_expensive_first(groups: list[SpendingGroup]) -> list[SpendingGroup]:
    return sorted(groups, key=lambda group: (-group.total.cost_usd, group.name))
