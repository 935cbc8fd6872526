from __future__ import annotations

from podium.errors import Unavailable
from podium.providers import ScriptedWorker
from support.plain_dialect import lines
from support.serving import PLAIN, application, serving


async def test_a_tier_answers_with_a_run() -> None:
    worker = ScriptedWorker("solo", "forty two")
    async with serving(application([worker])) as served:
        response = await served.ask("What is it?", model="podium-ultra")
    assert response.status_code == 200
    assert response.json()["text"] == "forty two"
    assert response.json()["model"] == "podium-ultra"
    assert response.headers["x-podium-run"] == response.json()["id"]


async def test_a_worker_answers_by_its_own_name_without_a_run() -> None:
    workers = [ScriptedWorker("one", "first"), ScriptedWorker("two", "second")]
    async with serving(application(workers)) as served:
        response = await served.ask(model="two")
    assert response.json()["text"] == "second"
    assert response.json()["output"] == 1
    assert "x-podium-run" not in response.headers


async def test_a_stream_tells_the_words_as_they_come_and_ends_with_usage() -> None:
    async with serving(application([ScriptedWorker("solo", "forty two")])) as served:
        response = await served.ask(model="podium-ultra", stream=True)
        plain = await served.ask(model="solo", stream=True)
    told = lines(response.content)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert told[0] == ["begin", response.headers["x-podium-run"]]
    assert told[1:] == [["text", "forty"], ["text", " two"], ["end", "stop", 2]]
    assert lines(plain.content)[1:] == told[1:]


async def test_progress_is_told_only_where_reasoning_is_shown() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        silent = lines((await served.ask(model="podium-ultra", stream=True)).content)
        talkative = lines(
            (await served.ask(model="podium-ultra", stream=True, reasoning=True)).content
        )
    assert not [each for each in silent if each[0] == "progress"]
    progress = [each[1] for each in talkative if each[0] == "progress"]
    assert progress[0] == "Planned one step for solo."


async def test_a_worker_that_never_answers_is_an_error_with_a_status_of_its_own() -> None:
    worker = ScriptedWorker("solo", Unavailable("no connection"))
    async with serving(application([worker])) as served:
        for model in ("podium-ultra", "solo"):
            for stream in (False, True):
                response = await served.ask(model=model, stream=stream)
                assert response.status_code == 502
                assert response.json()["refused"] == "upstream"
                assert "no connection" in response.json()["message"]


async def test_what_is_wrong_with_a_body_is_said_in_the_dialect() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        unknown = await served.ask(model="podium-ultar")
        assert unknown.status_code == 404
        assert unknown.json()["field"] == "model"
        assert "podium-ultra" in unknown.json()["message"]
        not_json = await served.client.post(PLAIN, content=b"{nope")
        assert (not_json.status_code, not_json.json()["refused"]) == (400, "invalid")
        a_list = await served.client.post(PLAIN, json=[1])
        assert a_list.status_code == 400
        missing = await served.client.post(PLAIN, json={"model": "podium"})
        assert missing.json()["field"] == "ask"


async def test_addresses_and_methods_that_there_are_not_are_told_in_the_dialect_too() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        nowhere = await served.client.get("/v1/nowhere")
        assert (nowhere.status_code, nowhere.json()["refused"]) == (404, "not_found")
        method = await served.client.put(PLAIN)
        assert (method.status_code, method.json()["refused"]) == (405, "invalid")


async def test_the_server_says_that_it_lives_and_is_ready() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        assert (await served.client.get("/healthz")).json()["status"] == "alive"
        assert (await served.client.get("/readyz")).json() == {"status": "ready"}


async def test_models_are_listed_in_either_vendors_shape() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        listed = (await served.client.get("/v1/models")).json()
        names = [each["id"] for each in listed["data"]]
        assert names[:3] == ["podium-mini", "podium", "podium-ultra"]
        assert names[3].startswith("podium-mini@")
        assert names[-1] == "solo"
        other = await served.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
        assert [each["id"] for each in other.json()["data"]] == names
        assert other.json()["data"][0]["type"] == "model"
        one = await served.client.get(f"/v1/models/{names[3]}")
        assert one.json()["id"] == names[3]
        assert (await served.client.get("/v1/models/none")).status_code == 404
