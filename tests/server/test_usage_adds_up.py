"""What is reported is what the upstreams said, to the token and to the cent: in every dialect,
whole and streamed, in the store and on the key; whatever is planned, fails, is tried again, falls
back, nests, mends its JSON or waits for tools."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import BadReply, RateLimited, RequestRefused, Unavailable, WorkerError
from podium.core.pool import Capability, Pool, WorkerProfile
from podium.core.request import (
    NO_USAGE,
    UNKNOWN_USAGE,
    Delta,
    Price,
    Reply,
    Request,
    ToolCall,
    Usage,
    add,
    user,
)
from podium.core.run import Run
from podium.core.worker import Caller, Worker
from podium.core.workflow import Access, Step, Workflow
from podium.engine.runner import ConductorWorker, Options
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.startup import DIALECTS
from podium.store.keys import KeyUsage, Rules
from podium.store.sql.run_store import SqlRunStore
from support.serving import application, serving

MAX_TURNS: Final = 4
CAPABLE: Final[frozenset[Capability]] = frozenset({"tools", "json", "sampling"})
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@dataclass
class Ledger:
    """What the upstreams said, call by call."""

    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def enter(self, profile: WorkerProfile, usage: Usage) -> None:
        assert profile.price is not None
        self.usage += usage
        cost = 0.0 if usage is NO_USAGE else profile.price.cost(usage)
        self.cost_usd = add(self.cost_usd, cost)
        if profile.name == "planner":
            self.orchestration += usage


class Upstream(Worker):
    """Replies, fails, breaks off, calls tools and writes bad JSON at random, and keeps account.

    With `murky`, it sometimes does not say what it used, and what fails was paid for."""

    def __init__(self, profile: WorkerProfile, dice: random.Random, books: Ledger, murky: bool):
        self.profile = profile
        self._dice = dice
        self._books = books
        self._murky = murky

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(0)  # others have their turn, as in any real call
        fault = self._fault()
        if fault is not None:
            raise self._accounted(fault)
        return self._said(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        await asyncio.sleep(0)
        fault = self._fault()
        if fault is not None:
            if self._dice.random() < 0.5:
                self._books.seen["broken off in mid-stream"] += 1
                yield Delta("Well, ")
            raise self._accounted(fault)
        reply = self._said(request)
        for start in range(0, len(reply.text), 5):
            yield Delta(reply.text[start : start + 5])
        yield reply

    def _fault(self) -> WorkerError | None:
        if self._dice.random() > 0.3:
            return None
        faults: list[WorkerError] = [Unavailable("down"), RateLimited("slow"), RequestRefused("no")]
        return self._dice.choice(faults) if not self._murky else BadReply("odd")

    def _accounted(self, fault: WorkerError) -> WorkerError:
        self._books.seen[type(fault).__name__] += 1
        self._books.enter(self.profile, UNKNOWN_USAGE if fault.billed else NO_USAGE)
        return fault

    def _said(self, request: Request) -> Reply:
        usage = self._usage()
        self._books.enter(self.profile, usage)
        dice = self._dice
        if request.tools and dice.random() < 0.5:
            self._books.seen["tools"] += 1
            number = dice.randrange(10**9)
            calls = (ToolCall(f"c{number}-{i}", "look", "{}") for i in range(dice.randint(1, 2)))
            return Reply("", usage, "tool", tuple(calls))
        if request.schema is None:
            return Reply("so it is said", usage)
        fits = dice.random() < 0.6
        self._books.seen["good JSON" if fits else "bad JSON"] += 1
        return Reply('{"n": 1}' if fits else '{"n": "one"}', usage)

    def _usage(self) -> Usage:
        dice = self._dice
        if self._murky and dice.random() < 0.3:
            return dice.choice([UNKNOWN_USAGE, Usage(5, None, 0, 0, 0), Usage(7, 3)])
        cached, written, plain = (dice.choice([0, dice.randrange(1000)]) for _ in range(3))
        output = dice.randrange(500)
        return Usage(cached + written + plain, output, cached, dice.randint(0, output), written)


class Restless(Conductor):
    """Plans at random, asks a model to do so, and nests where it may."""

    name = "restless"

    def __init__(self, dice: random.Random, worker: Worker) -> None:
        self._dice = dice
        self.worker: Worker = worker

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        dice = self._dice
        for _ in range(dice.randrange(3)):
            try:
                await call(self.worker, Request((user("plan"),)))
            except WorkerError:
                continue
        if context.answer is not None and dice.random() < 0.3:
            return Plan(None)
        steps = []
        for index in range(dice.randint(1, min(4, context.max_steps))):
            reads = tuple(i for i in range(index) if dice.random() < 0.4)
            access: Access = "all" if dice.random() < 0.2 else reads
            steps.append(Step(dice.choice(context.pool.names), f"subtask {index}", access))
        return Plan(Workflow(tuple(steps)))


@dataclass
class ServedPool:
    """A server over random upstreams, and one client with one key."""

    client: httpx.AsyncClient
    books: Ledger
    store: SqlRunStore
    key_id: str
    access: KeyAuthenticator
    names: tuple[str, ...]

    async def on_record(self, run_id: str) -> Run:
        await self.client.get("/v1/runs")  # writes what has ended
        return await self.store.load(run_id)

    async def charged(self) -> list[KeyUsage]:
        await self.access.close()
        return await self.store.keys.usage(key_id=self.key_id)


@asynccontextmanager
async def stage(directory: Path, drawn: dict[str, Any], murky: bool) -> AsyncIterator[ServedPool]:
    dice, books = random.Random(repr(drawn)), Ledger()
    names = [f"w{number}" for number in range(dice.randint(1, 3))]
    profiles = [_profile(dice, name, names) for name in names]
    upstreams: list[Worker] = [Upstream(entry, dice, books, murky) for entry in profiles]
    planner = Upstream(_profile(dice, "planner", []), dice, books, murky)
    workers = [*upstreams, ConductorWorker()] if dice.random() < 0.5 else upstreams
    store = await SqlRunStore.open(Path(mkdtemp(dir=directory)) / "podium.db")
    made = make_key("Ada", Rules(scopes=frozenset({"admin"})))
    await store.keys.add(made.key)
    access = KeyAuthenticator(store.keys, Pool(tuple(entry.profile for entry in workers)))
    app = application(
        workers,
        conductor=Restless(dice, planner),
        options=Options(rounds=dice.randint(1, 2), budget=Budget(calls=40, depth=1)),
        store=store,
        access=access,
        dialects=DIALECTS,
    )
    async with serving(app) as served:
        served.client.headers["Authorization"] = f"Bearer {made.token}"
        yield ServedPool(served.client, books, store, made.key.id, access, tuple(names))
        await access.close()


def _profile(dice: random.Random, name: str, others: list[str]) -> WorkerProfile:
    price = Price(
        input=dice.uniform(0.1, 9),
        output=dice.uniform(0.1, 9),
        cached=dice.choice([None, dice.uniform(0.01, 1)]),
        cache_write=dice.choice([None, dice.uniform(0.1, 9)]),
    )
    substitutes: list[str | None] = [other for other in others if other != name]
    return WorkerProfile(
        name=name,
        provider="scripted",
        price=price,
        capabilities=CAPABLE,
        fallback=dice.choice([None, *substitutes]),
    )


@dataclass
class RunSink:
    """One response as far as it matters here: what it used, what it calls, and how to go on."""

    used: dict[str, int | None] | None
    calls: list[str]
    said: Any


class Chat:
    """Asks and listens in Chat Completions."""

    path = "/v1/chat/completions"
    begin: Final[list[Any]] = [{"role": "user", "content": "Why?"}]
    tool: Final = {"type": "function", "function": {"name": "look", "parameters": {}}}
    form: Final = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    }

    def body(self, turns: list[Any], stream: bool) -> dict[str, Any]:
        options = {"stream_options": {"include_usage": True}} if stream else {}
        return {"messages": turns, "stream": stream, **options}

    def format_response(self, events: list[Any]) -> Any:
        """A stream, put together."""
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        content = "".join(delta.get("content") or "" for delta in deltas)
        message = {"role": "assistant", "content": content, "tool_calls": calls}
        return {"choices": [{"message": message}], "usage": events[-1]["usage"]}

    def report(self, document: Any) -> RunSink:
        message, usage = document["choices"][0]["message"], document["usage"]
        calls = message.get("tool_calls") or []
        for call in calls:
            call.pop("index", None)
        if usage is None:
            return RunSink(None, [call["id"] for call in calls], message)
        read, written = usage["prompt_tokens_details"], usage["completion_tokens_details"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        used = {
            "input": usage["prompt_tokens"],
            "output": usage["completion_tokens"],
            "cached": read.get("cached_tokens"),
            "written": read.get("cache_write_tokens"),
            "reasoning": written.get("reasoning_tokens"),
            "planning input": read.get("orchestration_input_tokens", 0),
            "planning output": written.get("orchestration_output_tokens", 0),
        }
        return RunSink(used, [call["id"] for call in calls], message)

    def go_on(self, turns: list[Any], expected: RunSink) -> list[Any]:
        results = [
            {"role": "tool", "tool_call_id": id_, "content": "found"} for id_ in expected.calls
        ]
        return [*turns, expected.said, *results]


class Responses:
    """Asks and listens in Responses."""

    path = "/v1/responses"
    begin: Final[list[Any]] = [{"role": "user", "content": "Why?"}]
    tool: Final = {"type": "function", "name": "look", "parameters": {}, "strict": False}
    form: Final = {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}

    def body(self, turns: list[Any], stream: bool) -> dict[str, Any]:
        return {"input": turns, "stream": stream}

    def format_response(self, events: list[Any]) -> Any:
        return events[-1]["response"]

    def report(self, document: Any) -> RunSink:
        output, usage = document["output"], document["usage"]
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        if usage is None:
            return RunSink(None, calls, output)
        read, written = usage["input_tokens_details"], usage["output_tokens_details"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        used = {
            "input": usage["input_tokens"],
            "output": usage["output_tokens"],
            "cached": read["cached_tokens"],
            "written": read["cache_write_tokens"],
            "reasoning": written["reasoning_tokens"],
            "planning input": read.get("orchestration_input_tokens", 0),
            "planning output": written.get("orchestration_output_tokens", 0),
        }
        return RunSink(used, calls, output)

    def go_on(self, turns: list[Any], expected: RunSink) -> list[Any]:
        results = [
            {"type": "function_call_output", "call_id": id_, "output": "found"}
            for id_ in expected.calls
        ]
        return [*turns, *expected.said, *results]


class Messages:
    """Asks and listens in Messages."""

    path = "/v1/messages"
    begin: Final[list[Any]] = [{"role": "user", "content": "Why?"}]
    tool: Final = {"name": "look", "input_schema": {"type": "object"}}
    form: Final = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}

    def body(self, turns: list[Any], stream: bool) -> dict[str, Any]:
        return {"messages": turns, "stream": stream, "max_tokens": 2000}

    def format_response(self, events: list[Any]) -> Any:
        blocks = [entry["content_block"] for entry in events if "content_block" in entry]
        for event in events:
            if event["type"] == "content_block_delta" and "text" in event["delta"]:
                blocks[event["index"]]["text"] += event["delta"]["text"]
        (delta,) = (entry for entry in events if entry["type"] == "message_delta")
        return {"content": blocks, "usage": delta["usage"]}

    def report(self, document: Any) -> RunSink:
        content, usage = document["content"], document["usage"]
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        said = [block for block in content if block.get("text") != ""]
        message = {"role": "assistant", "content": said}
        cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        planning = usage.get("input_tokens_details", {})
        thinking = usage.get("output_tokens_details", {})
        used = {
            "input": usage["input_tokens"] + (cached or 0) + (written or 0),
            "output": usage["output_tokens"],
            "cached": cached,
            "written": written,
            "reasoning": thinking.get("thinking_tokens"),
            "planning input": planning.get("orchestration_input_tokens", 0),
            "planning output": thinking.get("orchestration_output_tokens", 0),
        }
        return RunSink(used, calls, message)

    def go_on(self, turns: list[Any], expected: RunSink) -> list[Any]:
        results = [
            {"type": "tool_result", "tool_use_id": id_, "content": "found"}
            for id_ in expected.calls
        ]
        return [*turns, expected.said, {"role": "user", "content": results}]


Speaking = Chat | Responses | Messages
DIALECT: Final[dict[str, Speaking]] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
}


@dataclass
class Conversation:
    """All events until the answer or the failure."""

    used: list[dict[str, int | None] | None]
    run_id: str | None
    went_well: bool


async def converse(stage: ServedPool, speaking: Speaking, wish: dict[str, Any]) -> Conversation:
    """Ask, and carry out tools as long as any are called."""
    turns, run_id = speaking.begin, None
    used: list[dict[str, int | None] | None] = []
    for _ in range(MAX_TURNS):
        body = speaking.body(turns, wish["stream"]) | wish
        response = await stage.client.post(speaking.path, json=body)
        run_id = response.headers.get("x-podium-run", run_id)
        assert response.status_code in (200, 400, 402, 429, 502), response.text
        document = _document(speaking, response)
        if document is None:
            return Conversation(used, run_id, went_well=False)
        reported = speaking.report(document)
        used.append(reported.used)
        if not reported.calls:
            return Conversation(used, run_id, went_well=True)
        turns = speaking.go_on(turns, reported)
    return Conversation(used, run_id, went_well=True)


def _document(speaking: Speaking, response: httpx.Response) -> Any:
    """The body, put together where it was streamed; None where there was an error."""
    if response.status_code != 200:
        return None
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.json()
    lines = (line.removeprefix("data: ") for line in response.text.splitlines())
    events = [json.loads(line) for line in lines if line.startswith("{")]
    if any("error" in (event.get("type"), *event) for event in events if not event.get("response")):
        return None
    return speaking.format_response(events)


def as_told(usage: Usage, planning: Usage) -> dict[str, int | None]:
    """Usage in the words of `RunSink`."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_input_tokens,
        "written": usage.cache_write_tokens,
        "reasoning": usage.reasoning_tokens,
        "planning input": planning.input_tokens or 0,
        "planning output": planning.output_tokens or 0,
    }


