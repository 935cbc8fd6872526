"""`podium mcp`, spoken to line by line, and by the official client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from podium.cli import mcp as server_module
from podium.cli.mcp import LARGEST_MESSAGE, McpServer
from podium.client.client import AsyncPodium
from podium.client.run_options import RunOptions
from podium.conductors import FixedConductor, TierRouter
from podium.core.budget import Budget
from podium.core.request import Price
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options
from podium.store import RunStore
from podium.workers import ScriptedWorker
from support.scripted_router import ScriptedRouter
from support.stage import Actor

POOL = """
[conductor]
kind = "router"

[[worker]]
name = "solver"
provider = "scripted"
options = { reply = "It is 42." }
"""

TWO = Workflow((Step("a", "draft it"), Step("b", "check it", (0,))))


class Talk:
    """A client that says what the test says, over a socket of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def say(self, method: str, number: object = None, **params: object) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.raw(json.dumps(message if number is None else {**message, "id": number}).encode())

    def raw(self, line: bytes) -> None:
        self.writer.write(line + b"\n")

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(20):
            said: dict[str, Any] = json.loads(await self._reader.readline())
        return said

    async def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        client = {"name": "test", "version": "1"}
        said = await self.ask(
            "initialize", protocolVersion=version, capabilities={}, clientInfo=client
        )
        self.say("notifications/initialized")
        result: dict[str, Any] = said["result"]
        return result

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        self.say(method, 1, **params)
        return await self.hear()

    async def use(self, tool: str, **arguments: object) -> dict[str, Any]:
        result: dict[str, Any] = (await self.ask("tools/call", name=tool, arguments=arguments))[
            "result"
        ]
        return result


@asynccontextmanager
async def talking(
    podium: AsyncPodium, usual: RunOptions | None = None, *, initialize: bool = True
) -> AsyncIterator[Talk]:
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await McpServer(podium, reader, writer, usual).serve()
        writer.close()
        done.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LARGEST_MESSAGE)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            talk = Talk(reader, writer)
            if initialize:
                await talk.initialize()
            yield talk
        finally:
            writer.close()
            async with asyncio.timeout(20):
                await done.wait()
            await podium.close()


