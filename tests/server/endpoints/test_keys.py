"""API keys over HTTP: created, listed, changed and revoked by an administrator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price, Usage
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import NewKey, make_key
from podium.store.keys import DEFAULT_SCOPES, Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.serving import PLAIN, Served, application, serving

KEYS = "/v1/keys"
PRICED = WorkerProfile(name="solo", provider="scripted", price=Price(input=1000.0, output=0.0))


@dataclass
class Desk:
    """A server, and the administrator's key."""

    served: Served
    store: SqlRunStore
    root: NewKey

    async def ask(
        self, method: str, path: str = KEYS, body: Any = None, token: str = "", **more: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.root.token}"}
        return await self.served.client.request(method, path, headers=headers, json=body, **more)

    async def create(self, **fields: Any) -> Any:
        response = await self.ask("POST", body={"name": "laptop", **fields})
        assert response.status_code == 201, response.text
        return response.json()

    async def audited(self) -> list[tuple[str, str, str]]:
        entries = await self.store.audit.entries(limit=100)
        return [(entry.action, entry.actor_name, entry.details) for entry in entries]


@asynccontextmanager
async def desk_for(directory: Path, *, shared: bool = False) -> AsyncIterator[Desk]:
    store = await SqlRunStore.open(directory / "podium.db")
    root = make_key("root", Rules(scopes=frozenset({"admin"})))
    await store.keys.add(root.key)
    worker = ScriptedWorker(PRICED, "yes", usage=Usage(1, 1, 0, 0, 0))
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)), shared=shared)
    app = application([worker], store=store, access=access, shared=shared)
    async with serving(app) as served:
        yield Desk(served, store, root)
        await access.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_for(tmp_path) as desk:
        yield desk


async def test_a_new_key_works_at_once_and_its_token_is_shown_once(desk: Desk) -> None:
    made = await desk.create(
        scopes=["ask", "gateway", "runs:read"],
        tiers=["mini"],
        workers=["solo"],
        exclude=["anthropic"],
        per_day={"usd": 2},
        requests_per_minute=60,
        expires_at="2999-01-31T00:00:00Z",
    )
    token = made["token"]
    assert token.startswith("pk_")
    made["token"] = None
    assert made["object"] == "key"
    assert (made["scopes"], made["tiers"]) == (["ask", "runs:read", "gateway"], ["mini"])
    assert (made["workers"], made["exclude"]) == (["solo"], ["anthropic"])
    assert made["per_day"] == {"usd": 2.0, "tokens": None}
    assert made["expires_at"] == "2999-01-31T00:00:00.000+00:00"
    assert made["last_used_at"] is None
    own = await desk.ask("GET", f"{KEYS}/{made['id']}", token=token)
    assert own.json() == made
    listed = (await desk.ask("GET")).json()
    assert [key["name"] for key in listed["data"]] == ["laptop", "root"]
    assert listed["data"][0] == made
    assert token not in (await desk.ask("GET")).text


async def test_a_key_without_rules_has_the_usual_scopes(desk: Desk) -> None:
    assert set((await desk.create())["scopes"]) == DEFAULT_SCOPES


async def test_usage_is_shown_with_the_rest_and_its_reset(desk: Desk) -> None:
    made = await desk.create(per_day={"usd": 0.01}, in_total={"tokens": 50})
    answer = await desk.ask("POST", PLAIN, {"model": "solo", "ask": "?"}, token=made["token"])
    assert answer.status_code == 200
    shown = (await desk.ask("GET", f"{KEYS}/{made['id']}")).json()
    day, month, total = (shown["usage"][period] for period in ("day", "month", "total"))
    assert day["used"] == month["used"] == total["used"] == {"usd": 0.001, "tokens": 2}
    assert day["left"] == {"usd": pytest.approx(0.009), "tokens": None}
    assert month["left"] == {"usd": None, "tokens": None}
    assert total["left"] == {"usd": None, "tokens": 48}
    now = datetime.now(UTC)
    resets = datetime.fromisoformat(day["resets_at"])
    assert timedelta() < resets - now <= timedelta(days=1)
    assert (resets.hour, resets.minute) == (0, 0)
    assert datetime.fromisoformat(month["resets_at"]).day == 1
    assert total["resets_at"] is None
    last_used = datetime.fromisoformat(shown["last_used_at"])
    assert abs(now - last_used) < timedelta(minutes=1)


async def test_a_spent_budget_of_a_key_is_named_with_its_use_and_its_reset(desk: Desk) -> None:
    made = await desk.create(per_day={"usd": 0.01})
    token, ask = made["token"], {"model": "solo", "ask": "?"}
    assert (await desk.ask("POST", PLAIN, ask, token=token)).status_code == 200
    refused = await desk.ask("POST", PLAIN, {**ask, "ask": "?" * 30}, token=token)
    assert refused.status_code == 402
    assert (
        "daily budget of key 'laptop' is too small for this call: $0.001 used of $0.01, "
        "resets 00:00 UTC" in refused.text
    )
    path = f"{KEYS}/{made['id']}"
    await desk.ask("PATCH", path, {"per_day": {"usd": 0.001}})
    refused = await desk.ask("POST", PLAIN, ask, token=token)
    assert refused.status_code == 402
    assert (
        "daily budget of key 'laptop' is spent: $0.001 used of $0.001, resets 00:00 UTC"
        in refused.text
    )
    await desk.ask("PATCH", path, {"per_day": None, "per_request": {"usd": 0.0001}})
    refused = await desk.ask("POST", PLAIN, ask, token=token)
    assert refused.status_code == 402
    assert (
        "budget per request of key 'laptop' is spent: a request is capped at $0.0001"
        in refused.text
    )


