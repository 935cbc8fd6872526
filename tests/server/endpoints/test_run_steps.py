from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import RequestRefused
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import RUN_VERSION, Run, load, new_run_id
from podium.core.workflow import Step, Workflow
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.rounds import answered
from support.serving import Served, application, serving

PLAN = Workflow((Step("a", "Draft it"), Step("b", "Check it", (0,)), Step("a", "Say it", "all")))


def finished(run_id: str = "run_1", **more: Any) -> Run:
    profiles = tuple(WorkerProfile(name=name) for name in "ab")
    return Run(
        id=run_id,
        question="Why?",
        status="answered",
        pool=Pool(profiles),
        conductor="test",
        created_at="2026-01-01T00:00:00.000+00:00",
        rounds=(answered(PLAN),),
        answer="an answer",
        **more,
    )


async def of_step(served: Served, run_id: str, round_: int, index: int, **query: str) -> Any:
    response = await served.client.get(
        f"/v1/runs/{run_id}/steps/{round_}/{index}", params=query or None
    )
    return response.json()


async def test_a_step_is_reported_with_exactly_what_its_worker_was_sent(tmp_path: Path) -> None:
    workers = [ScriptedWorker("a", "A says"), ScriptedWorker("b", "B says")]
    store = await open_store(tmp_path / "runs.db")
    app = application(workers, conductor=FixedConductor(PLAN), store=store)
    async with serving(app) as served:
        run_id = (await served.ask(model="podium-ultra")).headers["x-podium-run"]
        checked = await of_step(served, run_id, 0, 1)
        final = await of_step(served, run_id, 0, 2)
    (message,) = checked["request"]["messages"]
    assert message["role"] == "user"
    text = workers[1].requests[0].messages[0].text
    assert message["parts"] == [{"kind": "text", "text": text, "title": ""}]
    assert "A says" in message["parts"][0]["text"]
    assert (checked["reply"], checked["answered_by"]) == ("B says", "b")
    (call,) = checked["attempts"]
    assert (call["worker"], call["error"]) == ("b", None)
    assert call["started_ms"] <= call["finished_ms"]
    assert final["request"]["messages"][0]["parts"][0]["text"] == workers[0].requests[1].text


async def test_a_step_that_failed_reports_every_call_and_why(tmp_path: Path) -> None:
    def refuses(request: object) -> str:
        raise RequestRefused("not me")

    first = WorkerProfile(name="a", fallback="b")
    workers = [ScriptedWorker(first, refuses), ScriptedWorker("b", "taken over")]
    store = await open_store(tmp_path / "runs.db")
    app = application(
        workers, conductor=FixedConductor(Workflow((Step("a", "Do it"),))), store=store
    )
    async with serving(app) as served:
        run_id = (await served.ask(model="podium-ultra")).headers["x-podium-run"]
        results = await of_step(served, run_id, 0, 0)
    assert [call["worker"] for call in results["attempts"]] == ["a", "b"]
    assert "not me" in results["attempts"][0]["error"]
    assert (results["worker"], results["answered_by"]) == ("a", "b")


async def test_a_step_of_a_nested_run_is_found_through_the_run_around_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    run = finished()
    round_ = run.rounds[0]
    inner = replace(finished("run_inner"), question="Draft it", depth=1)
    first = replace(round_.steps[0], nested=(inner,))
    await store.finish(replace(run, rounds=(replace(round_, steps=(first, *round_.steps[1:])),)))
    async with serving(application([ScriptedWorker("a", "")], store=store)) as served:
        outer = await of_step(served, "run_1", 0, 0)
        within = await of_step(served, "run_1", 0, 1, nested="run_inner")
        nowhere = await served.client.get("/v1/runs/run_1/steps/0/0", params={"nested": "run_2"})
    assert outer["request"] is None
    assert [nested["run_id"] for nested in outer["nested"]] == ["run_inner"]
    assert outer["nested"][0]["rounds"][0]["workflow"]["steps"][1]["subtask"] == "Check it"
    assert within["subtask"] == "Check it"
    assert nowhere.status_code == 404


@pytest.mark.parametrize("address", ["run_1/steps/0/7", "run_1/steps/3/0", "run_2/steps/0/0"])
async def test_a_step_that_is_not_on_record_is_not_found(address: str, tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    await store.finish(finished())
    async with serving(application([ScriptedWorker("a", "")], store=store)) as served:
        response = await served.client.get(f"/v1/runs/{address}")
    assert (response.status_code, response.json()["refused"]) == (404, "not_found")


async def test_a_run_is_exported_as_a_file_that_loads_again(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    run = replace(finished(), answer="half a pair: \ud83d")
    await store.finish(run)
    async with serving(application([ScriptedWorker("a", "")], store=store)) as served:
        response = await served.client.get("/v1/runs/run_1/export")
    assert response.headers["content-disposition"] == 'attachment; filename="run_1.json"'
    assert load(response.json()) == run


async def test_a_run_is_reported_with_its_plans_its_calls_and_how_it_stands(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    app = application([ScriptedWorker(name, "x") for name in "ab"], store=store)
    cut_off = replace(finished("run_2"), status="running", answer=None, process="elsewhere:1")
    gone = f"{socket.gethostname()}:{2**22 + 1}"  # no process has so high a number
    elsewhere = await open_store(tmp_path / "runs.db")
    await elsewhere.begin(cut_off)
    await elsewhere.begin(replace(cut_off, id="run_3", process=gone))
    await elsewhere.close()
    await store.finish(finished(error="nearly", owner="key_1"))
    async with serving(app) as served:
        response = [(await served.client.get(f"/v1/runs/run_{n}")).json() for n in (1, 2, 3)]
    assert (response[0]["error"], response[0]["owner"]) == ("nearly", "key_1")
    assert response[0]["created_at"] == "2026-01-01T00:00:00.000+00:00"
    (round_,) = response[0]["rounds"]
    assert [step["access"] for step in round_["workflow"]["steps"]] == [[], [0], "all"]
    assert response[0]["steps"][2]["attempts"] == []
    assert [item["is_executing"] for item in response] == [False, True, False]


async def test_a_run_that_a_newer_podium_wrote_is_distinguished_from_a_store_that_fails(
    tmp_path: Path,
) -> None:
    store = await open_store(tmp_path / "runs.db")
    run = finished(new_run_id(), version=RUN_VERSION + 1)
    await store.finish(run)
    async with serving(application([ScriptedWorker("a", "")], store=store)) as served:
        response = await served.client.get(f"/v1/runs/{run.id}")
        assert (await served.client.get("/v1/runs/last")).status_code == 404
    assert response.status_code == 500
    assert f"this run has version {RUN_VERSION + 1}" in response.text
    assert "only the operator of this server can change that" in response.text
