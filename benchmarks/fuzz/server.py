"""Send mutated requests to the real application in this process, and check its answers.

The server must answer in the dialect of the request, in time, without a 5xx and without an error in
its log. Workers are scripted and the store is a file; only the socket is missing. Bodies that were
answered join the corpus.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import Message

from benchmarks.fuzz.report import MOST_FINDINGS, Finding, FuzzRow
from benchmarks.fuzz.requests import BODIES, Body, Sent, damaged, is_deep, sent
from benchmarks.timing import settled_heap
from podium.client.client import AsyncPodium
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.config import ServerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request, ToolCall
from podium.core.usage import Price, Usage
from podium.core.workflow import Step, Workflow
from podium.engine import RetryPolicy
from podium.server.access import KeyAuthenticator
from podium.server.access.tokens import make_key
from podium.server.app import create_app
from podium.server.operation.startup import DIALECTS
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers.scripted import ScriptedWorker

SPOILED: Final = "twice for JSON"
"""In the answer where a worker wrote no JSON that fits the schema: not the server's fault."""


class Unfit(Exception):
    """What is wrong with an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it was sent."""

    status: int
    media_type: str
    body: bytes

    @property
    def is_spoiled(self) -> bool:
        """True if a worker could not satisfy the schema."""
        return SPOILED.encode() in self.body


def judge(said: Said, path: str) -> None:
    """Raise `Unfit` for an answer that a client cannot read."""
    if said.status >= 500 and not (said.status == 502 and said.is_spoiled):
        raise Unfit(f"answered {said.status}: {said.body[:300]!r}")
    if b"internal server error" in said.body:
        raise Unfit(f"failed within: {said.body[:300]!r}")
    if said.media_type.startswith("text/event-stream"):
        _judge_stream(said.body, path)
        return
    if said.media_type != "application/json":
        raise Unfit(f"the answer is {said.media_type!r}")
    document = _object(said.body.decode())
    if said.status == 200:
        if document.get("object" if path != MESSAGES else "type") != WHOLE[path]:
            raise Unfit(f"no answer of this dialect: {said.body[:300]!r}")
    elif said.status >= 400:
        ERRORS[path](document)
    else:
        raise Unfit(f"answered {said.status}")


CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
WHOLE: Final = {CHAT: "chat.completion", RESPONSES: "response", MESSAGES: "message"}


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise Unfit(f"not JSON ({error}): {text[:300]!r}") from None
    if not isinstance(document, Mapping):
        raise Unfit(f"no object: {text[:300]!r}")
    return document


def _no_constant(name: str) -> None:
    raise Unfit(f"{name} is not JSON")


def _openai_error(document: Mapping[str, Any]) -> None:
    error = document.get("error")
    if document.keys() != {"error"} or not isinstance(error, Mapping):
        raise Unfit(f"no error of OpenAI's form: {document!r:.300}")
    if not {"message", "type", "param", "code"} <= error.keys():
        raise Unfit(f"an error without its fields: {error!r:.300}")
    _words(error)


def _anthropic_error(document: Mapping[str, Any]) -> None:
    error = document.get("error")
    if document.get("type") != "error" or not isinstance(error, Mapping):
        raise Unfit(f"no error of Anthropic's form: {document!r:.300}")
    _words(error)


def _words(error: Mapping[str, Any]) -> None:
    message, kind = error.get("message"), error.get("type")
    if not (isinstance(message, str) and message and isinstance(kind, str) and kind):
        raise Unfit(f"an error without words: {error!r:.300}")
    if len(message) > 4000:
        raise Unfit(f"an error of {len(message)} characters")


ERRORS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    CHAT: _openai_error,
    RESPONSES: _openai_error,
    MESSAGES: _anthropic_error,
}


def _judge_stream(body: bytes, path: str) -> None:
    *documents, last = _data(body.decode())
    for text in documents:
        _object(text)
    if path == CHAT:
        if last != "[DONE]":
            raise Unfit(f"a stream that ends with {last[:300]!r}")
        return
    kind = _object(last).get("type")
    if kind not in ENDINGS[path]:
        raise Unfit(f"a stream that ends with {kind!r}")


