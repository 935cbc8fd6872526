"""The toolbox over several servers, and runs that use it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor
from podium.config import (
    ConductorSettings,
    McpSettings,
    Settings,
    StoreSettings,
    WorkerSettings,
)
from podium.core.budget import Budget
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, ToolCall, ToolResult, Usage
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options, Runner
from podium.workers import ScriptedWorker, mcp
from podium.workers.mcp import LONGEST_NAME, McpServers, tool_name
from support import mcp_peer
from support.harness import FakeWorker
from support.tool_servers import odd_server

ALONE = FixedConductor(Workflow((Step("a", "do it"),)))


@asynccontextmanager
async def opened(*servers: McpSettings) -> AsyncIterator[McpServers]:
    box = McpServers(servers, os.environ)
    try:
        await box.open()
        yield box
    finally:
        await box.close()


def answering(content: Any, **more: Any) -> str:
    result = json.dumps({"content": content, **more})
    return f"def call(n, p): say(id=n, result=json.loads({result!r}))"


def with_tools(*tools: Any) -> str:
    return f"def listed(n, p): say(id=n, result={{'tools': json.loads({json.dumps(tools)!r})}})"


async def test_tools_of_the_official_package_are_used_as_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEERS_OWN", "yes")
    peer = McpSettings(
        name="peer",
        command=sys.executable,
        args=(mcp_peer.__file__,),
        env=("PEERS_OWN",),
        seconds=60,
    )
    async with opened(peer) as box:
        add, where, _, _ = box.tools
        assert (add.name, add.description) == ("peer__add", "Adds two whole numbers.")
        assert add.parameters["required"] == ["a", "b"]
        sums = [box.call(ToolCall(f"c{n}", add.name, f'{{"a": {n}, "b": 1}}')) for n in range(3)]
        assert await asyncio.gather(*sums) == [ToolResult(f"c{n}", f"{n + 1}") for n in range(3)]
        found = await box.call(ToolCall("c", where.name, '{"name": "PEERS_OWN"}'))
        assert found == ToolResult("c", "yes")
        failed = await box.call(ToolCall("c", "peer__fail", "{}"))
        assert failed.is_error
        hanging = asyncio.create_task(box.call(ToolCall("c", "peer__hang", "{}")))
        await asyncio.sleep(0)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        assert (await box.call(ToolCall("c", add.name, '{"a": 1, "b": 1}'))).text == "2"


def test_names_are_of_letters_that_every_vendor_takes_and_differ() -> None:
    assert tool_name("files", "read_file") == "files__read_file"
    names = [tool_name("s", name) for name in ("a.b", "a/b", "a_b", "x" * 80, "x" * 81)]
    assert len(set(names)) == 5
    assert all(len(name) <= LONGEST_NAME for name in names)
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in names)


async def test_only_the_tools_that_are_allowed_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = with_tools(*({"name": n, "inputSchema": {"type": "object"}} for n in "abc"))
    async with opened(odd_server(tmp_path, listed, tools=("b", "z"))) as box:
        assert [tool.name for tool in box.tools] == ["odd__b"]
        refused = await box.call(ToolCall("c", "odd__a", "{}"))
    assert refused == ToolResult("c", "tool not found: 'odd__a'", is_error=True)
    assert "odd has no tool 'z'; it has a, b, c" in caplog.text


async def test_servers_with_the_same_tools_are_distinguished(tmp_path: Path) -> None:
    one = odd_server(tmp_path, answering([{"type": "text", "text": "1"}]), name="one")
    two = odd_server(tmp_path, answering([{"type": "text", "text": "2"}]), name="two")
    async with opened(one, two) as box:
        assert [tool.name for tool in box.tools] == ["one__echo", "two__echo"]
        assert (await box.call(ToolCall("c", "two__echo", ""))).text == "2"


@pytest.mark.parametrize(
    "bad",
    [
        {"inputSchema": {"type": "object"}},
        {"name": "bad", "inputSchema": {"type": "string"}},
        {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
        {"name": "bad", "inputSchema": {"type": "object", "$ref": "https://elsewhere/s"}},
        {"name": "bad", "inputSchema": 7},
        {"name": 7},
    ],
)
async def test_a_tool_that_no_vendor_would_take_is_left_out(
    tmp_path: Path, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(odd_server(tmp_path, with_tools(bad, {"name": "good"}))) as box:
        assert [(tool.name, tool.parameters) for tool in box.tools] == [
            ("odd__good", {"type": "object"})
        ]
    assert "odd: a tool is left out" in caplog.text


async def test_tools_come_in_pages_and_end_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mcp, "MAX_TOOLS", 5)
    endless = """
