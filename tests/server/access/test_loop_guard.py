from __future__ import annotations

import logging

import pytest

from podium.conductors import ModelConductor
from podium.config import ServerSettings, Settings, WorkerSettings
from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.server.access.request_checks import MAX_HOPS, refuse_own_address
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.workers import ScriptedWorker
from podium.workers.http import HOP_HEADER, hop_header
from support.serving import application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}


def recording_worker(seen: list[str | None], reply: str = "yes") -> ScriptedWorker:
    """A worker that notes how many servers its calls say they have come through."""

    def answer(request: Request) -> str:
        seen.append(hop_header().get(HOP_HEADER))
        return reply

    return ScriptedWorker("one", answer)


@pytest.mark.parametrize("model", ["podium-mini", "podium-ultra", "one"])
async def test_calls_say_through_how_many_servers_a_request_has_come(model: str) -> None:
    seen: list[str | None] = []
    async with serving(application([recording_worker(seen)])) as served:
        await served.ask(model=model)
        again = {"json": {"ask": "Why?", "model": model, "stream": True}}
        await served.client.post("/v1/messages", headers={HOP_HEADER: "1"}, **again)  # type: ignore[arg-type]
    assert seen == ["1", "2"]
    assert not hop_header()


async def test_a_request_with_too_many_hops_is_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("podium"), "propagate", True)
    seen: list[str | None] = []
    async with serving(application([recording_worker(seen)])) as served:
        far = await served.client.post(
            "/v1/messages", json={"ask": "Why?"}, headers={HOP_HEADER: str(MAX_HOPS + 1)}
        )
        near = await served.client.post(
            "/v1/messages", json={"ask": "Why?"}, headers={HOP_HEADER: str(MAX_HOPS)}
        )
    assert (far.status_code, near.status_code) == (400, 200)
    assert "name Podium itself" in far.json()["message"]
    assert "base_url" in far.json()["message"]
    assert far.json()["message"] in caplog.text
    assert seen == ["3"]


@pytest.mark.parametrize("said", ["", "-1", "one", "9" * 5000, "²"])
async def test_an_invalid_hop_count_is_refused(said: str) -> None:
    async with serving(application([recording_worker([])])) as served:
        headers = {HOP_HEADER.encode(): said.encode("latin-1")}
        response = await served.client.post("/v1/messages", json={"ask": "Why?"}, headers=headers)
    assert (response.status_code, response.json()["field"]) == (400, HOP_HEADER)


async def test_planning_counts_as_answering_does() -> None:
    seen: list[str | None] = []
    planner = recording_worker(
        seen, '{"steps": [{"worker": "one", "subtask": "Answer", "access": []}]}'
    )
    crew = [planner, ScriptedWorker("other", "")]
    app = application(crew, conductor=ModelConductor(planner), dialects=REAL)
    async with serving(app) as served:
        planned = await served.client.post("/v1/plan", json={"question": "Why?"})
        body = {"json": {"question": "Why?"}, "headers": {HOP_HEADER: "7"}}
        refused = await served.client.post("/v1/plan", **body)  # type: ignore[arg-type]
    assert (planned.status_code, refused.status_code) == (200, 400)
    assert seen == ["1"]


def settings(base_url: str, *, host: str = "127.0.0.1", port: int = 7755) -> Settings:
    profile = WorkerProfile(name="mine", provider="openai-compatible", model="m")
    return Settings(
        source="podium.toml",
        workers=(WorkerSettings(profile=profile, base_url=base_url),),
        server=ServerSettings(host=host, port=port),
    )


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("http://127.0.0.1:7755/v1", "127.0.0.1"),
        ("http://localhost:7755/v1", "127.0.0.1"),
        ("http://127.0.0.1:7755/v1", "localhost"),
        ("http://127.0.0.1:7755", "0.0.0.0"),
        ("http://[::1]:7755/v1", "::"),
        ("http://me:secret@127.0.0.1:7755/v1", "127.0.0.1"),
    ],
)
def test_a_pool_that_names_the_server_itself_is_refused(base_url: str, host: str) -> None:
    with pytest.raises(ConfigError, match=r"'mine'.*this server.*base_url") as caught:
        refuse_own_address(settings(base_url, host=host), {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "host", "port"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1", 7755),
        ("http://127.0.0.2:7755/v1", "127.0.0.1", 7755),
        ("http://192.0.2.7:7755/v1", "0.0.0.0", 7755),
        ("http://127.0.0.1:7755/v1", "127.0.0.1", 0),
        ("http://no-such-host.invalid:7755/v1", "127.0.0.1", 7755),
        ("", "127.0.0.1", 7755),
    ],
)
def test_another_server_is_no_matter_where_it_listens(base_url: str, host: str, port: int) -> None:
    refuse_own_address(settings(base_url, host=host, port=port), {})


def test_a_known_vendor_counts_with_its_usual_address() -> None:
    worker = WorkerSettings(profile=WorkerProfile(name="mine", provider="vllm", model="m"))
    own = Settings(source="here", workers=(worker,), server=ServerSettings(port=8000))
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8000"):
        refuse_own_address(own, {})
