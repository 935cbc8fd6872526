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
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import FastAPI

from benchmarks.asgi import HttpResponse, InvalidResponse, post
from benchmarks.fuzz import MAX_FINDINGS, Finding, FuzzRow
from benchmarks.fuzz.requests import BODIES, Body, EncodedRequest, damage, depth_of, encode_request
from benchmarks.timing import settled_heap
from podium.client.client import AsyncPodium
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.config import ServerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price, Reply, Request, ToolCall, Usage
from podium.core.workflow import Step, Workflow
from podium.engine import RetryPolicy
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.app import create_app
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.server.startup import DIALECTS
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers.scripted import ScriptedWorker

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
PATHS: Final = (CHAT, RESPONSES, MESSAGES)

WHOLE: Final = {
    CHAT: ("object", "chat.completion"),
    RESPONSES: ("object", "response"),
    MESSAGES: ("type", "message"),
}
"""The field that says what an answer is, and what it says."""

ENDINGS: Final = {
    RESPONSES: ("response.completed", "response.incomplete", "response.failed", "error"),
    MESSAGES: ("message_stop", "error"),
}
"""The types of the last event of a stream."""

SPOILED: Final = b"twice for JSON"
"""In the answer where a worker wrote no JSON that fits the schema: not the server's fault."""

LONGEST_MESSAGE: Final = 4000


def judge(response: HttpResponse, path: str) -> None:
    """Raise `InvalidResponse` for an answer that a client cannot read."""
    shown = f"{response.status}: {response.body[:300]!r}"
    if response.status >= 500 and not (response.status == 502 and SPOILED in response.body):
        raise InvalidResponse(f"answered {shown}")
    if b"internal server error" in response.body:
        raise InvalidResponse(f"failed within: {shown}")
    if response.media_type.startswith("text/event-stream"):
        _judge_stream(response.body.decode(), path)
        return
    if response.media_type != "application/json":
        raise InvalidResponse(f"the answer is {response.media_type!r}")
    document = _object(response.body.decode())
    if response.status >= 400:
        _judge_error(document, path)
    elif response.status != 200 or document.get(WHOLE[path][0]) != WHOLE[path][1]:
        raise InvalidResponse(f"no answer of this dialect: {shown}")


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidResponse(f"not JSON ({error}): {text[:300]!r}") from None
    if not isinstance(document, Mapping):
        raise InvalidResponse(f"no object: {text[:300]!r}")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _judge_error(document: Mapping[str, Any], path: str) -> None:
    """Check an error: Anthropic's form for Messages, else OpenAI's."""
    error = document.get("error")
    has_form = document.get("type") == "error" if path == MESSAGES else len(document) == 1
    if not has_form or not isinstance(error, Mapping):
        raise InvalidResponse(f"no error of this dialect: {document!r:.300}")
    if path != MESSAGES and not {"message", "type", "param", "code"} <= error.keys():
        raise InvalidResponse(f"an error without its fields: {error!r:.300}")
    texts = (error.get("message"), error.get("type"))
    if not all(isinstance(text, str) and 0 < len(text) <= LONGEST_MESSAGE for text in texts):
        raise InvalidResponse(f"an error without words, or with too many: {error!r:.300}")


def _judge_stream(text: str, path: str) -> None:
    *documents, last = _data(text)
    for document in documents:
        _object(document)
    is_end = last == "[DONE]" if path == CHAT else _object(last).get("type") in ENDINGS[path]
    if not is_end:
        raise InvalidResponse(f"a stream that ends with {last[:300]!r}")


def _data(text: str) -> Iterator[str]:
    """Yield the data of each event; comments have none."""
    events = text.split("\n\n")
    if events.pop():
        raise InvalidResponse("a stream that breaks off in an event")
    for event in events:
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        named = [line for line in lines if line.startswith("event: ")]
        if lines and (len(data) != 1 or len(data) + len(named) != len(lines)):
            raise InvalidResponse(f"no event: {event[:300]!r}")
        yield from data


SECONDS_ALLOWED: Final = 20.0
"""Timeout of an answer, on a busy machine."""

CPU_SECONDS_ALLOWED: Final = 2.0
"""CPU limit for so small a body."""

MAX_BODIES: Final = 300
"""Size of the corpus; the oldest leave first."""

LEARNED_SHARE: Final = 0.2
DEEPEST_LEARNED: Final = 60
LOGGERS: Final = ("podium", "asyncio", "uvicorn")


