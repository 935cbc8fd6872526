from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from podium.config import ServerSettings
from podium.core.pool import Pool
from podium.core.run import dump
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.store.keys import Rules, Scope
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.runs_on_record import kept_run
from support.serving import application, serving


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    directory = tmp_path / "trained"
    (directory / "etudes").mkdir(parents=True)
    (directory / "etudes" / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    (directory / "etudes" / "samples.jsonl").write_text('{"step": 1, "text": "a plan"}\n')
    (directory / "mine").mkdir()
    (directory / "mine" / "evaluation.json").write_text('{"suite": "etudes"}')
    (directory / "mine" / "report.html").write_text("<script>top.stolen = 1</script>")
    return directory


@asynccontextmanager
async def shown(*directories: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = ServerSettings(experiment_dirs=tuple(map(str, directories)))
    app = application([ScriptedWorker("solo", "yes")], settings=settings)
    async with serving(app) as served:
        yield served.client


async def test_artifacts_are_listed_with_the_searched_directories(
    trained: Path, tmp_path: Path
) -> None:
    async with shown(trained, tmp_path / "nowhere") as client:
        page = (await client.get("/v1/experiments")).json()
    assert [(item["name"], item["kind"], item["has_report"]) for item in page["data"]] == [
        ("trained.etudes", "training", False),
        ("trained.mine", "evaluation", True),
    ]
    assert page["directories"] == [
        {"path": str(trained), "found": 2, "problem": None},
        {"path": str(tmp_path / "nowhere"), "found": 0, "problem": "directory not found"},
    ]


async def test_an_empty_list_looks_nowhere() -> None:
    async with shown() as client:
        page = (await client.get("/v1/experiments")).json()
    assert (page["data"], page["directories"]) == ([], [])


async def test_without_configuration_the_usual_directories_are_looked_through(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        page = (await served.client.get("/v1/experiments")).json()
    assert [item["name"] for item in page["data"]] == ["trained.etudes", "trained.mine"]
    assert page["directories"] == [{"path": "trained", "found": 2, "problem": None}]


async def test_artifacts_in_nested_directories_are_listed_once(trained: Path) -> None:
    async with shown(trained, trained / "mine") as client:
        page = (await client.get("/v1/experiments")).json()
    assert [item["name"] for item in page["data"]] == ["trained.etudes", "trained.mine"]
    assert [item["found"] for item in page["directories"]] == [2, 0]


async def test_every_sample_of_an_evaluation_is_had_and_its_run_by_itself(trained: Path) -> None:
    run = kept_run(1, question="Why?", answer="A long answer. " * 100)
    sample = {"strategy": "conductor", "task": "mine/1", "repeat": 0, "right": False}
    lines = [{**sample, "expected": "42", "grader": "NumberGrader", "run": dump(run)}, "odd"]
    (trained / "mine" / "conductor.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    async with shown(trained) as client:
        address = "/v1/experiments/trained.mine/results"
        listed = (await client.get(address)).json()
        [one] = listed["data"]
        wanted = {"strategy": "conductor", "task": "mine/1"}
        whole = (await client.get(f"{address}/run", params=wanted)).json()
        for other in ({"task": "mine/2"}, {"strategy": "no"}, {"repeat": "1"}):
            missing = await client.get(f"{address}/run", params={**wanted, **other})
            assert missing.status_code == 404
        assert (await client.get("/v1/experiments/trained.etudes/results")).status_code == 404
    assert (one["question"], one["expected"], one["right"]) == ("Why?", "42", False)
    assert (len(one["answer"]), "run" in one, listed["left_out"]) == (400, False, 1)
    assert whole["run"]["answer"] == run.answer
    [step] = whole["details"]
    assert (step["run_id"], step["reply"]) == (run.id, run.steps[0].reply)
    assert "prompt 0" in json.dumps(step["request"])


async def test_a_sample_whose_run_cannot_be_read_says_so(trained: Path) -> None:
    line = {"strategy": "conductor", "task": "mine/1", "run": {"version": 99}}
    (trained / "mine" / "conductor.jsonl").write_text(json.dumps(line) + "\n")
    async with shown(trained) as client:
        wanted = {"strategy": "conductor", "task": "mine/1"}
        response = await client.get("/v1/experiments/trained.mine/results/run", params=wanted)
    assert response.status_code == 404
    assert "cannot be read" in response.text


async def test_a_training_grows_by_whole_lines(trained: Path) -> None:
    async with shown(trained) as client:
        first = (await client.get("/v1/experiments/trained.etudes")).json()
        assert first["series"] == {"reward": [[1, 0.5]]}
        with (trained / "etudes" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "reward": 1.0}\n{"step": 3, "rew')
        more = (await client.get("/v1/experiments/trained.etudes")).json()
        samples = (await client.get("/v1/experiments/trained.etudes/samples")).json()
    assert more["series"] == {"reward": [[1, 0.5], [2, 1.0]]}
    assert samples["samples"] == [{"step": 1, "text": "a plan"}]


async def test_a_report_is_a_page_of_no_origin_that_runs_nothing(trained: Path) -> None:
    async with shown(trained) as client:
        report = await client.get("/v1/experiments/trained.mine/report")
        assert (await client.get("/v1/experiments/trained.etudes/report")).status_code == 404
    assert report.status_code == 200
    policy = report.headers["content-security-policy"].split("; ")
    assert policy[0] == "sandbox"
    assert "default-src 'none'" in policy
    assert not any(part.startswith("script-src") for part in policy)
    assert report.headers["x-content-type-options"] == "nosniff"


async def test_a_report_may_lie_by_itself(trained: Path) -> None:
    (trained / "shown").mkdir()
    (trained / "shown" / "report.html").write_text("<p>as written</p>")
    async with shown(trained) as client:
        response = (await client.get("/v1/experiments/trained.shown")).json()
        page = await client.get("/v1/experiments/trained.shown/report")
    assert (response["object"], response["kind"], response["has_report"]) == (
        "report",
        "report",
        True,
    )
    assert page.text == "<p>as written</p>"


@pytest.mark.parametrize(
    "name",
    ["nothing", "..", "%2e%2e", "..%2fsecret", "%2fetc%2fpasswd", "trained%2fetudes", "a" * 400],
)
async def test_a_name_that_there_is_not_is_refused(name: str, trained: Path) -> None:
    async with shown(trained) as client:
        for rest in ("", "/samples", "/report"):
            response = await client.get(f"/v1/experiments/{name}{rest}")
            assert response.status_code in (400, 404), response.text
            assert "step" not in response.text


async def test_an_evaluation_has_no_samples_to_look_at(trained: Path) -> None:
    async with shown(trained) as client:
        assert (await client.get("/v1/experiments/trained.mine")).json()["suite"] == "etudes"
        assert (await client.get("/v1/experiments/trained.mine/samples")).status_code == 404


async def test_learning_takes_a_key_of_the_operator(trained: Path, tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    admin = make_key("admin", Rules(scopes=frozenset[Scope]({"admin"})))
    usual = make_key("usual", Rules())
    for made in (admin, usual):
        await store.keys.add(made.key)
    worker = ScriptedWorker("solo", "yes")
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)))
    settings = ServerSettings(experiment_dirs=(str(trained),))
    async with serving(
        application([worker], store=store, access=access, settings=settings)
    ) as served:
        paths = ("", "/trained.etudes", "/trained.etudes/samples", "/trained.mine/report")
        for path in paths:
            address = f"/v1/experiments{path}"
            for token, status in (("", 401), (usual.token, 403), (admin.token, 200)):
                headers = {"x-api-key": token} if token else {}
                response = await served.client.get(address, headers=headers)
                assert response.status_code == status, (path, response.text)
