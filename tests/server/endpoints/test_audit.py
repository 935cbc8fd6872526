"""The audit log of a server: what is entered, who may read it, and what fails without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium.core.errors import StoreError
from podium.core.pool import Pool
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import NewKey, make_key
from podium.store.audit import AuditEntry, AuditEvent
from podium.store.keys import SCOPES, Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.runs_on_record import kept_run
from support.serving import application, serving

ADMIN = Rules(scopes=frozenset(SCOPES))
SECRET = "what-nobody-may-read"


class Server:
    """A server that requires keys, with an administrator and another key."""

    def __init__(
        self, client: httpx.AsyncClient, store: SqlRunStore, made: dict[str, NewKey]
    ) -> None:
        self.client = client
        self.store = store
        self.made = made

    async def ask(self, actor: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.made[actor].token}"}
        return await self.client.request(method, path, headers=headers, **more)

    async def entries(self) -> list[tuple[str, str, str]]:
        found = await self.store.audit.entries(limit=1000)
        return [(entry.action, entry.actor_name, entry.subject) for entry in reversed(found)]


@asynccontextmanager
async def serve(directory: Path) -> AsyncIterator[Server]:
    store = await SqlRunStore.open(directory / "podium.db")
    made = {"Ada": make_key("Ada", ADMIN), "Bob": make_key("Bob", Rules())}
    for item in made.values():
        await store.keys.add(item.key)
    workers = [ScriptedWorker("solo", "42")]
    access = KeyAuthenticator(store.keys, Pool(tuple(worker.profile for worker in workers)))
    async with serving(application(workers, store=store, access=access)) as served:
        run = kept_run(owner=made["Bob"].key.id, question=SECRET)
        await store.finish(run)
        yield Server(served.client, store, made)
        await access.close()


RUN = kept_run().id


async def test_looking_into_anothers_run_is_entered_and_looking_into_ones_own_is_not(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as server:
        await server.ask("Bob", "GET", f"/v1/runs/{RUN}")
        await server.ask("Bob", "GET", "/v1/runs")
        assert await server.entries() == []
        for _ in range(2):  # pages look again and again
            await server.ask("Ada", "GET", f"/v1/runs/{RUN}")
            await server.ask("Ada", "GET", "/v1/runs")
        await server.ask("Ada", "GET", f"/v1/runs/{RUN}/export")
        assert await server.entries() == [
            ("run read", "Ada", RUN),
            ("runs listed", "Ada", ""),
            ("run exported", "Ada", RUN),
        ]
        assert SECRET not in repr(await server.store.audit.entries())


async def test_a_word_on_anothers_run_is_entered_and_one_on_ones_own_is_not(
    tmp_path: Path,
) -> None:
    path, word = f"/v1/runs/{RUN}/feedback", {"score": 0, "comment": SECRET}
    async with serve(tmp_path) as server:
        for name in ("Bob", "Ada"):
            assert (await server.ask(name, "POST", path, json=word)).status_code == 200
            assert (await server.ask(name, "DELETE", path)).status_code == 204
            assert (await server.ask(name, "DELETE", path)).status_code == 404  # and not entered
        assert await server.entries() == [
            ("run read", "Ada", RUN),
            ("feedback given", "Ada", RUN),
            ("feedback withdrawn", "Ada", RUN),
        ]
        found = await server.store.audit.entries()
        assert server.made["Bob"].key.id in found[0].details
        assert SECRET not in repr(found)


async def test_a_word_on_anothers_run_that_cannot_be_entered_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(act: AuditEvent) -> AuditEntry:
        raise StoreError("the disk is full")

    path = f"/v1/runs/{RUN}/feedback"
    async with serve(tmp_path) as server:
        assert (await server.ask("Bob", "POST", path, json={"score": 1})).status_code == 200
        await server.ask("Ada", "GET", f"/v1/runs/{RUN}")  # which is not entered again just now
        monkeypatch.setattr(server.store.audit, "add", fails)
        assert (await server.ask("Ada", "POST", path, json={"score": 0})).status_code == 503
        assert (await server.ask("Ada", "DELETE", path)).status_code == 503
        given = await server.store.feedback.get(RUN)
        assert given is not None
        assert given.score == 1


async def test_deletions_and_logins_are_audited_with_actor_and_address(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as server:
        assert (await server.ask("Bob", "DELETE", f"/v1/runs/{RUN}")).status_code == 204
        token = server.made["Bob"].token
        signed_in = await server.client.post("/session", json={"key": token})
        assert signed_in.status_code == 200
        refused = await server.client.post("/session", json={"key": "pk_wrong_key"})
        assert refused.status_code == 401
        assert await server.entries() == [
            ("run deleted", "Bob", RUN),
            ("signed in", "Bob", ""),
        ]
        found = await server.store.audit.entries()
        assert {entry.actor for entry in found} == {server.made["Bob"].key.id}
        assert {entry.origin for entry in found} == {"127.0.0.1"}
        assert token not in repr(found)


async def test_only_an_administrator_reads_the_log(tmp_path: Path) -> None:
    async with serve(tmp_path) as server:
        await server.ask("Ada", "GET", f"/v1/runs/{RUN}")
        await server.ask("Ada", "GET", "/v1/runs")
        assert (await server.ask("Bob", "GET", "/v1/audit")).status_code == 403
        assert (await server.client.get("/v1/audit")).status_code == 401
        page = (await server.ask("Ada", "GET", "/v1/audit?limit=1")).json()
        assert [entry["action"] for entry in page["data"]] == ["runs listed"]
        assert page["has_more"]
        number = page["data"][0]["number"]
        rest = (await server.ask("Ada", "GET", f"/v1/audit?before={number}&actor=Ada")).json()
        assert [entry["action"] for entry in rest["data"]] == ["run read"]
        none = await server.ask("Ada", "GET", "/v1/audit?since=2999-01-01T00:00:00")
        assert none.json() == {"object": "list", "data": [], "has_more": False}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/runs/{RUN}"),
        ("GET", f"/v1/runs/{RUN}/export"),
        ("DELETE", f"/v1/runs/{RUN}"),
        ("GET", "/v1/runs"),
    ],
)
async def test_an_action_is_refused_if_its_audit_entry_cannot_be_written(
    tmp_path: Path, method: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(act: AuditEvent) -> AuditEntry:
        raise StoreError("the disk is full")

    async with serve(tmp_path) as server:
        monkeypatch.setattr(server.store.audit, "add", fails)
        response = await server.ask("Ada", method, path)
        assert response.status_code == 503
        assert SECRET not in response.text
        assert (await server.store.load(RUN)).id == RUN


async def test_a_sign_in_that_cannot_be_entered_gives_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(act: AuditEvent) -> AuditEntry:
        raise StoreError("the disk is full")

    async with serve(tmp_path) as server:
        monkeypatch.setattr(server.store.audit, "add", fails)
        response = await server.client.post("/session", json={"key": server.made["Ada"].token})
        assert response.status_code == 503
        assert "set-cookie" not in response.headers


async def test_asking_questions_enters_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path) as server:
        body = {"ask": "Why?"}
        response = await server.ask("Ada", "POST", "/v1/chat/completions", json=body)
        assert response.status_code == 200
        assert await server.entries() == []


async def test_without_a_database_there_is_nothing_to_read() -> None:
    async with serving(application([ScriptedWorker("solo", "42")])) as served:
        response = await served.client.get("/v1/audit")
    assert response.json() == {"object": "list", "data": [], "has_more": False}
