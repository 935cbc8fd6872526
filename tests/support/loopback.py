"""The server as it is in the world: the real application and uvicorn on a port of this machine,
runs and keys in a real SQLite file, workers whose lines each test writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import uvicorn
from fastapi import FastAPI

from podium.client.client import AsyncPodium
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.config import ServerSettings
from podium.core.pool import Capability, Pool, WorkerProfile
from podium.core.request import Delta, Price, Reply, Request, ToolCall, Usage
from podium.core.run import Run
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import BreakerPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.app import create_app
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.server.startup import DIALECTS, BoundedHttp
from podium.store.keys import KeyUsage, Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from podium.workers.scripted import Script

Result = TypeVar("Result")
StreamReply = Callable[[Request], AsyncGenerator[Delta | Reply]]

PATIENCE: Final = 20.0
"""Seconds within which anything that a test waits for has happened, on however busy a machine."""

USED: Final = Usage(100, 10, 40, 4, 0)
"""What every reply says that it took."""


class LoopbackWorker(Worker):
    """A worker with a script that can be changed, or a function that streams what scripts cannot:
    replies that hang or break off. `being_asked` is set when a call of its hangs, and
    `cancelled` when that call was cancelled."""

    def __init__(self, name: str, *can: Capability, price: float, fallback: str | None) -> None:
        self.profile = WorkerProfile(
            name=name,
            provider=f"{name}-works",
            model=f"{name}-1",
            description=f"the {name}",
            price=Price(input=price, output=2 * price, cached=price / 2),
            capabilities=frozenset(can),
            fallback=fallback,
        )
        self.begin_anew()

    def begin_anew(self) -> None:
        """As if nothing had been asked yet."""
        self.being_asked = threading.Event()
        self.cancelled = threading.Event()
        self.says(f"{self.profile.name} says so")

    def says(self, script: Script) -> None:
        """Reply by this script from now on."""
        self._scripted = ScriptedWorker(self.profile, script, usage=USED)
        self._stream_reply: StreamReply = self._scripted.stream

    def streams(self, stream_reply: StreamReply) -> None:
        """Stream replies by this function from now on."""
        self._stream_reply = stream_reply

    def hangs_after(self, *words: str) -> None:
        """Says these words and then nothing more, until the call is cancelled."""

        async def stream_reply(request: Request) -> AsyncGenerator[Delta | Reply]:
            for word in words:
                yield Delta(word)
            self.being_asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        self.streams(stream_reply)

    @property
    def requests(self) -> list[Request]:
        """What it was asked, in order, by its script."""
        return list(self._scripted.requests)

    async def reply(self, request: Request) -> Reply:
        """The end of the stream_reply."""
        async for piece in self._stream_reply(request):
            if isinstance(piece, Reply):
                return piece
        raise AssertionError("a stream_reply ends with a reply")

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """The stream_reply."""
        return self._stream_reply(request)


class Runtime:
    """A server, its workers, and `http`, a client with no key. `solver` can do all but see; `seer`
    sees, too, and costs more; `plain` is the cheapest and can do nothing special; `planner`
    conducts."""

    def __init__(self, directory: Path, settings: ServerSettings) -> None:
        self._settings = settings
        self._path = directory / "podium.db"
        every: tuple[Capability, ...] = ("tools", "json", "sampling", "reasoning")
        self.solver = LoopbackWorker("solver", *every, price=2.0, fallback="seer")
        self.seer = LoopbackWorker("seer", "vision", *every, price=4.0, fallback=None)
        self.plain = LoopbackWorker("plain", price=1.0, fallback=None)
        self.planner = LoopbackWorker("planner", *every, price=8.0, fallback=None)
        self.pool = Pool(tuple(item.profile for item in self.workers))
        self.app = create_app(self._open, DIALECTS)
        self.address = ""
        self.http = httpx.Client(timeout=PATIENCE)
        self.token = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: SqlRunStore | None = None
        self._access: KeyAuthenticator | None = None

    @property
    def workers(self) -> tuple[LoopbackWorker, ...]:
        """Who is in the pool."""
        return (self.solver, self.seer, self.plain)

    def begin_anew(self) -> None:
        """Everybody as in the beginning; the planner has the solver answer alone."""
        for player in (*self.workers, self.planner):
            player.begin_anew()
        self.plans(Step("solver", "Answer."))

    def plans(self, *steps: Step) -> None:
        """The planner plans these steps."""
        self.planner.says(write(Workflow(steps), self.pool))

    def key(self, rules: Rules | None = None) -> str:
        """The token of a new key."""
        made = make_key("a test", rules or Rules())
        assert self._store is not None, "the server is open"
        self.wait_for(self._store.keys.add(made.key))
        return made.token

    def run(self, run_id: str) -> Run:
        """A run as it is kept."""
        service: Service = self.app.state.holder()
        return self.wait_for(service.store.load(run_id))

    def used(self, token: str) -> list[KeyUsage]:
        """What was used with a key, as it is on record."""
        assert self._store is not None, "the server is open"
        assert self._access is not None, "the server is open"
        self.wait_for(self._access.close())
        return self.wait_for(self._store.keys.usage(key_id=f"key_{token.split('_')[1]}"))

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have something done on the server's own loop."""
        assert self._loop is not None, "the server is open"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _open(self, stack: AsyncExitStack) -> Service:
        self._loop = asyncio.get_running_loop()
        self._store = await SqlRunStore.open(self._path)
        buffered = BufferedRunStore(self._store)
        stack.push_async_callback(buffered.close)
        self._access = KeyAuthenticator(self._store.keys, self.pool)
        stack.push_async_callback(self._access.close)
        podium = AsyncPodium(
            self.workers,
            ModelConductor(self.planner, plan_format="lists"),
            options=Options(),
            retry=RetryPolicy(attempts=2, initial_wait_seconds=0.0),
            breaker=BreakerPolicy(enabled=False),  # a test may call what another one has fail
            store=buffered,
        )
        stack.push_async_callback(podium.close)
        return await open_service(podium, buffered, self._access, self._settings)


@contextmanager
def open_house(directory: Path, settings: ServerSettings | None = None) -> Iterator[Runtime]:
    """A house that is open until the block is left."""
    runtime = Runtime(directory, settings or ServerSettings(drain_seconds=1.0))
    with listening(runtime.app) as address, runtime.http:
        runtime.address, runtime.http.base_url = address, httpx.URL(address)
        runtime.token = runtime.key(Rules(scopes=frozenset({"admin"})))
        runtime.begin_anew()
        yield runtime


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """An application on a uvicorn of its own, in a thread of its own; gives its address."""
    configuration = uvicorn.Config(
        app, host="127.0.0.1", port=0, loop="uvloop", http=BoundedHttp, ws="none", log_config=None
    )
    server = uvicorn.Server(configuration)
    started = threading.Event()
    startup = server.startup

    async def telling(sockets: Any = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = telling  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(PATIENCE), "the server did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive(), "the server did not stop"


def calling(*calls: tuple[str, str], text: str = "", name: str = "clock") -> Reply:
    """A reply that calls a tool, by ids and arguments."""
    asked = tuple(ToolCall(id_, name, arguments) for id_, arguments in calls)
    return Reply(text, USED, "tool", asked)