SEEN: Counter[str] = Counter()

WISHES: Final = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "spoken": st.sampled_from(sorted(DIALECT)),
        "by_name": st.sampled_from([False, False, True]),
        "stream": st.booleans(),
        "tools": st.booleans(),
        "form": st.sampled_from([False, False, True]),
    }
)


def wish_of(stage: ServedPool, drawn: dict[str, Any]) -> dict[str, Any]:
    speaking = DIALECT[drawn["spoken"]]
    return {
        "model": stage.names[0] if drawn["by_name"] else "podium-ultra",
        "stream": drawn["stream"],
        **({"tools": [speaking.tool]} if drawn["tools"] else {}),
        **(speaking.form if drawn["form"] else {}),
    }


@given(drawn=WISHES)
@settings(max_examples=100)
def test_responses_store_and_charges_match_the_upstreams_usage(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]
) -> None:
    asyncio.run(_adds_up(tmp_path_factory.getbasetemp(), drawn))


async def _adds_up(directory: Path, drawn: dict[str, Any]) -> None:
    async with stage(directory, drawn, murky=False) as set_up:
        conversation = await converse(set_up, DIALECT[drawn["spoken"]], wish_of(set_up, drawn))
        books = set_up.books
        SEEN.update(books.seen.keys())
        SEEN.update(["answered" if conversation.went_well else "failed"])
        if conversation.went_well:
            result = Counter[str]()
            for used in conversation.used:
                result.update(used)
            expected = as_told(books.usage, books.orchestration)
            assert {name: result[name] for name in expected} == expected
        if conversation.run_id is not None:
            run = await set_up.on_record(conversation.run_id)
            assert (run.usage, run.orchestration) == (books.usage, books.orchestration)
            assert run.cost_usd == pytest.approx(books.cost_usd)
        rows = await set_up.charged()
        assert sum(row.input_tokens for row in rows) == books.usage.input_tokens
        assert sum(row.output_tokens for row in rows) == books.usage.output_tokens
        planning = sum(row.orchestration_input_tokens for row in rows)
        assert planning == books.orchestration.input_tokens
        assert sum(row.cost_usd for row in rows) == pytest.approx(books.cost_usd)
        assert not any(row.unknown_usage_count or row.unknown_cost_count for row in rows)


