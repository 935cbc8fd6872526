from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.support import REPOSITORY, Podium
from podium.server.access.keys import matches, parse_token
from podium.store import open_store
from podium.store.keys import SCOPES, Key, KeyUsage

NO_CAPS = {"usd": None, "tokens": None}


def stored() -> list[Key]:
    async def read() -> list[Key]:
        store = await open_store()
        try:
            return await store.keys.keys()
        finally:
            await store.close()

    return asyncio.run(read())


def record(*used: KeyUsage) -> None:
    async def write() -> None:
        store = await open_store()
        await store.keys.quotas.record(used)
        await store.close()

    asyncio.run(write())


def test_a_new_key_is_shown_once_and_kept_as_a_digest(podium: Podium, home: Path) -> None:
    ended = podium("keys", "create", "Ada")
    token = ended.out.strip()
    shown = parse_token(token)
    (key,) = stored()
    assert ended.code == 0
    assert shown is not None
    assert matches(shown, key)
    assert ended.complaint.startswith(f"created {key.id} ('Ada'); the token is not shown again")
    secret = token.split("_", 2)[2]
    assert not any(secret.encode() in file.read_bytes() for file in home.rglob("*.db*"))
    assert secret not in podium("keys", "list", "--json").out


def test_a_key_has_the_rules_that_were_asked_for(podium: Podium) -> None:
    made = podium(
        *("keys", "create", "Ada", "--json"),
        *("--scope", "ask", "--scope", "runs:read", "--tier", "mini", "--worker", "gpt"),
        *("--exclude", "anthropic", "--exclude", "openai"),
        *("--usd-per-request", "0.5", "--usd-per-day", "1", "--usd-per-month", "10"),
        *("--usd-in-total", "50", "--tokens-per-request", "100", "--tokens-per-day", "200"),
        *("--tokens-per-month", "300", "--tokens-in-total", "400"),
        *("--requests-per-minute", "60", "--tokens-per-minute", "9000", "--no-training"),
    ).json
    assert made["token"].startswith("pk_")
    made["token"] = None
    assert podium("keys", "list", "--json").json == [made]
    key_id = made.pop("id")
    del made["created_at"], made["usage"], made["token"]
    assert made == {
        "object": "key",
        "last_used_at": None,
        "name": "Ada",
        "state": "active",
        "expires_at": None,
        "revoked_at": None,
        "scopes": ["ask", "runs:read"],
        "tiers": ["mini"],
        "workers": ["gpt"],
        "exclude": ["anthropic", "openai"],
        "training": False,
        "per_request": {"usd": 0.5, "tokens": 100},
        "per_day": {"usd": 1.0, "tokens": 200},
        "per_month": {"usd": 10.0, "tokens": 300},
        "in_total": {"usd": 50.0, "tokens": 400},
        "requests_per_minute": 60,
        "tokens_per_minute": 9000,
    }
    line = podium("keys", "list").out
    assert line.startswith(key_id)
    for words in ("active", "Ada: ask runs:read, tiers mini", "without anthropic openai"):
        assert words in line
    assert "$1.00 and 200 tokens per day" in line
    assert "60 requests per minute" in line


def test_a_key_without_rules_may_do_everything_but_administer(podium: Podium) -> None:
    made = podium("keys", "create", "Ada", "--json").json
    assert made["scopes"] == ["ask", "plan", "workflow", "runs:read", "runs:delete", "gateway"]
    assert (made["tiers"], made["workers"], made["exclude"]) == (None, None, [])
    assert made["per_day"] == made["in_total"] == NO_CAPS


@pytest.mark.parametrize(("given", "days"), [("30d", 30.0), ("12h", 0.5)], ids=["days", "hours"])
def test_a_key_ends_after_a_while(podium: Podium, given: str, days: float) -> None:
    made = podium("keys", "create", "Ada", "--expires", given, "--json").json
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert abs(left - timedelta(days=days)) < timedelta(minutes=1)