def listed(number, params):
    page = int(params.get("cursor", 0))
    tools = [tool(f"t{page}a"), tool(f"t{page}b")]
    say(id=number, result={"tools": tools, "nextCursor": str(page + 1)})
"""
    async with opened(odd_server(tmp_path, endless)) as box:
        assert [tool.name for tool in box.tools] == [
            f"odd__t{page}" for page in ("0a", "0b", "1a", "1b", "2a")
        ]
    assert "odd has more than 5 tools" in caplog.text


@pytest.mark.parametrize(
    ("content", "more", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], {}, "a\nb"),
        ([{"type": "image", "mimeType": "image/png"}], {}, "[image/png: not text, left out]"),
        ([{"type": "resource", "resource": {"uri": "f:/a", "text": "A"}}], {}, "A"),
        ([{"type": "resource", "resource": {"uri": "f:/a", "blob": "AA"}}], {}, "[f:/a: not text,"),
        ([{"type": "resource_link", "uri": "f:/a", "name": "a"}], {}, "[a: f:/a]"),
        ([{"type": "hologram"}], {}, "[hologram: not text, left out]"),
        ([], {"structuredContent": {"é": 1}}, '{"é": 1}'),
        ([], {}, ""),
    ],
)
async def test_a_result_is_text_whatever_it_holds(
    tmp_path: Path, content: Any, more: Any, text: str
) -> None:
    async with opened(odd_server(tmp_path, answering(content, **more))) as box:
        result = await box.call(ToolCall("c", "odd__echo", "{}"))
    assert result.text.startswith(text)
    assert bool(result.text) == bool(text)
    assert not result.is_error


async def test_a_long_result_is_cut_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "LONGEST_RESULT", 10)
    content = [{"type": "text", "text": "x" * 25}]
    async with opened(odd_server(tmp_path, answering(content, isError=True))) as box:
        result = await box.call(ToolCall("c", "odd__echo", "{}"))
    assert result.text == "x" * 10 + "\n[15 more characters are left out]"
    assert result.is_error


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", "[" * 100_000])
async def test_arguments_that_are_no_object_do_not_reach_the_server(
    tmp_path: Path, arguments: str
) -> None:
    async with opened(odd_server(tmp_path)) as box:
        result = await box.call(ToolCall("c", "odd__echo", arguments))
    assert result.is_error
    assert result.text.startswith("the arguments are not")


def calling(name: str) -> Reply:
    return Reply("", Usage(1, 1, 0, 0, 0), "tool", (ToolCall("1", name, '{"q": 1}'),))


async def test_a_worker_uses_a_tool_inside_its_step_and_the_run_keeps_it(tmp_path: Path) -> None:
    left: list[Reply | str] = [calling("odd__echo"), "it is 1"]
    fake = FakeWorker("a", lambda _: left.pop(0), can=("tools",))
    async with opened(odd_server(tmp_path)) as box:
        run = await Runner(ALONE, [fake], toolbox=box).run("what is q?")
    assert (run.status, run.answer) == ("answered", "it is 1")
    assert [tool.name for tool in fake.requests[0].tools] == ["odd__echo"]
    (result,) = run.steps[0].turns[1].parts
    assert result == ToolResult("1", '{"q": 1}')
    assert run.spent.calls == 3


async def test_a_use_that_would_pass_the_budget_is_not_carried_out(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    oddity = f"def call(n, p): open({str(notes)!r}, 'w').close()"
    fake = FakeWorker("a", lambda _: calling("odd__echo"), can=("tools",))
    async with opened(odd_server(tmp_path, oddity)) as box:
        run = await Runner(ALONE, [fake], toolbox=box).run(
            "what?", options=Options(budget=Budget(calls=1))
        )
    assert run.status == "exhausted"
    assert not notes.exists()


async def test_the_seconds_of_a_run_end_a_use_of_a_tool(tmp_path: Path) -> None:
    fake = FakeWorker("a", lambda _: calling("odd__echo"), can=("tools",))
    async with opened(odd_server(tmp_path, "def call(n, p): pass")) as box:
        run = await Runner(ALONE, [fake], toolbox=box).run(
            "what?", options=Options(budget=Budget(seconds=0.3))
        )
    assert run.status == "exhausted"


async def test_a_podium_offers_the_tools_of_the_servers_in_its_settings(tmp_path: Path) -> None:
    server = odd_server(tmp_path)
    profile = WorkerProfile(name="a", provider="scripted", capabilities=frozenset({"tools"}))
    worker = WorkerSettings(profile=profile, options={"reply": "yes"})
    settings = Settings(
        source="test",
        workers=(worker,),
        conductor=ConductorSettings(kind="router"),
        mcp=(server,),
        store=StoreSettings(path=tmp_path / "runs.db"),
    )
    async with AsyncPodium(settings=settings) as podium:
        assert (await podium.ask("why?")).answer == "yes"
        (scripted,) = (await podium.open()).assembly.workers
        assert isinstance(scripted, ScriptedWorker)
        (tool,) = scripted.requests[0].tools
    assert tool.name == "odd__echo"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_nothing_is_left_to_be_tried_again_once_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp, "FIRST_WAIT", 60.0)
    async with opened(McpSettings(name="odd", command="no-such-program-here")):
        pass
    assert asyncio.all_tasks() == {asyncio.current_task()}


TELLS = """
def call(number, params):
    told = json.dumps(params.get("_meta"))
    say(id=number, result={"content": [{"type": "text", "text": told}]})
