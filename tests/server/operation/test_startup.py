from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from podium.conductors.tiers import RoutingDecision
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Round, Run, timestamp
from podium.core.workflow import Step, Workflow
from podium.server.access.keys import make_key
from podium.server.startup import ServeOptions, create_application, is_public
from podium.store import open_store
from podium.store.keys import Rules
from support.routed_pool import WORKERS, routed
from support.serve_process import SlowUpstream, podium_serve_over

__all__ = ["routed"]

POOL = """
[conductor]
kind = "router"

[store]
path = "runs.db"

[[worker]]
name = "echo"
provider = "scripted"
options = { reply = "forty two" }
"""


@dataclass
class Process:
    process: asyncio.subprocess.Process
    address: str
    log: list[str]


@asynccontextmanager
async def podium_serve(directory: Path, *options: str) -> AsyncIterator[Process]:
    """`podium serve` as a person starts it, on a free port, ready to be asked."""
    (directory / "podium.toml").write_text(POOL, "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "podium", "serve", "--port", "0", *options),
        cwd=directory,
        env={**os.environ, "PODIUM_CONFIG": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    log: list[str] = []
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            address = ""
            while not address or "startup complete" not in "".join(log):
                line = (await process.stderr.readline()).decode()
                assert line, "".join(log)
                log.append(line)
                found = re.search(r"running on (http://[\d.]+:\d+)", line)
                address = found[1] if found else address
        yield Process(process, address, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                log.append((await process.stderr.read()).decode())
                await process.wait()


async def test_startup_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs.db").mkdir()
    (tmp_path / "podium.toml").write_text(POOL, "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "podium", "serve", "--port", "0", "--log", "text"),
        cwd=tmp_path,
        env={**os.environ, "PODIUM_CONFIG": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 1
    first, *rest = said.decode().splitlines()
    assert "ERROR  cannot start: cannot use the store" in first
    assert len(rest) == 1
    assert "Traceback" not in said.decode()


async def is_answering(address: str) -> bool:
    async with httpx.AsyncClient() as client:
        try:
            return (await client.get(f"{address}/healthz")).status_code == 200
        except httpx.TransportError:  # refused, or cut off as it closed
            return False


async def test_podium_serve_answers_and_stops_on_a_signal(tmp_path: Path) -> None:
    async with (
        podium_serve(tmp_path) as serving,
        httpx.AsyncClient(base_url=serving.address) as client,
    ):
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        body = {"model": "podium-mini", "messages": [{"role": "user", "content": "Why?"}]}
        response = await client.post("/v1/chat/completions", json=body)
        assert response.json()["choices"][0]["message"]["content"] == "forty two"
        run = response.headers["x-podium-run"]
    assert serving.process.returncode in (0, -signal.SIGTERM)
    lines = [json.loads(line) for line in "".join(serving.log).splitlines()]
    request = next(line for line in lines if line["message"] == "request")
    assert (request["status"], request["run"]) == (200, run)
    assert "Why?" not in "".join(serving.log)


async def test_several_processes_answer_on_one_port_and_share_the_runs(tmp_path: Path) -> None:
    async with podium_serve(tmp_path, "--workers", "2") as serving:
        body = {"model": "podium-mini", "messages": [{"role": "user", "content": "Why?"}]}
        ids = set[str]()
        for _ in range(4):  # each on a connection of its own, so that both processes have a turn
            async with httpx.AsyncClient(base_url=serving.address, timeout=30) as client:
                response = await client.post("/v1/chat/completions", json=body)
                ids.add(response.headers["x-podium-run"])
        async with httpx.AsyncClient(base_url=serving.address) as client, asyncio.timeout(20):
            listed = set[str]()
            while listed != ids:
                listed = {run["run_id"] for run in (await client.get("/v1/runs")).json()["data"]}
            while 'runs_total{status="answered"} 4' not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.05)


async def test_a_session_is_valid_in_all_processes(tmp_path: Path) -> None:
    made = make_key("Ada", Rules())
    store = await open_store(tmp_path / "runs.db")
    await store.keys.add(made.key)
    await store.close()
    async with podium_serve(tmp_path, "--workers", "2", "--keys") as serving:
        async with httpx.AsyncClient(base_url=serving.address, timeout=30) as client:
            signed_in = await client.post("/session", json={"key": made.token})
            cookies = dict(client.cookies)
        assert signed_in.status_code == 200
        for _ in range(8):  # each on a connection of its own, so that both processes have a turn
            async with httpx.AsyncClient(
                base_url=serving.address, cookies=cookies, timeout=30
            ) as client:
                assert (await client.get("/v1/runs")).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_alone_is_not_the_public(host: str) -> None:
    assert not is_public(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "podium.example"])
def test_any_other_address_is_public(host: str) -> None:
    assert is_public(host)


async def test_a_server_that_is_to_stop_ends_what_is_in_progress_and_takes_nothing_new(
    tmp_path: Path,
) -> None:
    upstream = SlowUpstream(expected=1)
    async with podium_serve_over(upstream, tmp_path) as serving:
        body = {"model": "slow", "messages": [{"role": "user", "content": "Why?"}]}
        address = f"{serving.address}/v1/chat/completions"
        async with httpx.AsyncClient(timeout=60) as client:
            asking = asyncio.create_task(client.post(address, json=body))
            await upstream.all_there.wait()
            serving.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                while await is_answering(serving.address):
                    pass
            upstream.may_answer.set()
            response = await asking
        assert response.status_code == 200
        assert "at last" in response.text
        assert await serving.end() in (0, -signal.SIGTERM)


async def test_a_second_interrupt_stops_now_and_ends_every_stream_with_an_error(
    tmp_path: Path,
) -> None:
    upstream = SlowUpstream(expected=1)
    async with podium_serve_over(upstream, tmp_path, "--log", "text") as serving:
        body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}]}
        address = f"{serving.address}/v1/chat/completions"
        async with httpx.AsyncClient(timeout=60) as client, asyncio.timeout(30):
            asking = asyncio.create_task(client.post(address, json=body))
            await upstream.all_there.wait()
            serving.process.send_signal(signal.SIGINT)
            while await is_answering(serving.address):
                pass
            serving.process.send_signal(signal.SIGINT)
            response = await asking
            log = (await serving.log).decode()
    assert response.status_code == 503
    assert "the server stopped" in response.json()["error"]["message"]
    assert response.headers["x-podium-run"] in log
    first, request, *rest = [line.partition("  ")[2] for line in log.splitlines()]
    # One of those that look whether it answers may be there too.
    assert re.fullmatch(
        r"stopping: \d requests? may end within 30 s; Ctrl-C again stops now", first
    )
    assert request.startswith("503  /v1/chat/completions")
    assert rest[0] == "stopped"
    assert "Traceback" not in log


