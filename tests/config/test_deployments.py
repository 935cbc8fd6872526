"""Deployments in a file: against two real servers on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from podium.cli.options import is_local
from podium.client.assembly import connect_endpoints
from podium.config import load
from podium.core.errors import ConfigError
from podium.core.request import Request, user
from podium.server.access.request_checks import refuse_own_address
from podium.workers import Http
from podium.workers.balanced import BalancedWorker

Write = Callable[..., Path]


class Server:
    """Answers a chat, or with a status."""

    def __init__(self) -> None:
        self.status, self.url = 200, ""
        self.received: list[tuple[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.received.append((request.headers.get("Authorization", ""), await request.json()))
        choice = {"message": {"content": "Hi."}, "finish_reason": "stop"}
        headers = {"Retry-After": "7"} if self.status == 429 else {}
        return web.json_response({"choices": [choice]}, status=self.status, headers=headers)


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Server, Server]]:
    pair, runners = (Server(), Server()), []
    for server in pair:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", server.answer)
        runners.append(web.AppRunner(application))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runners[-1].addresses[0][1]}/v1"
    yield pair
    for runner in runners:
        await runner.cleanup()


async def test_two_deployments_are_one_worker(write: Write, servers: tuple[Server, Server]) -> None:
    path = write(f"""
    [[worker]]
    name = "house"
    provider = "openai-compatible"
    model = "house-70b"
    key_env = "HOUSE_KEY"
    balance = "weighted"
    [[worker.deployments]]
    name = "eu"
    base_url = "{servers[0].url}"
    [[worker.deployments]]
    base_url = "{servers[1].url}"
    key_env = "OTHER_KEY"
    model = "house-70b-us"
    weight = 2
    """)
    settings = load(path)
    assert settings.pool.names == ("house",)
    assert [one.name for one in settings["house"].deployments] == ["eu", "2"]
    http = Http()
    worker = connect_endpoints(
        settings["house"], {"HOUSE_KEY": "a-key", "OTHER_KEY": "b-key"}, http
    )
    assert isinstance(worker, BalancedWorker)
    for _ in range(3):
        await worker.reply(Request((user("hello"),)))
    assert [(key, body["model"]) for key, body in servers[0].received] == [
        ("Bearer a-key", "house-70b")
    ]
    assert [(key, body["model"]) for key, body in servers[1].received] == [
        ("Bearer b-key", "house-70b-us")
    ] * 2
    servers[1].status = 429
    for _ in range(3):
        await worker.reply(Request((user("hello"),)))
    assert len(servers[0].received) == 4
    error = worker.deployments[1].error
    assert error is not None
    assert error.retry_after == 7
    assert "worker 'house@2' (openai-compatible)" in str(error)
    await http.close()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('balance = "weighted"', "balance has no effect without deployments"),
        ('deployments = [{ base_url = "https://a/v1", weight = 2 }]', "weight has no effect"),
        ('deployments = [{ name = "a" }, { name = "a" }]', "two have the same name"),
        ('deployments = [{ base_url = "https://k:s@a/v1" }]', "key"),
        ("deployments = [{ wieght = 2 }]", "wieght"),
    ],
)
def test_senseless_values_are_refused(write: Write, lines: str, message: str) -> None:
    path = write(f'[[worker]]\nname = "a"\nprovider = "openai"\n{lines}\n')
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_an_address_of_each_is_as_good_as_one_of_all(write: Write) -> None:
    worker = '[[worker]]\nname = "a"\nprovider = "openai-compatible"\n'
    load(write(worker + 'deployments = [{ base_url = "https://a/v1" }]\n'))
    with pytest.raises(ConfigError, match="base_url is missing"):
        load(write(worker + 'deployments = [{ base_url = "https://a/v1" }, { model = "x" }]\n'))


def test_a_worker_is_local_where_all_of_its_deployments_are(write: Write) -> None:
    worker = '[[worker]]\nname = "a"\nprovider = "openai-compatible"\n'
    near, far = '{ base_url = "http://127.0.0.1:1/v1" }', '{ base_url = "https://far/v1" }'
    assert is_local(load(write(f"{worker}deployments = [{near}, {near}]\n"))["a"], {})
    assert not is_local(load(write(f"{worker}deployments = [{near}, {far}]\n"))["a"], {})


def test_a_server_is_no_deployment_of_its_own(write: Write) -> None:
    own = (
        'deployments = [{ base_url = "https://far/v1" }, { base_url = "http://127.0.0.1:7755/v1" }]'
    )
    settings = load(write(f'[[worker]]\nname = "a"\nprovider = "openai-compatible"\n{own}\n'))
    with pytest.raises(ConfigError, match=r"worker 'a@2' is at .*, which is this server"):
        refuse_own_address(settings, {})
