"""Edit conversations at random, and check that a server's memory changes nothing.

Each request goes to a server that remembers everything and to one that remembers nothing. The last
worker must be sent the same by both, and both must answer with the same status. Workers and the
planner are functions of what they are sent; Podium's own vendor workers write the bodies and read
the responses. In Responses, the server with a memory is often sent `previous_response_id` or
references where the other gets the items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
from fastapi import FastAPI

from benchmarks.chaos.fuzz import CHAT, MAX_FINDINGS, MESSAGES, PATHS, RESPONSES
from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor
from podium.config import ServerSettings
from podium.core.pool import WorkerProfile
from podium.core.request import (
    Message,
    Part,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    system,
    user,
)
from podium.core.workflow import Step, Workflow
from podium.server.access import AccessPolicy
from podium.server.app import create_app
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.server.startup import DIALECTS
from podium.store import RunStore
from podium.store.sql.run_store import SqlRunStore
from podium.workers import Http
from podium.workers.anthropic import AnthropicWorker
from podium.workers.chat import CompatibleWorker
from podium.workers.endpoints import Endpoint
from podium.workers.hosted import HostedWorker
from podium.workers.openai import ResponsesWorker
from podium.workers.scripted import ScriptedWorker

LONGEST: Final = 10
"""Requests of one conversation."""

EDITED: Final = 0.5
"""Share of requests before which the client edits its conversation."""

TOOLS: Final = ("look", "find", "count")
WORDS: Final = ("why", "red", "blue", "seven", "Ada", "now", "")
MODELS: Final = ("podium-ultra", "podium-ultra", "podium", "solver")

_CLIENT: Final = WorkerProfile(
    name="client", provider="vllm", capabilities=frozenset({"tools", "sampling"})
)
_ENDPOINT: Final = (Endpoint("http://podium.test"), Http())
CLIENTS: Final[dict[str, HostedWorker]] = {
    CHAT: CompatibleWorker(_CLIENT, *_ENDPOINT),
    RESPONSES: ResponsesWorker(_CLIENT, *_ENDPOINT),
    MESSAGES: AnthropicWorker(_CLIENT, *_ENDPOINT),
}
"""The worker that writes the bodies of each path."""


@dataclass(slots=True)
class Conversation:
    """A client's conversation and settings. `previous` is the response that `known` messages end
    with; `items` are the ids of stored items by the index of their message."""

    path: str
    messages: list[Message]
    system: str = "Be brief."
    model: str = "podium-ultra"
    tools: tuple[str, ...] = TOOLS
    tool_choice: str = "auto"
    parallel: bool = True
    temperature: float | None = None
    max_tokens: int = 500
    previous: str = ""
    known: int = 0
    items: dict[int, list[str]] = field(default_factory=dict)

    def request(self, messages: Sequence[Message]) -> Request:
        return Request(
            (system(self.system), *messages),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            tools=tuple(Tool(name, "", {"type": "object"}) for name in self.tools),
            tool_choice=self.tool_choice,
            parallel_tools=self.parallel,
        )

    def body(self, *, stored: bool, chance: Random) -> dict[str, Any]:
        """Return a body; `stored`: the server may be sent ids of what it has stored."""
        start, ids = 0, self.items if stored else {}
        if stored and self.previous and chance.random() < 0.4:
            start, ids = self.known, {}
        elif chance.random() < 0.5:
            ids = {}
        body = self._write(self.messages[start:])
        if self.path == RESPONSES:
            body["input"] = list(self._input(start, ids))
            body |= {"instructions": self.system, "store": True}
        if start:
            body["previous_response_id"] = self.previous
        return body | {"model": self.model}

    def _write(self, messages: Sequence[Message]) -> dict[str, Any]:
        return dict(CLIENTS[self.path].build_call(self.request(messages), stream=False).body)

    def _input(self, start: int, ids: dict[int, list[str]]) -> Iterator[dict[str, Any]]:
        """Yield the items of Responses, some as references."""
        for index, message in enumerate(self.messages[start:], start):
            if index in ids:
                yield from ({"type": "item_reference", "id": id_} for id_ in ids[index])
            else:
                yield from self._write([message])["input"][1:]

    def take(self, response: dict[str, Any]) -> None:
        reply = CLIENTS[self.path].parse_reply(response, self.request(self.messages))
        if self.path == RESPONSES:
            self.items[len(self.messages)] = [item["id"] for item in response["output"]]
            self.previous, self.known = response["id"], len(self.messages) + 1
        texts = (Text(reply.text),) if reply.text else ()
        self.messages.append(Message("assistant", (*texts, *reply.tool_calls)))

    def edit(self, chance: Random) -> None:
        """Change a setting or the messages; changed messages are no longer known by their ids."""
        if chance.random() < 0.3:
            name, values = chance.choice(SETTINGS)
            setattr(self, name, chance.choice(values))
            return
        _edit_messages(self.messages, chance)
        self.previous = ""
        self.items.clear()


def _edit_messages(messages: list[Message], chance: Random) -> None:
    outputs = [index for index, message in enumerate(messages) if message.role == "assistant"]
    match chance.randrange(5):
        case 0:  # the text of a message, a result, or the arguments of a call
            index = chance.randrange(len(messages))
            messages[index] = _edit_parts(messages[index], chance)
        case 1 if outputs:  # what the last response said or called
            edited = _edit_parts(messages[outputs[-1]], chance)
            texts = (Text("So."),) if chance.random() < 0.5 else ()
            messages[outputs[-1]] = replace(edited, parts=(*texts, *edited.parts))
        case 2:  # as clients trim their history: only a question may come first
            starts = [index for index, message in enumerate(messages) if message.role == "user"]
            del messages[: chance.choice(starts)]
        case 3 if outputs:  # an earlier point, or the last request again
            del messages[chance.choice(outputs) :]
        case 4:  # a call that another server made
            id_ = f"call_{chance.randrange(10**9)}"
            call = Message("assistant", (ToolCall(id_, chance.choice(TOOLS), "{}"),))
            result = Message("tool", (ToolResult(id_, chance.choice(WORDS)),))
            messages[-1:-1] = [user("Before"), call, result]


def _edit_parts(message: Message, chance: Random) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            given = chance.choice(('{"at":1}', '{ "at": 1 }', part.arguments))
            part = replace(part, arguments=given)
        elif isinstance(part, Text | ToolResult):
            part = replace(part, text=f"{part.text} {chance.choice(WORDS)}")
        parts.append(part)
    return replace(message, parts=tuple(parts))


SETTINGS: Final[Sequence[tuple[str, Sequence[Any]]]] = (
    ("system", ("Be brief.", "Be wordy.", "Your name is Berta.")),
    ("model", MODELS),
    ("tools", (TOOLS, TOOLS, TOOLS[:1], TOOLS[1:], ())),
    ("tool_choice", ("auto", "auto", "auto", "none", "required", "look")),
    ("parallel", (True, False)),
    ("temperature", (None, 0.0, 0.5)),
    ("max_tokens", (500, 700)),
)


def reply_to(request: Request) -> Reply:
    """Return a reply that depends on everything that is sent; earlier steps reply alike.

    A run that is resumed keeps their replies, and a new one lets them see the tools' results.
    """
    if any(f"Your subtask: {name}." in request.text for name in ("Think", "Doubt")):
        return Reply("A view.")
    digest = hashlib.blake2b(repr(comparable(request)).encode(), digest_size=8).hexdigest()
    number = int(digest, 16)
    forced = request.tool_choice not in ("", "auto", "none")
    if request.tools and request.tool_choice != "none" and (forced or number % 3):
        named = [tool for tool in request.tools if tool.name == request.tool_choice]
        tool = (named or request.tools)[number % len(named or request.tools)]
        count = 1 if named or number % 5 else 2
        calls = tuple(
            ToolCall(f"c{digest}{index}", tool.name, f'{{"at": {index}}}') for index in range(count)
        )
        return Reply("Looking." if number % 2 else "", tool_calls=calls, finish="tool")
    return Reply(f"It is {digest}.")


def comparable(request: Request) -> object:
    """Return a request without what makes no difference: how arguments are spelled, and blanks
    around texts."""
    messages = [
        (message.role, *map(_comparable_part, message.parts)) for message in request.messages
    ]
    return replace(request, messages=()), messages


def _comparable_part(part: Part) -> Part:
    match part:
        case ToolCall():
            return replace(part, arguments=json.dumps(json.loads(part.arguments), sort_keys=True))
        case Text():
            return replace(part, text=part.text.strip())
        case _:
            return part


@dataclass(slots=True)
class Side:
    """A server, the worker that answers and the one that does earlier steps."""

    app: FastAPI
    worker: ScriptedWorker
    helper: ScriptedWorker

    async def send(self, path: str, body: Any) -> httpx.Response:
        """Post a body, and wait until everything is written."""
        self.worker.requests.clear()
        self.helper.requests.clear()
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            response = await client.post(path, json=body)
        await self.app.state.holder().store.flush()
        return response

    @property
    def last(self) -> object:
        return comparable(self.worker.requests[-1]) if self.worker.requests else None


@asynccontextmanager
async def serve(store: RunStore) -> AsyncIterator[Side]:
    """Run a server over a store."""
    profile = WorkerProfile(name="solver", capabilities=frozenset({"tools", "sampling"}))
    worker = ScriptedWorker(profile, reply_to)
    helper = ScriptedWorker("helper", reply_to)
    steps = (Step("helper", "Think."), Step("helper", "Doubt."), Step("solver", "Say.", (0, 1)))

    async def open_app_service(stack: AsyncExitStack) -> Service:
        buffered = BufferedRunStore(store)
        stack.push_async_callback(buffered.close)
        podium = AsyncPodium([worker, helper], FixedConductor(Workflow(steps)), store=buffered)
        stack.push_async_callback(podium.close)
        return await open_service(podium, buffered, AccessPolicy(), ServerSettings())

    app = create_app(open_app_service, DIALECTS)
    async with app.router.lifespan_context(app):
        yield Side(app, worker, helper)


class Campaign:
    """Conversations with both servers. `resumed` counts requests that a waiting run answered."""

    def __init__(self, whole: Side, blank: Side, chance: Random) -> None:
        self.edits = 0
        self.resumed = 0
        self.findings: list[str] = []
        self._whole = whole
        self._blank = blank
        self._chance = chance

    async def converse(self) -> None:
        chance = self._chance
        asked = Conversation(chance.choice(PATHS), [user("Why?")], model=chance.choice(MODELS))
        for number in range(LONGEST):
            answer = await self._ask(asked)
            if answer is not None:
                asked.take(answer)
                calls = [part for part in asked.messages[-1].parts if isinstance(part, ToolCall)]
                results = tuple(ToolResult(call.id, chance.choice(WORDS)) for call in calls)
                asked.messages.append(Message("tool", results) if calls else user("And?"))
            elif number:
                return  # refused as edited, or a finding
            while chance.random() < EDITED:
                asked.edit(chance)
                self.edits += 1

    async def _ask(self, asked: Conversation) -> dict[str, Any] | None:
        """Send a request to both; return the answer, if there is one and they agree."""
        bodies = [asked.body(stored=stored, chance=self._chance) for stored in (True, False)]
        response = await self._whole.send(asked.path, bodies[0])
        blank = await self._blank.send(asked.path, bodies[1])
        self.resumed += len(self._whole.helper.requests) < len(self._blank.helper.requests)
        if response.status_code >= 500 or response.status_code != blank.status_code:
            expected = f"{blank.status_code} {blank.content[:200]!r}"
            problem = f"{response.status_code} {response.content[:200]!r}, not {expected}"
        elif self._whole.last != self._blank.last:
            problem = f"the worker was sent {self._whole.last}, not {self._blank.last}"
        else:
            return response.json() if response.status_code == 200 else None
        self.findings.append(f"{asked.path}: {problem}: {json.dumps(bodies)}")
        return None


async def campaign(count: int, seed: int) -> Campaign:
    """Make that many edits."""
    with TemporaryDirectory(prefix="podium-fuzz-") as directory:
        store = await SqlRunStore.open(Path(directory) / "podium.db")
        async with serve(store) as whole, serve(RunStore()) as blank:
            done = Campaign(whole, blank, Random(seed))
            while done.edits < count and len(done.findings) < MAX_FINDINGS:
                await done.converse()
    return done
