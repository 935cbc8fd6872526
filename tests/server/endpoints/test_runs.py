from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from podium.config import ServerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.run import Run, new_run_id, timestamp
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.records import maintenance, repository
from podium.store import open_store
from podium.store.keys import Rules, Scope
from podium.workers import ScriptedWorker
from support.serving import PLAIN, Served, application, serving


@asynccontextmanager
async def with_runs(
    directory: Path, worker: ScriptedWorker | None = None, **settings: Any
) -> AsyncIterator[Served]:
    store = await open_store(directory / "runs.db")
    app = application(
        [worker or ScriptedWorker("solo", "yes")],
        store=store,
        settings=ServerSettings(**settings),
    )
    async with serving(app) as served:
        yield served


def events_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def everything_in(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def test_runs_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        ids = []
        for number in range(3):
            ids.append((await served.ask(f"Question {number}?")).headers["x-podium-run"])
            asked_at = timestamp()
            while timestamp() == asked_at:  # runs of one millisecond have no order
                pass
        page = (await served.client.get("/v1/runs", params={"limit": 2})).json()
        assert [run["run_id"] for run in page["data"]] == ids[:0:-1]
        assert page["has_more"]
        rest = await served.client.get("/v1/runs", params={"before": ids[1]})
        assert [run["run_id"] for run in rest.json()["data"]] == ids[:1]
        assert not rest.json()["has_more"]
        found = await served.client.get("/v1/runs", params={"text": "question 1"})
        assert [run["run_id"] for run in found.json()["data"]] == [ids[1]]
        assert not (await served.client.get("/v1/runs?status=failed")).json()["data"]


async def test_a_row_says_what_a_page_of_runs_shows(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        await served.ask("Compare!", model="podium-ultra")
        (row,) = (await served.client.get("/v1/runs")).json()["data"]
    assert (row["question"], row["status"], row["tier"]) == ("Compare!", "answered", "ultra")
    assert (row["workers"], row["steps"], row["rounds"], row["owner"]) == (["solo"], 3, 1, "")
    assert {"run_id", "created_at", "updated_at", "answer", "cost_usd", "seconds"} <= row.keys()


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("worker=solo", 1),
        ("worker=other", 0),
        ("tier=ultra", 1),
        ("tier=mini", 0),
        ("cost_from=0.001", 0),
        ("since=2020-01-01", 1),
        ("until=2020-01-01T00:00:00Z", 0),
        ("owner=", 1),
        ("owner=key_other", 0),
        ("worker=solo&tier=ultra&status=answered&text=COMPARE&since=2020-01-01T00:00", 1),
    ],
)
async def test_runs_are_found_by_what_is_known_of_them(
    query: str, count: int, tmp_path: Path
) -> None:
    async with with_runs(tmp_path) as served:
        await served.ask("Compare!", model="podium-ultra")
        found = await served.client.get(f"/v1/runs?{query}")
    assert len(found.json()["data"]) == count


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "status=odd",
        "before=run_none",
        "tier=x",
        "cost_to=nan",
        "since=then",
        "since=0001-01-01T00:00:00%2B14:00",
    ],
)
async def test_a_list_that_cannot_be_is_refused(query: str, tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        response = await served.client.get(f"/v1/runs?{query}")
        assert response.status_code in (400, 404)
        assert response.json()["refused"] in ("invalid", "not_found")


async def test_a_run_is_shown_with_its_steps_and_forgotten_when_deleted(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        run_id = (await served.ask(model="podium-ultra")).headers["x-podium-run"]
        shown = (await served.client.get(f"/v1/runs/{run_id}")).json()
        assert shown["steps"][0]["reply"] == "yes"
        assert (await served.client.delete(f"/v1/runs/{run_id}")).status_code == 204
        for method in ("GET", "DELETE"):
            gone = await served.client.request(method, f"/v1/runs/{run_id}")
            assert (gone.status_code, gone.json()["refused"]) == (404, "not_found")


async def test_a_run_that_cannot_be_read_can_be_deleted(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        run_id = (await served.ask()).headers["x-podium-run"]
        await served.client.get("/v1/runs")  # which waits until it is written
        with sqlite3.connect(tmp_path / "runs.db") as database:
            database.execute("UPDATE runs SET document = '[]'")
        database.close()
        assert (await served.client.get(f"/v1/runs/{run_id}")).status_code == 500
        assert (await served.client.delete(f"/v1/runs/{run_id}")).status_code == 204
        assert (await served.client.get(f"/v1/runs/{run_id}")).status_code == 404


async def test_the_beginning_of_an_id_is_not_enough(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        run_id = (await served.ask()).headers["x-podium-run"]
        for short in (run_id[:-2], "last"):
            assert (await served.client.get(f"/v1/runs/{short}")).status_code == 404


async def test_the_events_of_a_run_that_has_ended_are_told_from_its_record(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        run_id = (await served.ask("Compare!")).headers["x-podium-run"]
        response = await served.client.get(f"/v1/runs/{run_id}/events")
    events = events_in(response.text)
    assert [name for name, _ in events] == [
        "run_started",
        "round_planned",
        *["step_done"] * 3,
        "run_done",
    ]
    assert events[-1][1]["answer"] == "yes"


async def test_the_events_of_a_run_in_progress_are_reported_as_they_happen(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            begun.set()
            await go_on.wait()
            return await super().reply(request)

    async with with_runs(tmp_path, Slow("solo", "yes")) as served:
        asking = asyncio.create_task(served.ask(model="podium-ultra", stream=True))
        await begun.wait()
        (run_id,) = served.service.repository.broadcast._events
        shown = await served.client.get(f"/v1/runs/{run_id}")
        assert shown.json()["status"] == "running"
        refused = await served.client.delete(f"/v1/runs/{run_id}")
        assert refused.status_code == 409
        watching = asyncio.create_task(served.client.get(f"/v1/runs/{run_id}/events"))
        while run_id not in served.service.repository.broadcast._watchers:
            await asyncio.sleep(0)
        go_on.set()
        events = events_in((await watching).text)
        await asking
        assert not served.service.repository.broadcast._events, "what has ended is not held"
        assert not served.service.repository.broadcast._root_of
    names = [name for name, _ in events]
    assert names[:3] == ["run_started", "round_planned", "step_started"]
    assert names[-3:] == ["step_done", "round_done", "run_done"]
    assert ("step_delta", "yes") in [(name, event.get("text")) for name, event in events]


async def running(directory: Path, process: str, owner: str = "") -> str:
    """A run that says it is running there; its id."""
    store = await open_store(directory / "runs.db")
    run = Run(
        id=new_run_id(),
        question="Why?",
        status="running",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at=timestamp(),
        process=process,
        owner=owner,
    )
    await store.begin(run)
    await store.close()
    return run.id


async def test_a_run_with_a_dead_process_is_not_watched_for_ever(tmp_path: Path) -> None:
    run_id = await running(tmp_path, "")
    async with with_runs(tmp_path) as served:
        shown = (await served.client.get(f"/v1/runs/{run_id}")).json()
        assert (shown["status"], shown["is_executing"]) == ("running", False)
        watched = await served.client.get(f"/v1/runs/{run_id}/events")
        assert [name for name, _ in events_in(watched.text)] == ["run_started", "run_abandoned"]
        assert (await served.client.delete(f"/v1/runs/{run_id}")).status_code == 204


async def test_a_run_that_continues_at_another_replica_is_watched_and_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "POLL_SECONDS", 0.001)
    run_id = await running(tmp_path, "another-machine:1")
    async with with_runs(tmp_path) as served:
        refused = await served.client.delete(f"/v1/runs/{run_id}")
        assert (refused.status_code, refused.json()["refused"]) == (409, "conflict")
        assert (await served.client.get(f"/v1/runs/{run_id}")).json()["is_executing"]
        buffered = served.service.store
        looked, is_claimed = list[str](), buffered.is_claimed

        async def looking(run_id: str) -> bool:
            looked.append(run_id)
            return await is_claimed(run_id)

        monkeypatch.setattr(buffered, "is_claimed", looking)
        watching = asyncio.create_task(served.client.get(f"/v1/runs/{run_id}/events"))
        while len(looked) < 2:
            await asyncio.sleep(0)
        await buffered.finish(replace(await buffered.load(run_id), status="answered", answer="so"))
        watched = await watching
    assert [name for name, _ in events_in(watched.text)] == ["run_started", "run_done"]


async def test_watching_a_run_ends_when_it_is_deleted_at_another_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "POLL_SECONDS", 0.001)
    run_id = await running(tmp_path, "another-machine:1")
    async with with_runs(tmp_path) as served:
        buffered = served.service.store
        looked: list[str] = []

        async def is_claimed(run_id: str) -> bool:
            looked.append(run_id)
            return True

        monkeypatch.setattr(buffered, "is_claimed", is_claimed)
        watching = asyncio.create_task(served.client.get(f"/v1/runs/{run_id}/events"))
        while len(looked) < 2:
            await asyncio.sleep(0)
        await buffered.delete(run_id)
        watched = await watching
    assert [name for name, _ in events_in(watched.text)] == ["run_started"]


async def test_a_run_of_another_key_is_not_found(tmp_path: Path) -> None:
    theirs = await running(tmp_path, "another-machine:1", owner="key_theirs")
    store = await open_store(tmp_path / "runs.db")
    made = make_key("ada", Rules(scopes=frozenset({"ask", "runs:read", "runs:delete"})))
    await store.keys.add(made.key)
    worker = ScriptedWorker("solo", "yes")
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)))
    headers = {"authorization": f"Bearer {made.token}"}
    unknown = new_run_id()
    async with serving(application([worker], store=store, access=access)) as served:
        for method, path in (
            ("GET", "/v1/runs/{}"),
            ("GET", "/v1/runs/{}/events"),
            ("GET", "/v1/runs/{}/feedback"),
            ("POST", "/v1/runs/{}/feedback"),
            ("DELETE", "/v1/runs/{}/feedback"),
            ("DELETE", "/v1/runs/{}"),
            ("GET", "/v1/runs?before={}"),
        ):
            response = [
                await served.client.request(
                    method,
                    path.format(run_id),
                    headers=headers,
                    json={"score": 1} if method == "POST" else None,
                )
                for run_id in (theirs, unknown)
            ]
            assert [item.status_code for item in response] == [404, 404], path
            words = [item.text.replace(theirs, unknown) for item in response]
            assert words[0] == words[1], path


async def test_a_run_of_which_nothing_is_to_be_kept_is_nowhere(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        response = await served.ask(store=False)
        assert response.json()["text"] == "yes"
        assert "x-podium-run" not in response.headers
        assert not (await served.client.get("/v1/runs")).json()["data"]
    assert b"Why?" not in everything_in(tmp_path)


async def test_a_response_is_reported_again_and_forgotten(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        run_id = (await served.ask()).headers["x-podium-run"]
        id_ = run_id.replace("run_", "resp_")
        again = (await served.client.get(f"/v1/responses/{id_}")).json()
        assert again["id"] == id_
        assert again["output"][0]["content"][0]["text"] == "yes"
        deleted = await served.client.delete(f"/v1/responses/{id_}")
        assert deleted.json() == {"id": id_, "object": "response", "deleted": True}
        assert (await served.client.get(f"/v1/responses/{id_}")).status_code == 404
        assert (await served.client.get("/v1/responses/what")).status_code == 400


async def test_everyone_sees_their_own_runs_and_an_administrator_all(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    scopes: dict[str, tuple[Scope, ...]] = {
        "ada": ("ask", "runs:read"),
        "bob": ("ask", "runs:read", "runs:delete"),
        "eve": ("ask",),
        "root": ("admin",),
    }
    keys = {name: make_key(name, Rules(scopes=frozenset(item))) for name, item in scopes.items()}
    for made in keys.values():
        await store.keys.add(made.key)
    worker = ScriptedWorker("solo", "yes")
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)))
    async with serving(application([worker], store=store, access=access)) as served:

        async def ask(name: str, method: str, path: str, **more: Any) -> Any:
            headers = {"authorization": f"Bearer {keys[name].token}"}
            return await served.client.request(method, path, headers=headers, **more)

        run_id = (await ask("ada", "POST", PLAIN, json={"ask": "Why?"})).headers["x-podium-run"]
        path = f"/v1/runs/{run_id}"
        assert (await ask("ada", "GET", path)).status_code == 200
        assert (await ask("root", "GET", path)).status_code == 200
        assert (await ask("bob", "GET", path)).status_code == 404
        assert (await ask("bob", "GET", f"{path}/events")).status_code == 404
        assert (await ask("bob", "DELETE", path)).status_code == 404
        assert (await ask("eve", "GET", path)).status_code == 403
        assert (await ask("ada", "DELETE", path)).status_code == 403
        assert len((await ask("ada", "GET", "/v1/runs")).json()["data"]) == 1
        assert not (await ask("bob", "GET", "/v1/runs")).json()["data"]
        assert len((await ask("root", "GET", "/v1/runs")).json()["data"]) == 1
        named = {who: (await ask(who, "GET", "/v1/keys")).json() for who in ("ada", "eve", "root")}
        assert [key["name"] for key in named["root"]["data"]] == ["ada", "bob", "eve", "root"]
        (own,) = named["ada"]["data"]
        assert (own["id"], own["name"]) == (keys["ada"].key.id, "ada")
        assert named["eve"]["refused"] == "forbidden"


async def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        await served.ask()
        await maintenance.delete_runs_before(served.service.store, datetime.now(UTC) - timedelta(1))
        assert len((await served.client.get("/v1/runs")).json()["data"]) == 1
        await maintenance.delete_runs_before(served.service.store, datetime.now(UTC) + timedelta(1))
        assert not (await served.client.get("/v1/runs")).json()["data"]


async def test_a_server_forgets_old_runs_by_itself(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        await served.ask()
        assert (await served.client.get("/v1/runs")).json()["data"]
    async with with_runs(tmp_path, keep_days=1e-9) as served, asyncio.timeout(5):
        while (await served.client.get("/v1/runs")).json()["data"]:
            await asyncio.sleep(0.001)


async def test_a_server_forgets_what_was_only_held_before_it_started(tmp_path: Path) -> None:
    run_id = await running(tmp_path, "")
    store = await open_store(tmp_path / "runs.db")
    waiting = replace(await store.load(run_id), status="waiting")
    await store.save_until(waiting, timestamp())
    assert [run.id for run in await store.list()] == [run_id]
    await store.close()
    async with with_runs(tmp_path) as served, asyncio.timeout(5):
        while (await served.client.get("/v1/runs")).json()["data"]:
            await asyncio.sleep(0.001)


async def test_feedback_is_kept_with_the_run(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        path = f"/v1/runs/{(await served.ask()).headers['x-podium-run']}/feedback"
        assert (await served.client.get(path)).status_code == 404
        for score in (0.25, 1):
            given = await served.client.post(path, json={"score": score, "comment": "Hm."})
            assert given.status_code == 200
        kept = (await served.client.get(path)).json()
        assert (kept["score"], kept["comment"]) == (1, "Hm.")
        for wrong, field, result in (
            ({"score": 2}, "score", "score: expected a number from 0 to 1, got 2"),
            ({"score": True}, "score", "score: expected a number from 0 to 1, got true"),
            ({"score": "1"}, "score", "score: expected a number from 0 to 1, got '1'"),
            ({"score": 1, "stars": 5}, "stars", "unexpected option 'stars'"),
            ({"score": 1, "answer": "x" * 2001}, "answer", "a string of 0 to 2000 characters"),
            ({}, "score", "score is required, but it is missing"),
        ):
            refused = await served.client.post(path, json=wrong)
            assert (refused.status_code, refused.json()["field"]) == (400, field)
            assert result in refused.json()["message"]
        nowhere = await served.client.post("/v1/runs/run_none/feedback", json={"score": 1})
        assert nowhere.status_code == 404


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "application/x-www-form-urlencoded"}], ids=["none", "curl"]
)
async def test_feedback_is_read_as_json_whatever_the_content_type(
    headers: dict[str, str], tmp_path: Path
) -> None:
    async with with_runs(tmp_path) as served:
        path = f"/v1/runs/{(await served.ask()).headers['x-podium-run']}/feedback"
        given = await served.client.post(path, content=b'{"score": 1}', headers=headers)
        broken = await served.client.post(path, content=b'{"score": ', headers=headers)
    assert (given.status_code, given.json()["score"]) == (200, 1)
    assert broken.status_code == 400
    assert "the body is not valid JSON" in broken.json()["message"]
    assert not broken.json()["field"]