@given(drawn=WISHES)
@settings(max_examples=40)
def test_unreported_upstream_usage_is_unknown_and_never_zero(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]
) -> None:
    asyncio.run(_stays_unknown(tmp_path_factory.getbasetemp(), drawn))


async def _stays_unknown(directory: Path, drawn: dict[str, Any]) -> None:
    async with stage(directory, drawn, murky=True) as set_up:
        conversation = await converse(set_up, DIALECT[drawn["spoken"]], wish_of(set_up, drawn))
        books = set_up.books
        unknown = books.usage.total_tokens is None
        if conversation.run_id is not None:
            run = await set_up.on_record(conversation.run_id)
            assert (run.usage, run.orchestration) == (books.usage, books.orchestration)
            if books.cost_usd is None:
                assert run.cost_usd is None
        if conversation.went_well and drawn["spoken"] != "messages":  # it must tell a number
            assert (None in conversation.used) == unknown
        rows = await set_up.charged()
        assert any(row.unknown_usage_count for row in rows) == unknown
        assert any(row.unknown_cost_count for row in rows) == (books.cost_usd is None)


def test_everything_that_can_happen_was_tried() -> None:
    """A property that is only tried on what is easy holds of nothing else."""
    if not SEEN:
        pytest.skip("the property was not tried in this process")
    wanted = {"answered", "failed", "tools", "good JSON", "bad JSON", "broken off in mid-stream"}
    assert wanted | {"Unavailable", "RateLimited", "RequestRefused"} <= set(SEEN)