class Kept(RunStore):
    """Keeps the runs that have ended where a test can look at them."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    async def finish(self, *runs: Run) -> None:
        self.runs += runs


def scripted(
    *replies: str, options: Options | None = None, store: RunStore | None = None
) -> AsyncPodium:
    workers = [ScriptedWorker("a", [*replies] or "A"), ScriptedWorker("b", "B")]
    return AsyncPodium(workers, FixedConductor(TWO), options=options, store=store)


async def test_a_fault_of_our_own_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("nothing for the client's eyes")

    monkeypatch.setattr(server_module, "call_tool", fails)
    async with talking(scripted()) as talk:
        said = await talk.ask("tools/call", name="ask", arguments={"question": "Why?"})
    assert said["error"] == {"code": -32603, "message": "Podium failed: ZeroDivisionError"}
    assert "tools/call failed" in caplog.text


async def test_the_official_client_asks_and_plans(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(POOL, "utf-8")
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "podium", "mcp", "--pool", str(pool), "--no-store"],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)},
    )
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with Client(program, read_timeout_seconds=60) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "plan"]
        asked = await client.call_tool("ask", {"question": "What is it?"}, progress_callback=hear)
        assert not asked.is_error
        assert asked.content[0].type == "text"
        assert asked.content[0].text == "It is 42."
        assert asked.structured_content is not None
        assert asked.structured_content["workers"] == ["solver"]
        planned = await client.call_tool("plan", {"question": "What is it?"})
        assert planned.structured_content is not None
        assert [step["worker"] for step in planned.structured_content["steps"]] == ["solver"]
        wrong = await client.call_tool("ask", {"question": "What is it?", "tier": "best"})
        assert wrong.is_error
    assert heard == [
        "Planned one step for solver.",
        "Step 1: solver started.",
        "Step 1: done.",
    ]


def test_standard_input_that_is_no_pipe_is_complained_of_in_a_line(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(POOL, "utf-8")
    with pool.open() as file:
        ended = subprocess.run(
            [sys.executable, "-m", "podium", "mcp", "--pool", str(pool), "--no-store"],
            stdin=file,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "standard input and output are not pipes" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("wanted", "agreed"),
    [("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05"), ("2031-01-01", "2025-11-25")],
)
async def test_the_handshake_agrees_on_a_revision(wanted: str, agreed: str) -> None:
    async with talking(scripted(), initialize=False) as talk:
        greeting = await talk.initialize(wanted)
    assert greeting["protocolVersion"] == agreed
    assert set(greeting["capabilities"]) >= {"tools"}
    assert greeting["serverInfo"]["name"] == "podium"


async def test_an_answer_has_the_run_behind_it() -> None:
    async with talking(scripted()) as talk:
        result = await talk.use("ask", question="Why?")
    assert result["content"] == [{"type": "text", "text": "B"}]
    run = result["structuredContent"]
    assert (run["status"], run["answer"], run["workers"]) == ("answered", "B", ["a", "b"])
    assert run["run_id"].startswith("run_")
    assert run["total_tokens"] > 0
    assert not result["isError"]


async def test_a_plan_is_reported_in_words_and_as_json_and_nothing_is_carried_out() -> None:
    podium = scripted()
    async with talking(podium) as talk:
        result = await talk.use("plan", question="Why?")
        assert [
            getattr(worker, "calls", None) for worker in (await podium.open()).assembly.workers
        ] == [0, 0]
    assert result["content"][0]["text"] == (
        "0 a: draft it (reads nothing)\n1 b: check it (reads 0)"
    )
    assert result["structuredContent"]["steps"][1] == {
        "worker": "b",
        "subtask": "check it",
        "access": [0],
    }


async def test_a_call_may_lower_the_cap_on_money_but_not_raise_it() -> None:
    priced = [
        ScriptedWorker(name, "word " * 50, price=Price(input=0.0, output=1e6)) for name in "ab"
    ]
    podium = AsyncPodium(priced, FixedConductor(TWO))
    usual = RunOptions(budget=Budget(usd=60.0))
    async with talking(podium, usual) as talk:
        for asked in (1000.0, 55.0):
            result = await talk.use("ask", question="Why?", budget_usd=asked)
            run = result["structuredContent"]
            cap = min(asked, 60.0)
            assert f"capped at ${cap:g}" in run["error"]


async def test_the_quality_bias_of_a_call_reaches_the_router_and_is_refused_without_one() -> None:
    router = ScriptedRouter({"a": 0.8, "b": 0.9})
    workers = [ScriptedWorker("a", "A"), ScriptedWorker("b", "B")]
    podium = AsyncPodium(workers, FixedConductor(TWO), router=TierRouter(router))
    async with talking(podium) as talk:
        answered = await talk.use("ask", question="Why?", tier="mini", quality_bias=0.2)
        planned = await talk.use("plan", question="Why?", tier="mini", quality_bias=1)
        too_far = await talk.use("ask", question="Why?", tier="mini", quality_bias=1.5)
        unheeded = await talk.use("ask", question="Why?", tier="ultra", quality_bias=0.2)
    assert answered["structuredContent"]["answer"] == "A"
    assert planned["structuredContent"]["routed"]["worker"] == "b"
    assert [quality_bias for _, _, quality_bias in router.asked] == [0.2, 1]
    assert "invalid arguments: at quality_bias" in too_far["content"][0]["text"]
    assert "for the tiers that route" in unheeded["content"][0]["text"]


async def test_a_call_lowers_what_the_settings_say_and_leaves_the_rest_of_it() -> None:
    options = Options(budget=Budget(usd=60.0, calls=1, allow_unpriced=True))
    async with talking(scripted(options=options)) as talk:
        result = await talk.use("ask", question="Why?", budget_usd=1000.0)
    assert "calls is capped at 1" in result["structuredContent"]["error"]


async def test_a_call_gets_no_more_steps_and_rounds_than_are_set() -> None:
    store = Kept()
    async with talking(
        scripted(options=Options(rounds=3), store=store), RunOptions(max_steps=4)
    ) as talk:
        for asked in (2, 9):
            await talk.use("ask", question="Why?", max_steps=asked, rounds=asked)
    assert [(run.max_steps, run.max_rounds) for run in store.runs] == [(2, 2), (4, 3)]


async def test_workers_excluded_by_the_caller_see_nothing_here() -> None:
    store = Kept()
    async with talking(scripted(store=store)) as talk:
        said = await talk.ask(
            "tools/call",
            name="ask",
            arguments={"question": "Why?"},
            _meta={"podium/exclude": ["b", "nobody of this pool", 7]},
        )
    assert said["result"]["isError"], "the plan needs b"
    assert "'b'" in said["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "'question' is a required property"),
        ({"question": 7}, "at question:"),
        ({"question": ""}, "at question:"),
        ({"question": "q", "tier": "best"}, "at tier:"),
        ({"question": "q", "max_steps": 0}, "at max_steps:"),
        ({"question": "q", "model": "x"}, "('model' is one)"),
        ({"question": "  "}, "the question is empty; ask something"),
    ],
)
async def test_wrong_arguments_are_an_error_that_the_model_can_read(
    arguments: dict[str, object], said: str
) -> None:
    async with talking(scripted()) as talk:
        result = await talk.use("ask", **arguments)
    assert result["isError"]
    assert said in result["content"][0]["text"]


async def test_a_run_that_fails_is_an_error_with_the_reason() -> None:
    failing = Actor("a", lambda _: RuntimeError("broken"))
    podium = AsyncPodium([failing], FixedConductor(Workflow((Step("a", "do it"),))))
    async with talking(podium) as talk:
        result = await talk.use("ask", question="Why?")
    assert result["isError"]
    assert "broken" in result["content"][0]["text"]
    assert result["structuredContent"]["answer"] is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b"\xff", -32700),
        (b"[]", -32700),
        (b"{}", -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/fly"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fly"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}', -32602),
        (b"x" * (LARGEST_MESSAGE + 10), -32700),
    ],
)
async def test_a_message_that_is_none_is_refused_and_the_next_one_is_answered(
    line: bytes, code: int
) -> None:
    async with talking(scripted()) as talk:
        talk.raw(line)
        assert (await talk.hear())["error"]["code"] == code
        talk.say("ping", "p")
        said = await talk.hear()
        while said["id"] != "p":  # the rest of a line that was too long
            said = await talk.hear()
        assert said == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_what_needs_no_answer_gets_none() -> None:
    async with talking(scripted()) as talk:
        talk.say("notifications/initialized")
        talk.say("notifications/cancelled", requestId=9)
        talk.raw(b'{"jsonrpc": "2.0", "id": 5, "result": {}}')
        talk.raw(b"")
        talk.raw(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}')
        assert (await talk.ask("ping"))["result"] == {}


def hanging() -> tuple[AsyncPodium, Actor]:
    actor = Actor("a")
    actor.gate = asyncio.Event()
    return AsyncPodium([actor], FixedConductor(Workflow((Step("a", "do it"),)))), actor


async def until_asked(actor: Actor, times: int = 1) -> None:
    async with asyncio.timeout(20):
        while actor.in_flight < times:
            await asyncio.sleep(0)


async def until_let_go(actor: Actor) -> None:
    async with asyncio.timeout(20):
        while actor.in_flight:
            await asyncio.sleep(0)


async def test_a_cancelled_request_stops_its_run_and_is_not_answered() -> None:
    podium, actor = hanging()
    async with talking(podium) as talk:
        talk.say("tools/call", "x", name="ask", arguments={"question": "Why?"})
        await until_asked(actor)
        talk.say("notifications/cancelled", requestId="x")
        await until_let_go(actor)
        assert (await talk.ask("ping"))["result"] == {}


async def test_a_client_that_goes_away_stops_its_runs() -> None:
    podium, actor = hanging()
    async with talking(podium) as talk:
        talk.say("tools/call", 1, name="ask", arguments={"question": "Why?"})
        await until_asked(actor)
        talk.writer.close()
        await until_let_go(actor)


async def test_requests_are_answered_at_the_same_time_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MAX_AT_ONCE", 2)
    podium, actor = hanging()
    async with talking(podium) as talk:
        for number in (1, 2):
            talk.say("tools/call", number, name="ask", arguments={"question": "Why?"})
        await until_asked(actor, 2)
        talk.say("tools/call", 3, name="ask", arguments={"question": "Why?"})
        assert (await talk.hear())["error"]["code"] == server_module.SERVER_BUSY
        assert actor.gate is not None
        actor.gate.set()
        assert {(await talk.hear())["id"] for _ in range(2)} == {1, 2}