@pytest.mark.parametrize("recover", [True, False])
async def test_a_server_resumes_interrupted_runs_unless_configured_not_to(
    tmp_path: Path, recover: bool
) -> None:
    (tmp_path / "podium.toml").write_text(POOL, "utf-8")
    chosen = ServeOptions(config=str(tmp_path / "podium.toml"), server={"recover": recover})
    workflow = Workflow((Step("echo", "answer"),))
    run = Run(
        id="run_cut_off",
        question="Why?",
        status="running",
        pool=Pool((WorkerProfile(name="echo"),)),
        conductor="fixed",
        created_at=timestamp(),
        rounds=(Round(0, workflow),),
    )
    store = await open_store(tmp_path / "runs.db")
    await store.begin(run)
    app = create_application(chosen.settings)
    async with app.router.lifespan_context(app):
        for _ in range(500 if recover else 20):
            if (await store.load(run.id)).status != "running":
                break
            await asyncio.sleep(0.01)
    ended = await store.load(run.id)
    await store.close()
    assert ended.status == ("answered" if recover else "running")
    assert ended.answer == ("forty two" if recover else None)


ROUTED = f"""
[mini]
router = "router.json"
confidence = 0

[conductor]
kind = "router"

[store]
path = "runs.db"
{WORKERS}"""


async def test_a_router_has_decided_before_the_first_question(
    routed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.conductors.routing import LearnedRouter

    asked: list[str] = []
    decide = LearnedRouter.decide

    def noted(self: LearnedRouter, question: str, pool: Pool, *more: float) -> RoutingDecision:
        asked.append(question)
        return decide(self, question, pool, *more)

    monkeypatch.setattr(LearnedRouter, "decide", noted)
    (routed / "podium.toml").write_text(ROUTED, "utf-8")
    app = create_application(ServeOptions(config=str(routed / "podium.toml"), server={}).settings)
    async with app.router.lifespan_context(app):
        assert len(asked) == 1


async def test_a_router_that_does_not_fit_keeps_the_server_from_starting(routed: Path) -> None:
    (routed / "podium.toml").write_text(ROUTED.replace('"dear"', '"costly"'), "utf-8")
    app = create_application(ServeOptions(config=str(routed / "podium.toml"), server={}).settings)
    with pytest.raises(ConfigError, match="dear is now called costly"):
        async with app.router.lifespan_context(app):
            pass
    store = await open_store(routed / "runs.db")
    assert await store.audit.entries() == []  # nothing of a start that there was not
    await store.close()
