from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from podium.core.errors import ConfigError, NotFound, StoreError
from podium.store.keys import Allowance, Amount, Key, KeyCharges, KeyUsage, Rules
from podium.store.sql.records import KeyStore
from podium.store.sql.run_store import SqlRunStore

KEY = Key(
    id="key_1",
    name="Ada's laptop",
    digest="d1",
    created_at="2026-01-02T03:04:05.678+00:00",
    rules=Rules(
        scopes=frozenset({"ask", "runs:read"}),
        tiers=frozenset({"mini"}),
        workers=frozenset(),
        exclude=frozenset({"anthropic", "gpt-5"}),
        per_request=Allowance(usd=0.5),
        per_day=Allowance(usd=1.0, tokens=1000),
        per_month=Allowance(tokens=20_000),
        in_total=Allowance(usd=100.0),
        requests_per_minute=60,
        tokens_per_minute=90_000,
    ),
    expires_at="2027-01-02T03:04:05.678+00:00",
)
OTHER = Key(id="key_2", name="CI", digest="d2", created_at="2026-01-03T00:00:00.000+00:00")


@pytest.fixture
async def keys(where: str) -> AsyncIterator[KeyStore]:
    store = await SqlRunStore.open(where, clock=lambda: "2026-06-01T00:00:00.000+00:00")
    await store.keys.add(KEY)
    await store.keys.add(OTHER)
    yield store.keys
    await store.close()


def used(day: str, model: str = "podium", *, key_id: str = "key_1") -> KeyUsage:
    return KeyUsage(
        key_id=key_id,
        day=day,
        model=model,
        requests=2,
        input_tokens=10,
        output_tokens=5,
        orchestration_input_tokens=4,
        orchestration_output_tokens=1,
        cost_usd=0.25,
        unknown_usage_count=1,
        unknown_cost_count=1,
        assumed_tokens=100,
        assumed_usd=0.5,
    )


async def test_a_key_comes_back_as_it_was(keys: KeyStore) -> None:
    assert await keys.key("key_1") == KEY
    assert await keys.key("key_2") == OTHER
    assert await keys.key("key_3") is None


async def test_keys_are_listed_the_newest_first(keys: KeyStore) -> None:
    assert await keys.keys() == [OTHER, KEY]


async def test_a_key_is_revoked_once_and_for_good(keys: KeyStore) -> None:
    await keys.revoke("key_1")
    revoked = await keys.key("key_1")
    assert revoked == replace(KEY, revoked_at="2026-06-01T00:00:00.000+00:00")
    keys._clock = lambda: "2027-01-01T00:00:00.000+00:00"
    await keys.revoke("key_1")
    assert await keys.key("key_1") == revoked
    assert await keys.key("key_2") == OTHER


async def test_only_a_key_that_is_there_is_revoked_or_changed(keys: KeyStore) -> None:
    with pytest.raises(NotFound, match="key not found: 'key_3'.*podium keys list"):
        await keys.revoke("key_3")
    with pytest.raises(NotFound, match="key not found: 'key_3'.*podium keys list"):
        await keys.change(replace(KEY, id="key_3"))


async def test_a_key_is_changed_by_itself_but_for_its_token_and_its_beginning(
    keys: KeyStore,
) -> None:
    rules = replace(KEY.rules, training=False)
    changed = replace(KEY, name="Eve", rules=rules, expires_at="2027-01-01T00:00:00.000+00:00")
    await keys.change(replace(changed, digest="another", created_at="2027"))
    assert await keys.key("key_1") == changed
    assert await keys.key("key_2") == OTHER


async def test_charges_of_all_keys_have_the_time_of_the_last_use(keys: KeyStore) -> None:
    await keys.quotas.record([used("2026-01-02"), used("2026-01-03")])
    charges = await keys.quotas.all_charges("2026-01-03")
    assert charges == {"key_1": await keys.quotas.charges("key_1", "2026-01-03")}
    assert charges["key_1"].day + charges["key_1"].day == charges["key_1"].month
    assert abs((charges["key_1"].used_at or 0) - time.time()) < 60
    assert (await keys.quotas.charges("key_2", "2026-01-03")).used_at is None