"""


async def test_a_run_that_excludes_a_server_does_not_get_its_tools(tmp_path: Path) -> None:
    servers = (odd_server(tmp_path, name="one"), odd_server(tmp_path, name="two"))
    async with opened(*servers) as box:
        assert box.servers == ("one", "two")
        left = box.exclude({"mcp:one", "deepseek"})
        assert [tool.name for tool in left.tools] == ["two__echo"]
        refused = await left.call(ToolCall("c", "one__echo", "{}"))
        assert (refused.text, refused.is_error) == ("tool not found: 'one__echo'", True)


async def test_excluded_workers_are_sent_to_the_mcp_server(tmp_path: Path) -> None:
    call = ToolCall("c", "odd__echo", "{}")
    async with opened(odd_server(tmp_path, TELLS)) as box:
        assert (await box.call(call)).text == "null"
        results = await box.exclude({"openai", "deepseek", "mcp:other"}).call(call)
    assert json.loads(results.text) == {"podium/exclude": ["deepseek", "openai"]}


async def test_a_worker_is_offered_no_tool_of_a_server_that_the_run_excludes(
    tmp_path: Path,
) -> None:
    fake = FakeWorker("a", can=("tools",))
    async with (
        opened(odd_server(tmp_path)) as box,
        AsyncPodium([fake], ALONE, toolbox=box) as podium,
    ):
        assert "mcp:odd" in (await podium.open()).excludable_names
        await podium.ask("Why?")
        await podium.ask("Why?", exclude=frozenset({"mcp:odd"}))
    assert [len(request.tools) for request in fake.requests] == [1, 0]


async def test_without_the_sdk_the_log_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "podium.workers.mcp_connection", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.client.session", None)
    async with opened(odd_server(tmp_path)) as box:
        assert box.tools == ()
    assert "odd needs the extra mcp" in caplog.text