def test_a_key_ends_on_a_day(podium: Podium) -> None:
    made = podium("keys", "create", "Ada", "--expires", "2999-01-31", "--json").json
    assert made["expires_at"] == "2999-01-31T00:00:00.000+00:00"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--expires", "soon"), "--expires 'soon' is not a time; give 12h, 30d or 2027-01-31"),
        (("--expires", "2020-01-31"), "is in the past"),
        (("--expires", "0d"), "is in the past"),
        (("--scope", "write"), "unknown scope 'write'; expected one of ask"),
        (("--tier", "huge"), "unknown tier 'huge'; expected one of mini"),
        (("--usd-per-day", "-1"), "greater than or equal to 0"),
        (("--usd-per-day", "inf"), "expected a finite number"),
        (("--requests-per-minute", "0"), "greater than or equal to 1"),
        (("--exclude", "antropic"), "did you mean 'anthropic'?"),
    ],
)
def test_invalid_rules_are_refused_and_make_no_key(
    podium: Podium, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = podium("keys", "create", "Ada", *arguments)
    assert ended.code == 2
    assert complaint in ended.complaint
    assert stored() == []


def test_a_worker_of_the_pool_can_be_excluded(podium: Podium, tmp_path: Path) -> None:
    config = tmp_path / "podium.toml"
    config.write_text('[[worker]]\nname = "solver"\nprovider = "scripted"\n')
    made = podium("keys", "create", "Ada", "--exclude", "solver", "--config", config, "--json")
    assert made.json["exclude"] == ["solver"]


def test_two_keys_of_one_name_are_not_made_while_both_would_work(podium: Podium) -> None:
    assert podium("keys", "create", "Ada").code == 0
    ended = podium("keys", "create", "Ada")
    assert (ended.code, ended.out) == (2, "")
    assert "there is already a key named 'Ada'" in ended.complaint
    podium("keys", "revoke", "Ada")
    assert podium("keys", "create", "Ada").code == 0


@pytest.mark.parametrize("named", ["id", "short", "begun", "name"])
def test_a_key_is_revoked_by_its_id_or_its_name(podium: Podium, named: str) -> None:
    podium("keys", "create", "Bob")
    key_id = podium("keys", "create", "Ada", "--json").json["id"]
    given = {"id": key_id, "short": key_id[4:], "begun": key_id[:12], "name": "Ada"}[named]
    ended = podium("keys", "revoke", given)
    assert (ended.code, ended.out) == (0, f"revoked {key_id} (Ada)\n")
    states = {key["name"]: key["state"] for key in podium("keys", "list", "--json").json}
    assert states == {"Ada": "revoked", "Bob": "active"}


def test_the_last_administrator_is_revoked_only_on_purpose(podium: Podium) -> None:
    podium("keys", "create", "root", "--scope", "admin")
    ended = podium("keys", "revoke", "root")
    assert ended.code == 2
    assert "last active key with the scope admin" in ended.complaint
    assert podium("keys", "revoke", "root", "--force").code == 0


@pytest.mark.parametrize("named", ["Eve", "", "key_zzz"])
def test_an_unknown_key_cannot_be_revoked(podium: Podium, named: str) -> None:
    podium("keys", "create", "Ada")
    ended = podium("keys", "revoke", named)
    assert ended.code == 2
    assert f"key not found: {named!r}" in ended.complaint


def test_a_beginning_that_several_keys_share_names_them(podium: Podium) -> None:
    ids = {podium("keys", "create", name, "--json").json["id"] for name in ("Ada", "Bob")}
    ended = podium("keys", "revoke", "key_")
    assert ended.code == 2
    assert all(key_id in ended.complaint for key_id in ids)


def test_an_expired_key_is_listed_as_one(podium: Podium, home: Path) -> None:
    podium("keys", "create", "Ada", "--expires", "1h")
    (database,) = home.rglob("podium.db")
    connection = sqlite3.connect(database)
    connection.execute("UPDATE keys SET expires_at = '2020-01-01T00:00:00.000+00:00'")
    connection.commit()
    connection.close()
    assert podium("keys", "list", "--json").json[0]["state"] == "expired"


def test_an_empty_list_says_what_to_do(podium: Podium) -> None:
    assert "podium keys create NAME" in podium("keys", "list").complaint
    assert podium("keys", "list", "--json").json == []
    assert "no usage" in podium("keys", "usage").complaint


def test_usage_is_reported_by_key_day_and_model_with_its_cost(podium: Podium) -> None:
    ada, bob = (podium("keys", "create", name, "--json").json["id"] for name in ("Ada", "Bob"))
    known = KeyUsage(
        key_id=ada,
        day="2026-01-02",
        model="podium",
        requests=3,
        input_tokens=1200,
        output_tokens=300,
        orchestration_input_tokens=100,
        orchestration_output_tokens=50,
        cost_usd=0.25,
    )
    unknown = KeyUsage(
        key_id=bob,
        day="2026-01-03",
        model="gpt",
        requests=1,
        unknown_usage_count=1,
        unknown_cost_count=1,
    )
    record(known, unknown)
    first, second = podium("keys", "usage").out.splitlines()
    assert first == (
        f"2026-01-02 {ada} Ada podium: 3 requests, 1,500 tokens (150 of them orchestration), $0.25"
    )
    assert second == (
        f"2026-01-03 {bob} Bob gpt: 1 request, 0 tokens, unknown for 1 request, "
        f"$0, unknown for 1 request"
    )
    (row,) = podium("keys", "usage", "Ada", "--json").json
    assert (row["name"], row["key_id"], row["cost_usd"]) == ("Ada", ada, 0.25)
    for narrowing, name in ((("--since", "2026-01-03"), "Bob"), (("--until", "2026-01-02"), "Ada")):
        (row,) = podium("keys", "usage", *narrowing, "--json").json
        assert row["name"] == name


def test_a_key_is_kept_out_of_training_later_and_let_in_again(podium: Podium) -> None:
    key_id = podium("keys", "create", "Ada", "--usd-per-day", "2", "--json").json["id"]
    before = stored()[0].rules
    assert podium("keys", "training", "Ada", "off").out == f"{key_id} (Ada): not for training\n"
    assert stored()[0].rules == replace(before, training=False)
    podium("keys", "revoke", "Ada")
    assert podium("keys", "training", key_id, "on").out == f"{key_id} (Ada): training allowed\n"
    assert stored()[0].rules == before
    changes = [
        (entry["subject"], entry["details"]["changed"])
        for entry in podium("audit", "list", "--json").json
        if entry["action"] == "key changed"
    ]
    assert changes == [(key_id, "training=true"), (key_id, "training=false")]
    assert podium("keys", "training", "Ada", "maybe").code == 2
    assert podium("keys", "training", "Eve", "off").code == 2


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("Eve",)])
def test_usage_of_an_unknown_key_or_day_is_refused(
    podium: Podium, arguments: tuple[str, ...]
) -> None:
    assert podium("keys", "usage", *arguments).code == 2


def test_every_command_on_the_page_of_keys_works(podium: Podium) -> None:
    page = (REPOSITORY / "docs" / "reference" / "keys.md").read_text("utf-8")
    commands = re.findall(r"^\$ podium (keys .+)$", page, re.M)
    assert {command.split()[1] for command in commands} == {
        "create",
        "list",
        "usage",
        "training",
        "revoke",
    }
    for command in commands:
        assert podium(*shlex.split(command)).code == 0, command


def test_every_scope_is_on_the_page_of_keys() -> None:
    page = (REPOSITORY / "docs" / "reference" / "keys.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([\w:]+)` \|", page, re.M)) == set(SCOPES)


def test_the_command_does_not_import_the_web_server() -> None:
    script = "import sys, podium.cli.keys; print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    loaded = {name.partition(".")[0] for name in shown.stdout.split()}
    assert loaded.isdisjoint({"fastapi", "uvicorn", "sqlalchemy"})