@pytest.mark.parametrize("shared", [False, True], ids=["one process", "several"])
async def test_a_changed_cap_holds_from_the_next_request(tmp_path: Path, shared: bool) -> None:
    async with desk_for(tmp_path, shared=shared) as desk:
        made = await desk.create()
        path, ask = f"{KEYS}/{made['id']}", {"model": "solo", "ask": "?"}

        async def status() -> int:
            return (await desk.ask("POST", PLAIN, ask, token=made["token"])).status_code

        assert await status() == 200
        changed = await desk.ask("PATCH", path, {"per_month": {"usd": 0.001}, "name": "phone"})
        assert changed.status_code == 200
        assert changed.json()["name"] == "phone"
        assert await status() == 402
        await desk.ask("PATCH", path, {"per_month": None})
        assert await status() == 200
        await desk.ask("PATCH", path, {"requests_per_minute": 1})
        assert [await status(), await status()] == [200, 429]
        await desk.ask("PATCH", path, {"requests_per_minute": None, "scopes": ["ask"]})
        assert await status() == 403


async def test_a_change_leaves_what_it_does_not_name_as_it_is(desk: Desk) -> None:
    made = await desk.create(per_day={"usd": 1, "tokens": 10}, exclude=["openai"], tiers=["mini"])
    made["token"] = None
    path = f"{KEYS}/{made['id']}"
    changed = (await desk.ask("PATCH", path, {"per_day": {"usd": 5}, "tiers": None})).json()
    assert changed["per_day"] == {"usd": 5.0, "tokens": 10}
    assert changed["tiers"] is None
    left = {"per_day", "tiers", "usage"}
    assert {name: changed[name] for name in changed.keys() - left} == {
        name: made[name] for name in made.keys() - left
    }
    changed = (await desk.ask("PATCH", path, {"per_day": {"tokens": None}})).json()
    assert changed["per_day"] == {"usd": 5.0, "tokens": None}


async def test_a_revoked_key_is_refused_at_once_and_stays_listed(desk: Desk) -> None:
    made = await desk.create()
    revoked = await desk.ask("DELETE", f"{KEYS}/{made['id']}")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert (await desk.ask("GET", token=made["token"])).status_code == 401
    assert [key["state"] for key in (await desk.ask("GET")).json()["data"]] == ["revoked", "active"]
    again = await desk.create()
    assert again["id"] != made["id"], "the name is free again"


async def test_every_change_is_audited_without_the_secret(desk: Desk) -> None:
    made = await desk.create(per_day={"usd": 2})
    path = f"{KEYS}/{made['id']}"
    await desk.ask("PATCH", path, {"per_day": {"usd": 3}, "name": "phone"})
    await desk.ask("DELETE", path)
    actions = await desk.audited()
    assert [(action, actor) for action, actor, _ in actions] == [
        ("key revoked", "root"),
        ("key changed", "root"),
        ("key created", "root"),
    ]
    assert '\\"usd\\": 3.0' in actions[1][2]
    assert "phone" in actions[1][2]
    assert not any(made["token"].split("_", 2)[2] in details for _, _, details in actions)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "name", "Field required"),
        ({"name": ""}, "name", "at least 1 character"),
        ({"name": "  "}, "name", "expected 1 to 100 characters"),
        ({"name": 5}, "name", "valid string"),
        ({"per_day": {"usd": -1}}, "per_day.usd", "greater than or equal to 0"),
        ({"per_day": {"usd": "5"}}, "per_day.usd", "valid number"),
        ({"per_day": {"eur": 5}}, "per_day.eur", "unexpected field; use one of tokens, usd"),
        ({"per_day": 5}, "per_day", "object"),
        ({"requests_per_minute": 0}, "requests_per_minute", "greater than or equal to 1"),
        ({"scopes": ["write"]}, "scopes.0", "Input should be 'ask'"),
        ({"scopes": "ask"}, "scopes", "valid array"),
        ({"tiers": ["huge"]}, "tiers.0", "'mini'"),
        ({"workers": ["sole"]}, "workers", "unknown worker 'sole'; did you mean 'solo'?"),
        ({"exclude": ["antropic"]}, "exclude", "did you mean 'anthropic'?"),
        ({"expires_at": "soon"}, "expires_at", "valid datetime"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at", "is in the past"),
        ({"expires_at": "2999-01-01T00:00:00"}, "expires_at", "timezone"),
        ({"scope": ["ask"]}, "scope", "unexpected field; did you mean 'scopes'?"),
    ],
)
async def test_a_faulty_field_is_named_in_one_line(
    desk: Desk, body: dict[str, Any], field: str, message: str
) -> None:
    given = body if "name" in body or not body else {"name": "laptop", **body}
    created = await desk.ask("POST", body=given)
    assert created.status_code == 400
    error = created.json()
    assert field in str(error)
    assert f"{field}: " in created.text
    assert message in created.text
    assert "\\n" not in created.text
    if body:
        changed = await desk.ask("PATCH", f"{KEYS}/{desk.root.key.id}", body)
        assert (changed.status_code, message in changed.text) == (400, True)
    assert len((await desk.ask("GET")).json()["data"]) == 1