async def test_usage_adds_up_by_key_day_and_model(keys: KeyStore) -> None:
    await keys.quotas.record([used("2026-01-02"), used("2026-01-02", "mini")])
    await keys.quotas.record([used("2026-01-02"), used("2026-01-02", key_id="key_2")])
    twice = replace(
        used("2026-01-02"),
        requests=4,
        input_tokens=20,
        output_tokens=10,
        orchestration_input_tokens=8,
        orchestration_output_tokens=2,
        cost_usd=0.5,
        unknown_usage_count=2,
        unknown_cost_count=2,
        assumed_tokens=200,
        assumed_usd=1.0,
    )
    assert await keys.usage() == [
        used("2026-01-02", "mini"),
        twice,
        used("2026-01-02", key_id="key_2"),
    ]
    assert await keys.usage(key_id="key_2") == [used("2026-01-02", key_id="key_2")]


async def test_usage_is_listed_from_a_day_to_a_day(keys: KeyStore) -> None:
    days = ["2026-01-01", "2026-01-02", "2026-01-03"]
    await keys.quotas.record([used(day) for day in days])
    assert [row.day for row in await keys.usage(since="2026-01-02")] == days[1:]
    assert [row.day for row in await keys.usage(until="2026-01-02")] == days[:2]
    assert [row.day for row in await keys.usage(since="2026-01-02", until="2026-01-02")] == [
        "2026-01-02"
    ]


async def test_charges_are_summed_by_day_month_and_in_total(keys: KeyStore) -> None:
    assert await keys.quotas.charges("key_1", "2026-02-28") == KeyCharges()
    await keys.quotas.record(
        [
            used("2026-01-31"),
            used("2026-02-01"),
            used("2026-02-28"),
            used("2026-02-28", "mini"),
            used("2026-02-28", key_id="key_2"),
            used("2026-03-01"),
        ]
    )
    item = Amount(0.75, 115)
    assert await keys.quotas.charges("key_1", "2026-02-28") == KeyCharges(
        day=item + item, month=item + item + item, total=Amount(3.75, 575)
    )


async def test_many_writers_lose_nothing(where: str, keys: KeyStore) -> None:
    other = await SqlRunStore.open(where)
    rows = [used("2026-01-02")]
    await asyncio.gather(
        *(store.quotas.record(rows) for store in (keys, other.keys) for _ in range(20))
    )
    await other.close()
    (row,) = await keys.usage()
    assert (row.requests, row.cost_usd) == (80, 10.0)


async def test_a_batch_is_written_whole_or_not_at_all(keys: KeyStore) -> None:
    with pytest.raises(StoreError):
        await keys.quotas.record([used("2026-01-02"), used("2026-01-02", key_id="key_of_nobody")])
    assert await keys.usage() == []


async def test_a_rule_that_this_podium_does_not_know_is_not_taken_for_none(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    await store.keys.add(KEY)
    database = sqlite3.connect(tmp_path / "podium.db")
    database.execute("""UPDATE keys SET rules = '{"only_on_sundays": true}'""")
    database.commit()
    database.close()
    with pytest.raises(StoreError, match="cannot read the rules of key key_1"):
        await store.keys.key("key_1")
    await store.close()


@pytest.mark.parametrize("cap", [-1.0, float("inf"), float("nan")])
def test_a_cap_is_a_number_from_0_up(cap: float) -> None:
    with pytest.raises(ConfigError, match="expected a number from 0 up"):
        Allowance(usd=cap)


def test_a_rate_is_a_number_from_1_up() -> None:
    with pytest.raises(ConfigError, match="requests_per_minute is 0"):
        Rules(requests_per_minute=0)


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown scope 'write'; expected one of ask, plan, "):
        Rules(scopes=frozenset({"ask", "write"}))  # type: ignore[arg-type]


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="unknown tier 'huge'; expected one of mini, podium, ultra"
    ):
        Rules(tiers=frozenset({"mini", "huge"}))  # type: ignore[arg-type]
