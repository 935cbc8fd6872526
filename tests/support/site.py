"""A server that a browser can visit: the whole application over scripted workers, on a loopback
port, in the event loop of the test. Its store is a directory of the test's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn

from podium.conductors import Conductor
from podium.config import ServerSettings
from podium.core.pool import Pool
from podium.core.request import Price
from podium.core.run import Run
from podium.core.worker import Worker
from podium.engine.runner import Options
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.service import Service
from podium.server.startup import DIALECTS
from podium.store import open_store
from podium.store.base import RunStore
from podium.store.keys import Rules
from podium.workers import ScriptedWorker
from support.serving import application

RUNS: Final = "runs.db"

_PORTS: Final[dict[int, None]] = {}
"""The ports of servers that there were. The next one takes the same, if it is free: a browser has
the files of the pages from there, and need neither ask for them nor read them again."""


def pool_of_three() -> list[Worker]:
    """A scripted pool with everything that pages show: prices, descriptions, and a worker of
    unknown price."""
    return [
        ScriptedWorker(
            "solver",
            "Air scatters **short** wavelengths more: $I \\propto \\lambda^{-4}$.",
            description="strong at mathematics; slow",
            price=Price(input=3.0, output=15.0),
        ),
        ScriptedWorker(
            "checker",
            "I checked it: correct.",
            description="checks what others wrote",
            price=Price(input=0.5, output=1.5),
        ),
        ScriptedWorker("local", "A short answer.", description="small, on this machine"),
    ]


@dataclass
class Site:
    """A server that runs. `token` is a key that may do everything, empty where none is asked for.

    `store` is open beside the server's own use of it: put runs there, and pages show them.
    """

    address: str
    app: Any
    store: RunStore
    directory: Path
    token: str = ""

    @property
    def service(self) -> Service:
        """What is behind the addresses."""
        service: Service = self.app.state.holder()
        return service

    def url(self, path: str) -> str:
        """The whole address of a path."""
        return self.address + path

    async def keep(self, *runs: Run) -> None:
        """Put runs into the store as they are, and as another process would: this one performs
        what is begun with its own store."""
        await self.store.finish(*(run for run in runs if run.status != "running"))
        begun = [run for run in runs if run.status == "running"]
        if not begun:
            return
        elsewhere = await open_store(self.directory / RUNS)
        for run in begun:
            await elsewhere.begin(run)
            for round_ in run.rounds:
                await elsewhere.save(run.id, round_)
                for step in round_.steps:
                    await elsewhere.save(run.id, step)
        await elsewhere.close()

    async def ask(self, question: str, model: str = "podium-ultra", **podium: object) -> str:
        """Ask the server as a client would; the id of the run that it made."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        body = {"model": model, "messages": [{"role": "user", "content": question}]}
        async with httpx.AsyncClient(base_url=self.address, headers=headers) as client:
            response = await client.post(
                "/v1/chat/completions", json=body | ({"podium": podium} if podium else {})
            )
        response.raise_for_status()
        return response.headers["x-podium-run"]


@asynccontextmanager
async def site_over(
    directory: Path,
    workers: Sequence[Worker] | None = None,
    *,
    keys: bool = False,
    conductor: Conductor | None = None,
    options: Options | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """A server over these workers, until the block is left."""
    async with AsyncExitStack() as stack:
        workers = pool_of_three() if workers is None else workers
        store = await open_store(directory / RUNS)
        access, token = None, ""
        if keys:
            made = make_key("Ada", Rules(scopes=frozenset({"admin"})))
            await store.keys.add(made.key)
            access = KeyAuthenticator(store.keys, Pool(tuple(worker.profile for worker in workers)))
            stack.push_async_callback(access.close)
            token = made.token
        app = application(
            workers,
            conductor=conductor,
            options=options,
            settings=ServerSettings(**{"require_keys": keys, "experiment_dirs": (), **settings}),
            store=store,
            access=access,
            dialects=DIALECTS,
        )
        address = await stack.enter_async_context(listening(app))
        yield Site(address, app, store, directory, token)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The application on a loopback port."""
    bound = _bound()
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(_served(server, bound))
    while not server.started:
        assert not serving.done(), "the server ended before it listened"
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def _bound() -> socket.socket:
    """A socket on a port that servers of this process had before, else on a free one."""
    for port in (*_PORTS, 0):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", port))
        except OSError:  # another server has it still
            made.close()
            continue
        _PORTS.setdefault(made.getsockname()[1])
        return made
    raise AssertionError("no port is free")


async def _served(server: uvicorn.Server, bound: socket.socket) -> None:
    """Runs until it is stopped. If it cannot start, one test fails and not the whole session."""
    try:
        await server._serve([bound])
    except SystemExit as exit_:
        raise RuntimeError("the server could not start; its log says why") from exit_