async def test_feedback_stays_until_withdrawn(tmp_path: Path) -> None:
    async with with_runs(tmp_path) as served:
        path = f"/v1/runs/{(await served.ask()).headers['x-podium-run']}"
        assert (await served.client.get(path)).json()["feedback"] is None
        await served.client.post(f"{path}/feedback", json={"score": 1})
        response = (await served.client.get(path)).json()["feedback"]
        assert (response["score"], response["grader"], response["answer"], "task" in response) == (
            1,
            "",
            "",
            False,
        )
        better = {"score": 0, "answer": " No. "}
        given = (await served.client.post(f"{path}/feedback", json=better)).json()
        assert (given["score"], given["answer"]) == (0, "No.")
        withdrawn = [await served.client.delete(f"{path}/feedback") for _ in range(2)]
        assert [item.status_code for item in withdrawn] == [204, 404]
        assert (await served.client.get(path)).json()["feedback"] is None


async def test_feedback_on_a_run_in_progress_is_refused(tmp_path: Path) -> None:
    run_id = await running(tmp_path, "another-machine:1")
    async with with_runs(tmp_path) as served:
        refused = await served.client.post(f"/v1/runs/{run_id}/feedback", json={"score": 1})
    assert (refused.status_code, refused.json()["refused"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"status": "running", "answer": None}, "in_progress", None),
        ({"status": "interrupted", "answer": "half"}, "incomplete", None),
        ({"status": "interrupted", "answer": None}, "incomplete", None),
        ({"status": "failed", "answer": None, "error": "solo is away"}, "failed", "solo is away"),
        ({"status": "exhausted", "answer": None, "error": "spent"}, "failed", "spent"),
    ],
)
async def test_a_response_that_is_reported_again_says_how_its_run_stands(
    tmp_path: Path, changes: dict[str, Any], status: str, error: str | None
) -> None:
    run_id = await running(tmp_path, "")
    async with with_runs(tmp_path) as served:
        run = await served.service.store.load(run_id)
        await served.service.store.finish(replace(run, **changes))
        reported = await served.client.get(f"/v1/responses/{run_id.replace('run_', 'resp_')}")
    response = Response.model_validate(reported.json(), strict=True)
    assert (response.status, response.output_text) == (status, changes["answer"] or "")
    assert (response.error and response.error.message) == error
    assert (response.usage is None) == (status in ("in_progress", "failed"))