class _Errors(logging.Handler):
    """Collects errors that the server logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.getMessage()} {record.exc_info!r}")


@dataclass(slots=True)
class BodyCampaign:
    """One dialect's campaign."""

    app: FastAPI
    path: str
    token: str
    chance: Random
    errors: _Errors
    corpus: deque[Body] = field(default_factory=lambda: deque(maxlen=MAX_BODIES))
    findings: list[Finding] = field(default_factory=list)

    async def run(self, count: int) -> None:
        bodies, chance = BODIES[self.path], self.chance
        others = [body for path in PATHS for body in BODIES[path]]
        for _ in range(count):
            if len(self.findings) >= MAX_FINDINGS:
                return
            known = self.corpus if self.corpus and chance.random() < 0.5 else bodies
            body = damage(known[int(chance.random() * len(known))], others, chance)
            request = encode_request(body, self.token, chance)
            if broken := await self._send(body, request):
                self.findings.append(Finding(f"{self.path}: {broken}", str(request)))

    async def _send(self, body: Body, request: EncodedRequest) -> str:
        """Send one request; return what is wrong with the answer, or nothing."""
        began = time.process_time()
        try:
            async with asyncio.timeout(SECONDS_ALLOWED):
                response = await post(self.app, self.path, request.pieces, request.headers)
            judge(response, self.path)
        except TimeoutError:
            return f"no answer after {SECONDS_ALLOWED:g} s"
        except InvalidResponse as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - what must not be raised is what is looked for
            return repr(error)
        taken = time.process_time() - began
        if taken > CPU_SECONDS_ALLOWED:
            return f"took {taken:.1f} s of CPU time"
        if self.errors.messages:
            logged, self.errors.messages = self.errors.messages[0], []
            return f"logged {logged[:500]}"
        learned = response.status == 200 and self.chance.random() < LEARNED_SHARE
        if learned and depth_of(body) < DEEPEST_LEARNED:
            self.corpus.append(body)
        return ""


_PLAIN: Final = {"array": [], "string": "x", "boolean": True, "null": None}


def _fitting_value(schema: Any, depth: int = 0) -> Any:
    """Return a value that fits a plain schema."""
    if not isinstance(schema, Mapping) or depth > 5:
        return 0
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind, properties = schema.get("type"), schema.get("properties")
    if kind == "object":
        inner = properties if isinstance(properties, Mapping) else {}
        return {name: _fitting_value(subschema, depth + 1) for name, subschema in inner.items()}
    return _PLAIN.get(kind, 0) if isinstance(kind, str) else 0


def _reply(request: Request) -> Reply | str:
    if request.tools and request.tool_choice not in ("", "auto", "none"):
        named = [tool for tool in request.tools if tool.name == request.tool_choice]
        tool = (named or request.tools)[0]
        arguments = json.dumps(_fitting_value(tool.parameters))
        return Reply("", finish="tool", tool_calls=(ToolCall("call_1", tool.name, arguments),))
    if request.schema is not None:
        return json.dumps(_fitting_value(request.schema))
    return "so it is"


_USED: Final = Usage(100, 10, 40, 4, 0)
_PRICE: Final = Price(input=1.0, output=2.0)
_EVERY: Final = frozenset(("tools", "json", "sampling", "reasoning", "vision"))


def _worker(name: str) -> ScriptedWorker:
    profile = WorkerProfile(
        name=name,
        provider=f"{name}-works",
        model=f"{name}-1",
        price=_PRICE,
        capabilities=_EVERY if name != "plain" else frozenset(),  # type: ignore[arg-type]
    )
    return ScriptedWorker(profile, _reply, usage=_USED, keep_requests=1)


@asynccontextmanager
async def application(directory: Path) -> AsyncIterator[tuple[FastAPI, str]]:
    """Run the application with a key for it."""
    made = make_key("a fuzzer", Rules())

    async def open_app_service(stack: AsyncExitStack) -> Service:
        store = await SqlRunStore.open(directory / "podium.db")
        buffered = BufferedRunStore(store)
        stack.push_async_callback(buffered.close)
        workers = [_worker(name) for name in ("solver", "seer", "plain")]
        pool = Pool(tuple(worker.profile for worker in workers))
        plan = write(Workflow((Step("plain", "Think."), Step("seer", "Answer.", (0,)))), pool)
        planner = ScriptedWorker("planner", plan, price=_PRICE, usage=_USED, keep_requests=1)
        access = KeyAuthenticator(store.keys, pool)
        stack.push_async_callback(access.close)
        await store.keys.add(made.key)
        podium = AsyncPodium(
            workers,
            ModelConductor(planner, form="lists"),
            retry=RetryPolicy(attempts=1),
            store=buffered,
        )
        stack.push_async_callback(podium.close)
        return await open_service(podium, buffered, access, ServerSettings(drain_seconds=1.0))

    app = create_app(open_app_service, DIALECTS)
    async with app.router.lifespan_context(app):
        yield app, made.token


async def campaign(count: int, seed: int, paths: tuple[str, ...] = PATHS) -> FuzzRow:
    """Send that many requests in each dialect."""
    errors, campaigns = _Errors(), []
    for name in LOGGERS:
        logging.getLogger(name).addHandler(errors)
    began = time.perf_counter()
    try:
        with TemporaryDirectory(prefix="podium-fuzz-") as directory:
            async with application(Path(directory)) as (app, token):
                with settled_heap():
                    for path in paths:
                        chance = Random(f"{seed} {path}")  # noqa: S311 -- repeatable
                        campaigns.append(BodyCampaign(app, path, token, chance, errors))
                        await campaigns[-1].run(count)
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(errors)
    findings = [finding for one in campaigns for finding in one.findings]
    findings += [Finding(f"logged at the end: {response}", "") for response in errors.messages]
    return FuzzRow(
        inputs=count * len(paths),
        seconds=time.perf_counter() - began,
        findings=tuple(findings[:MAX_FINDINGS]),
        corpus=sum(len(one.corpus) for one in campaigns),
    )
