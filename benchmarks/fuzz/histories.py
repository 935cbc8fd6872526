"""Edit conversations at random, and check that a server's memory changes nothing.

Each request goes to a server that remembers everything and to one that remembers nothing. The last
worker must be sent the same by both, and both must answer with the same status. Workers and the
planner are functions of what they are sent. In Responses, the server with a memory is often sent
`previous_response_id` or references where the other gets the items.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import FastAPI

from benchmarks.asgi import HttpResponse, post
from benchmarks.fuzz import MAX_FINDINGS, Finding, FuzzRow
from benchmarks.fuzz.server import CHAT, MESSAGES, PATHS, RESPONSES
from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor
from podium.config import ServerSettings
from podium.core.pool import WorkerProfile
from podium.core.request import Message, Part, Reply, Request, Text, ToolCall, ToolResult, user
from podium.core.workflow import Step, Workflow
from podium.server.access import AccessPolicy
from podium.server.app import create_app
from podium.server.operation.startup import DIALECTS
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.service import Service, open_service
from podium.store import NullStore, RunStore
from podium.store.sql.run_store import SqlRunStore
from podium.workers.scripted import ScriptedWorker

LONGEST: Final = 10
"""Requests of one conversation."""

EDITED: Final = 0.5
"""Share of requests before which the client edits its conversation."""

TOOLS: Final = ("look", "find", "count")
WORDS: Final = ("why", "red", "blue", "seven", "Ada", "now", "")
MODELS: Final = ("podium-ultra", "podium-ultra", "podium", "solver")


@dataclass(slots=True)
class Conversation:
    """A client's conversation and settings. `sent` is what it remembers of the last response."""

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
    """The response that the messages before `known` end with."""
    known: int = 0
    items: dict[int, list[str]] = field(default_factory=dict)
    """Ids of stored items by the index of their message."""

    def forget(self) -> None:
        """Drop what is known of stored responses: the messages have changed."""
        self.previous = ""
        self.items.clear()

    def body(self, *, stored: bool, chance: Random) -> dict[str, Any]:
        """Return a body; `stored`: the server may be sent ids of what it has stored."""
        messages, ids, previous = self.messages, self.items if stored else {}, ""
        if stored and self.path == RESPONSES and self.previous and chance.random() < 0.4:
            messages, ids, previous = self.messages[self.known :], {}, self.previous
        elif chance.random() < 0.5:
            ids = {}
        render = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses}[self.path]
        body: dict[str, Any] = render(self, messages, ids) | {"model": self.model}
        body |= {"previous_response_id": previous} if previous else {}
        return body | ({} if self.temperature is None else {"temperature": self.temperature})

    def take(self, answer: Mapping[str, Any]) -> None:
        """Append the response to the messages."""
        parts: list[Part] = []
        match self.path:
            case "/v1/chat/completions":
                message = answer["choices"][0]["message"]
                parts += [Text(message["content"])] if message["content"] else []
                for call in message.get("tool_calls") or ():
                    made = call["function"]
                    parts.append(ToolCall(call["id"], made["name"], made["arguments"]))
            case "/v1/messages":
                for block in answer["content"]:
                    if block["type"] == "text" and block["text"]:
                        parts.append(Text(block["text"]))
                    elif block["type"] == "tool_use":
                        given = json.dumps(block["input"])
                        parts.append(ToolCall(block["id"], block["name"], given))
            case _:
                for item in answer["output"]:
                    if item["type"] == "message":
                        parts.append(Text(item["content"][0]["text"]))
                    else:
                        parts.append(ToolCall(item["call_id"], item["name"], item["arguments"]))
                self.items[len(self.messages)] = [item["id"] for item in answer["output"]]
                self.previous, self.known = answer["id"], len(self.messages) + 1
        self.messages.append(Message("assistant", tuple(parts)))