ENDINGS: Final = {
    RESPONSES: ("response.completed", "response.incomplete", "response.failed", "error"),
    MESSAGES: ("message_stop", "error"),
}


def _data(text: str) -> Iterator[str]:
    """Yield the data of each event; comments have none."""
    events = text.split("\n\n")
    if events.pop():
        raise Unfit("a stream that breaks off in an event")
    for event in events:
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        named = [line for line in lines if line.startswith("event: ")]
        if lines and (len(data) != 1 or len(data) + len(named) != len(lines)):
            raise Unfit(f"no event: {event[:300]!r}")
        yield from data


PATHS: Final = (CHAT, RESPONSES, MESSAGES)

SECONDS_ALLOWED: Final = 20.0
"""Timeout of an answer, on a busy machine."""

CPU_SECONDS_ALLOWED: Final = 2.0
"""CPU limit for so small a body."""

MOST_BODIES: Final = 300
"""Size of the corpus; the oldest leave first."""

LEARNED_SHARE: Final = 0.2


class _Errors(logging.Handler):
    """Collects errors that the server logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.getMessage()} {record.exc_info!r}")


@dataclass(slots=True)
class BodyCampaign:
    """One dialect's campaign."""

    app: FastAPI
    path: str
    token: str
    chance: Random
    errors: _Errors
    corpus: deque[Body] = field(default_factory=lambda: deque(maxlen=MOST_BODIES))
    findings: list[Finding] = field(default_factory=list)
    spoiled: int = 0

    async def run(self, count: int) -> None:
        """Send that many requests, one after the other."""
        bodies = list(BODIES[self.path])
        others = [body for path in PATHS for body in BODIES[path]]
        for _ in range(count):
            if len(self.findings) >= MOST_FINDINGS:
                return
            known = self.corpus if self.corpus and self.chance.random() < 0.5 else bodies
            body = damaged(known[int(self.chance.random() * len(known))], others, self.chance)
            await self._send(body, sent(body, self.token, self.chance))

    async def _send(self, body: Body, request: Sent) -> None:
        began = time.process_time()
        try:
            async with asyncio.timeout(SECONDS_ALLOWED):
                said = await asked(self.app, self.path, request)
            judge(said, self.path)
        except TimeoutError:
            self._found(f"no answer after {SECONDS_ALLOWED:g} s", request)
            return
        except Exception as error:  # noqa: BLE001 - what must not be raised is what is looked for
            self._found(str(error) if isinstance(error, Unfit) else repr(error), request)
            return
        taken = time.process_time() - began
        if taken > CPU_SECONDS_ALLOWED:
            self._found(f"took {taken:.1f} s of CPU time", request)
        if self.errors.said:
            self._found(f"logged {self.errors.said[0][:500]}", request)
            self.errors.said.clear()
        self.spoiled += said.is_spoiled
        self._learn(body, said)

    def _found(self, broken: str, request: Sent) -> None:
        self.findings.append(Finding(f"{self.path}: {broken}", str(request)))

    def _learn(self, body: Body, said: Said) -> None:
        """Add a body that was answered to the corpus."""
        if said.status == 200 and self.chance.random() < LEARNED_SHARE and not is_deep(body):
            self.corpus.append(body)