async def test_two_active_keys_never_have_one_name(desk: Desk) -> None:
    made = await desk.create()
    taken = await desk.ask("POST", body={"name": "laptop"})
    assert taken.status_code == 409
    renamed = await desk.ask("PATCH", f"{KEYS}/{made['id']}", {"name": "root"})
    assert renamed.status_code == 409
    assert "there is already a key named 'root'" in renamed.text


async def test_only_an_administrator_manages_keys_and_others_see_themselves(desk: Desk) -> None:
    made = await desk.create()
    token, own, other = made["token"], f"{KEYS}/{made['id']}", f"{KEYS}/{desk.root.key.id}"
    listed = (await desk.ask("GET", token=token)).json()["data"]
    assert [key["id"] for key in listed] == [made["id"]]
    assert (await desk.ask("GET", own, token=token)).status_code == 200
    assert (await desk.ask("GET", other, token=token)).status_code == 404
    for method, path in (("POST", KEYS), ("PATCH", own), ("DELETE", own)):
        refused = await desk.ask(method, path, {"name": "more"}, token=token)
        assert refused.status_code == 403
        assert "scope 'admin' required" in refused.text
    assert (await desk.ask("GET", f"{KEYS}/key_none")).status_code == 404
    assert (await desk.ask("PATCH", f"{KEYS}/key_none", {})).status_code == 404
    assert (await desk.ask("DELETE", f"{KEYS}/key_none")).status_code == 404


async def test_a_key_cannot_allow_more_than_it_has(desk: Desk) -> None:
    made = await desk.create(
        name="deputy", scopes=["admin"], tiers=["mini"], workers=["solo"], exclude=["openai"]
    )
    token = made["token"]
    kept = {"tiers": ["mini"], "workers": [], "exclude": ["openai", "anthropic"]}
    for field, wider in (("tiers", None), ("workers", None), ("exclude", [])):
        body = {"name": "more", **kept, field: wider}
        refused = await desk.ask("POST", body=body, token=token)
        assert refused.status_code == 403
        assert f"{field}: key 'deputy' cannot allow more than it has" in refused.text
    narrow = await desk.ask("POST", body={"name": "less", **kept}, token=token)
    assert narrow.status_code == 201
    path = f"{KEYS}/{narrow.json()['id']}"
    assert (await desk.ask("PATCH", path, {"exclude": []}, token=token)).status_code == 403
    assert (await desk.ask("PATCH", path, {"name": "fewer"}, token=token)).status_code == 200


@pytest.mark.parametrize(
    ("method", "body"),
    [("DELETE", None), ("PATCH", {"scopes": ["ask"]}), ("PATCH", {"expires_at": "2999-01-01T00Z"})],
    ids=["revoke", "without the scope", "with an end"],
)
async def test_the_last_administrator_is_given_up_only_on_purpose(
    desk: Desk, method: str, body: Any
) -> None:
    path = f"{KEYS}/{desk.root.key.id}"
    if body and "expires_at" in body:
        body = {"expires_at": "2999-01-01T00:00:00Z"}
    refused = await desk.ask(method, path, body)
    assert refused.status_code == 409
    assert "key 'root' is the last active key with the scope admin" in refused.text
    assert (await desk.ask(method, path, body, params={"force": "true"})).status_code == 200


async def test_one_of_two_administrators_is_revoked_without_more_ado(desk: Desk) -> None:
    await desk.create(name="other", scopes=["admin"])
    assert (await desk.ask("DELETE", f"{KEYS}/{desk.root.key.id}")).status_code == 200


async def test_the_openapi_page_describes_keys(desk: Desk) -> None:
    page = (await desk.ask("GET", "/openapi.json")).json()
    paths = page["paths"]
    assert paths[KEYS].keys() == {"get", "post"}
    assert paths[f"{KEYS}/{{key_id}}"].keys() == {"get", "patch", "delete"}
    draft = paths[KEYS]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert draft["required"] == ["name"]
    assert draft["properties"]["per_day"]["$ref"] in {
        f"#/components/schemas/{name}" for name in page["components"]["schemas"]
    }
    change = paths[f"{KEYS}/{{key_id}}"]["patch"]["requestBody"]["content"]["application/json"]
    assert "required" not in change["schema"]
    info = page["components"]["schemas"]["KeyInfo"]["properties"]
    assert {"usage", "last_used_at", "per_day", "state", "token"} <= info.keys()