def _chat(asked: Conversation, messages: Sequence[Message], ids: Mapping[int, list[str]]) -> Any:
    turns: list[dict[str, Any]] = [{"role": "system", "content": asked.system}]
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        turns += [
            {"role": "tool", "tool_call_id": item.call_id, "content": item.text} for item in results
        ]
        if results:
            continue
        turn: dict[str, Any] = {"role": message.role, "content": message.text}
        if calls := [part for part in message.parts if isinstance(part, ToolCall)]:
            turn["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        turns.append(turn)
    choice: Any = asked.tool_choice
    if choice in TOOLS:
        choice = {"type": "function", "function": {"name": choice}}
    tools = [{"type": "function", "function": {"name": name}} for name in asked.tools]
    more = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": asked.parallel}
    return {"messages": turns, "max_tokens": asked.max_tokens, **(more if tools else {})}


def _messages(asked: Conversation, messages: Sequence[Message], ids: object) -> Any:
    turns = []
    for message in messages:
        content: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text() if part.text:
                    content.append({"type": "text", "text": part.text})
                case ToolCall():
                    block = {"type": "tool_use", "id": part.id, "name": part.name}
                    content.append(block | {"input": json.loads(part.arguments)})
                case ToolResult():
                    block = {"type": "tool_result", "tool_use_id": part.call_id}
                    content.append(block | {"content": part.text})
                case _:
                    continue
        role = "assistant" if message.role == "assistant" else "user"
        turns.append({"role": role, "content": content})
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    named = {"name": asked.tool_choice} if asked.tool_choice in TOOLS else {}
    choice: dict[str, Any] = {"type": kinds.get(asked.tool_choice, "tool"), **named}
    if not asked.parallel and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in asked.tools]
    more = {"tools": tools, "tool_choice": choice} if tools else {}
    return {"system": asked.system, "messages": turns, "max_tokens": asked.max_tokens, **more}


def _responses(
    asked: Conversation, messages: Sequence[Message], ids: Mapping[int, list[str]]
) -> Any:
    items: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if index in ids:
            items += [{"type": "item_reference", "id": id_} for id_ in ids[index]]
            continue
        for part in message.parts:
            match part:
                case ToolCall():
                    call = {"type": "function_call", "call_id": part.id, "name": part.name}
                    items.append(call | {"arguments": part.arguments})
                case ToolResult():
                    result = {"type": "function_call_output", "call_id": part.call_id}
                    items.append(result | {"output": part.text})
                case Text():
                    items.append({"role": message.role, "content": part.text})
                case _:
                    continue
    choice: Any = asked.tool_choice
    if choice in TOOLS:
        choice = {"type": "function", "name": choice}
    tools = [
        {"type": "function", "name": name, "parameters": {}, "strict": False}
        for name in asked.tools
    ]
    more = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": asked.parallel}
    body = {"input": items, "instructions": asked.system, "max_output_tokens": asked.max_tokens}
    return body | (more if tools else {})


def _edit_text(part: Part, chance: Random) -> Part:
    match part:
        case Text() | ToolResult():
            return replace(part, text=f"{part.text} {chance.choice(WORDS)}")
        case ToolCall():
            given = chance.choice(('{"at":1}', '{ "at": 1 }', part.arguments))
            return replace(part, arguments=given)
        case _:
            return part


def edit_message(asked: Conversation, chance: Random) -> None:
    """Change the text of a message, a result or the arguments of a call."""
    index = int(chance.random() * len(asked.messages))
    message = asked.messages[index]
    asked.messages[index] = replace(
        message, parts=tuple(_edit_text(part, chance) for part in message.parts)
    )
    asked.forget()


def edit_output(asked: Conversation, chance: Random) -> None:
    """Change what the last response said or called."""
    if len(asked.messages) > 1 and asked.messages[-2].role == "assistant":
        parts = [_edit_text(part, chance) for part in asked.messages[-2].parts]
        texts = [Text("So.")] if chance.random() < 0.5 else []
        asked.messages[-2] = Message("assistant", (*texts, *parts))
        asked.forget()


def drop_messages(asked: Conversation, chance: Random) -> None:
    """Cut the conversation before a question of the user, as clients trim theirs."""
    starts = [index for index, message in enumerate(asked.messages) if message.role == "user"]
    del asked.messages[: chance.choice(starts)]
    asked.forget()


def go_back(asked: Conversation, chance: Random) -> None:
    """Return to an earlier point, or send the last request again."""
    ends = [index for index, item in enumerate(asked.messages) if item.role == "assistant"]
    if ends:
        del asked.messages[chance.choice(ends) :]
        asked.forget()


def insert_foreign(asked: Conversation, chance: Random) -> None:
    """Insert a call and its result that another server made."""
    id_ = f"call_{chance.randrange(10**9)}"
    call = Message("assistant", (ToolCall(id_, chance.choice(TOOLS), "{}"),))
    result = Message("tool", (ToolResult(id_, chance.choice(WORDS)),))
    asked.messages[-1:-1] = [user("Before"), call, result]
    asked.forget()


def change_settings(asked: Conversation, chance: Random) -> None:
    """Change one thing besides the messages."""
    name, values = chance.choice(SETTINGS)
    setattr(asked, name, chance.choice(values))