async def asked(app: FastAPI, path: str, request: Sent) -> Said:
    """Send one request to the application, as uvicorn would, and return the answer."""
    waiting: deque[Message] = deque(
        {"type": "http.request", "body": piece, "more_body": index + 1 < len(request.pieces)}
        for index, piece in enumerate(request.pieces)
    )
    heard: list[Message] = []
    never = asyncio.Event()

    async def receive() -> Message:
        if not waiting:
            await never.wait()
        return waiting.popleft()

    async def send(message: Message) -> None:
        heard.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(request.headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    if not heard or heard[0]["type"] != "http.response.start":
        raise Unfit("no answer")
    if heard[-1].get("more_body"):
        raise Unfit("an answer without an end")
    headers = {name.decode().lower(): value.decode() for name, value in heard[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in heard[1:])
    if int(headers.get("content-length", len(body))) != len(body):
        raise Unfit("a length that is not the body's")
    return Said(heard[0]["status"], headers.get("content-type", ""), body)


def _fitting(schema: Any, depth: int = 0) -> Any:
    """Return a value that fits a plain schema."""
    if not isinstance(schema, Mapping) or depth > 5:
        return 0
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties")
            inner = properties if isinstance(properties, Mapping) else {}
            return {name: _fitting(each, depth + 1) for name, each in inner.items()}
        case "array":
            return []
        case "string":
            return "x"
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return 0


def _line(request: Request) -> Reply | str:
    """Return a worker's reply: a tool call, JSON or text, as requested."""
    if request.tools and request.tool_choice not in ("", "auto", "none"):
        named = [tool for tool in request.tools if tool.name == request.tool_choice]
        tool = (named or request.tools)[0]
        arguments = json.dumps(_fitting(tool.parameters))
        return Reply("", finish="tool", tool_calls=(ToolCall("call_1", tool.name, arguments),))
    if request.schema is not None:
        return json.dumps(_fitting(request.schema))
    return "so it is"


_USED: Final = Usage(100, 10, 40, 4, 0)
_PRICE: Final = Price(input=1.0, output=2.0)
_EVERY: Final = frozenset(("tools", "json", "sampling", "reasoning", "vision"))


def _workers() -> list[ScriptedWorker]:
    return [
        ScriptedWorker(
            WorkerProfile(
                name=name,
                provider=f"{name}-works",
                model=f"{name}-1",
                price=_PRICE,
                capabilities=_EVERY if name != "plain" else frozenset(),  # type: ignore[arg-type]
            ),
            _line,
            usage=_USED,
            keep_requests=1,
        )
        for name in ("solver", "seer", "plain")
    ]


@asynccontextmanager
async def application(directory: Path) -> AsyncIterator[tuple[FastAPI, str]]:
    """Run the application with a key for it."""
    token = ""

    async def opening(stack: AsyncExitStack) -> Service:
        nonlocal token
        store = await SqlRunStore.open(directory / "podium.db")
        buffered = BufferedRunStore(store)
        stack.push_async_callback(buffered.close)
        workers = _workers()
        pool = Pool(tuple(worker.profile for worker in workers))
        plan = write(Workflow((Step("plain", "Think."), Step("seer", "Answer.", (0,)))), pool)
        planner = ScriptedWorker("planner", plan, price=_PRICE, usage=_USED, keep_requests=1)
        access = KeyAuthenticator(store.keys, pool)
        stack.push_async_callback(access.close)
        made = make_key("a fuzzer", Rules())
        await store.keys.add(made.key)
        token = made.token
        podium = AsyncPodium(
            workers,
            ModelConductor(planner, structured="lists"),
            retry=RetryPolicy(attempts=1),
            store=buffered,
        )
        stack.push_async_callback(podium.close)
        return await open_service(podium, buffered, access, ServerSettings(drain_seconds=1.0))

    app = create_app(opening, DIALECTS)
    async with app.router.lifespan_context(app):
        yield app, token


async def campaign(count: int, seed: int, paths: tuple[str, ...] = PATHS) -> FuzzRow:
    """Send that many requests in each dialect."""
    errors = _Errors()
    heard = [logging.getLogger(name) for name in ("podium", "asyncio", "uvicorn")]
    for logger in heard:
        logger.addHandler(errors)
    began = time.perf_counter()
    try:
        with TemporaryDirectory(prefix="podium-fuzz-") as directory:
            async with application(Path(directory)) as (app, token):
                campaigns = [
                    BodyCampaign(app, path, token, Random(f"{seed} {path}"), errors)  # noqa: S311
                    for path in paths
                ]
                with settled_heap():
                    for campaign in campaigns:
                        await campaign.run(count)
    finally:
        for logger in heard:
            logger.removeHandler(errors)
    findings = [finding for campaign in campaigns for finding in campaign.findings]
    findings += [Finding(f"logged at the end: {said}", "") for said in errors.said]
    return FuzzRow(
        name="bodies",
        inputs=count * len(paths),
        seconds=time.perf_counter() - began,
        findings=tuple(findings[:MOST_FINDINGS]),
        corpus=sum(len(campaign.corpus) for campaign in campaigns),
        spoiled=sum(campaign.spoiled for campaign in campaigns),
    )