SETTINGS: Final[Sequence[tuple[str, Sequence[Any]]]] = (
    ("system", ("Be brief.", "Be wordy.", "Your name is Berta.")),
    ("model", MODELS),
    ("tools", (TOOLS, TOOLS, TOOLS[:1], TOOLS[1:], ())),
    ("tool_choice", ("auto", "auto", "auto", "none", "required", "look")),
    ("parallel", (True, False)),
    ("temperature", (None, 0.0, 0.5)),
    ("max_tokens", (500, 700)),
)
EDITS: Final[Sequence[Callable[[Conversation, Random], None]]] = (
    *(edit_message, edit_output, drop_messages, go_back, insert_foreign),
    *(change_settings, change_settings),
)


def reply_to(request: Request) -> Reply:
    """Return a reply that depends on everything that is sent; earlier steps reply alike.

    A run that is resumed keeps their replies, and a new one lets them see the tools' results.
    """
    if any(f"Your subtask: {name}." in request.text for name in ("Think", "Doubt")):
        return Reply("A view.")
    digest = hashlib.blake2b(repr(seen(request)).encode(), digest_size=8).hexdigest()
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


def seen(request: Request) -> object:
    """Return a request without what makes no difference: how arguments are spelled, and blanks
    around texts."""
    messages = [(message.role, *map(_seen_part, message.parts)) for message in request.messages]
    return replace(request, messages=()), messages


def _seen_part(part: Part) -> Part:
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

    async def send(self, path: str, body: Any) -> HttpResponse:
        """Post a body, and wait until everything is written."""
        self.worker.requests.clear()
        self.helper.requests.clear()
        response = await post(self.app, path, [json.dumps(body).encode()], [])
        await self.app.state.holder().store.flush()
        return response

    @property
    def last(self) -> object:
        """The last request that the worker was sent."""
        return seen(self.worker.requests[-1]) if self.worker.requests else None


@asynccontextmanager
async def serve(store: RunStore) -> AsyncIterator[Side]:
    """Run a server over a store."""
    profile = WorkerProfile(name="solver", capabilities=frozenset({"tools", "sampling"}))
    worker = ScriptedWorker(profile, reply_to)
    helper = ScriptedWorker("helper", reply_to)
    steps = (Step("helper", "Think."), Step("helper", "Doubt."), Step("solver", "Say.", (0, 1)))

    async def opening(stack: AsyncExitStack) -> Service:
        buffered = BufferedRunStore(store)
        stack.push_async_callback(buffered.close)
        podium = AsyncPodium([worker, helper], FixedConductor(Workflow(steps)), store=buffered)
        stack.push_async_callback(podium.close)
        return await open_service(podium, buffered, AccessPolicy(), ServerSettings())

    app = create_app(opening, DIALECTS)
    async with app.router.lifespan_context(app):
        yield Side(app, worker, helper)


class Campaign:
    """Conversations with both servers. `resumed` counts requests that a waiting run answered."""

    def __init__(self, whole: Side, blank: Side, chance: Random) -> None:
        self.edits = 0
        self.resumed = 0
        self.findings: list[Finding] = []
        self._whole = whole
        self._blank = blank
        self._chance = chance

    async def converse(self) -> None:
        """Hold a conversation."""
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
                chance.choice(EDITS)(asked, chance)
                self.edits += 1

    async def _ask(self, asked: Conversation) -> dict[str, Any] | None:
        """Send a request to both; return the answer, if there is one and they agree."""
        bodies = [asked.body(stored=stored, chance=self._chance) for stored in (True, False)]
        response = await self._whole.send(asked.path, bodies[0])
        blank = await self._blank.send(asked.path, bodies[1])
        self.resumed += len(self._whole.helper.requests) < len(self._blank.helper.requests)
        if response.status >= 500 or response.status != blank.status:
            expected = f"{blank.status} {blank.body[:200]!r}"
            problem = f"{response.status} {response.body[:200]!r}, not {expected}"
        elif self._whole.last != self._blank.last:
            problem = f"the worker was sent {self._whole.last}, not {self._blank.last}"
        else:
            return json.loads(response.body) if response.status == 200 else None
        self.findings.append(Finding(f"{asked.path}: {problem}", json.dumps(bodies)))
        return None


async def campaign(count: int, seed: int) -> FuzzRow:
    """Make that many edits; the row's `corpus` counts the requests that resumed a run."""
    began = time.perf_counter()
    with TemporaryDirectory(prefix="podium-fuzz-") as directory:
        store = await SqlRunStore.open(Path(directory) / "podium.db")
        async with serve(store) as whole, serve(NullStore()) as blank:
            done = Campaign(whole, blank, Random(seed))  # noqa: S311 -- repeatable
            while done.edits < count and len(done.findings) < MAX_FINDINGS:
                await done.converse()
    return FuzzRow(
        inputs=done.edits,
        seconds=time.perf_counter() - began,
        findings=tuple(done.findings),
        corpus=done.resumed,
    )
