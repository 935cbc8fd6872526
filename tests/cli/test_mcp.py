"""`podium mcp`, spoken to by the official client."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from podium.cli.mcp_server import create_server
from podium.client.client import AsyncPodium
from podium.client.run_options import RunOptions
from podium.conductors import FixedConductor
from podium.core.budget import Budget
from podium.core.request import Price
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options
from podium.store import RunStore
from podium.workers import ScriptedWorker
from support.harness import FakeWorker

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
    """A client in this process, whose results are JSON."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def use(
        self, tool: str, /, meta: dict[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any]:
        result = await self._client.call_tool(
            tool,
            arguments,
            meta=meta,  # type: ignore[arg-type]
        )
        return result.model_dump(by_alias=True, exclude_unset=True)


@asynccontextmanager
async def talking(podium: AsyncPodium, usual: RunOptions | None = None) -> AsyncIterator[Talk]:
    async with Client(create_server(podium, usual), mode="legacy") as client:
        yield Talk(client)
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
        "Step 1: calling solver.",
        "Step 1: solver is done.",
    ]


def test_a_terminal_as_input_is_refused_in_one_line(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(POOL, "utf-8")
    controller, terminal = pty.openpty()
    ended = subprocess.run(
        [sys.executable, "-m", "podium", "mcp", "--pool", str(pool), "--no-store"],
        stdin=terminal,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(controller)
    os.close(terminal)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "standard input is a terminal; podium mcp is started by an MCP client" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_an_answer_has_the_run_behind_it() -> None:
    async with talking(scripted()) as talk:
        result = await talk.use("ask", question="Why?")
    assert result["content"] == [{"type": "text", "text": "B"}]
    run = result["structuredContent"]
    assert (run["status"], run["answer"], run["workers"]) == ("answered", "B", ["a", "b"])
    assert run["run_id"].startswith("run_")
    assert run["total_tokens"] > 0
    assert not result["isError"]


async def test_a_plan_is_reported_in_words_and_as_json_and_nothing_is_executed() -> None:
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
            assert f"the cap on usd is ${cap:g}" in run["error"]


async def test_a_call_lowers_what_the_settings_say_and_leaves_the_rest_of_it() -> None:
    options = Options(budget=Budget(usd=60.0, calls=1, allow_unpriced=True))
    async with talking(scripted(options=options)) as talk:
        result = await talk.use("ask", question="Why?", budget_usd=1000.0)
    assert "the cap on calls is 1" in result["structuredContent"]["error"]


async def test_a_tool_call_cannot_raise_steps_and_rounds() -> None:
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
        result = await talk.use(
            "ask", {"podium/exclude": ["b", "nobody of this pool", 7]}, question="Why?"
        )
    assert result["isError"], "the plan needs b"
    assert "'b'" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "question\n  Field required"),
        ({"question": 7}, "question\n  Input should be a valid string"),
        ({"question": ""}, "question\n  String should have at least 1 character"),
        ({"question": "q", "tier": "best"}, "tier\n  Input should be"),
        ({"question": "q", "max_steps": 0}, "max_steps\n  Input should be"),
        ({"question": "q", "budget": 0.01}, "budget\n  Extra inputs are not permitted"),
        ({"question": "  "}, "the question is empty; ask something"),
    ],
)
async def test_wrong_arguments_are_an_error_that_the_model_can_read(
    arguments: dict[str, Any], said: str
) -> None:
    async with talking(scripted()) as talk:
        result = await talk.use("ask", **arguments)
    assert result["isError"]
    assert said in result["content"][0]["text"]


async def test_more_calls_than_the_limit_are_refused() -> None:
    server = create_server(scripted(), max_calls=0)
    async with Client(server, mode="legacy") as client:
        result = await client.call_tool("ask", {"question": "q"})
    assert result.is_error
    assert "too many calls are running; retry later" in str(result.content)


async def test_a_run_that_fails_is_an_error_with_the_reason() -> None:
    failing = FakeWorker("a", lambda _: RuntimeError("broken"))
    podium = AsyncPodium([failing], FixedConductor(Workflow((Step("a", "do it"),))))
    async with talking(podium) as talk:
        result = await talk.use("ask", question="Why?")
    assert result["isError"]
    assert "broken" in result["content"][0]["text"]
    assert result["structuredContent"]["answer"] is None


def hanging() -> tuple[AsyncPodium, FakeWorker]:
    fake = FakeWorker("a")
    fake.gate = asyncio.Event()
    return AsyncPodium([fake], FixedConductor(Workflow((Step("a", "do it"),)))), fake


async def until_asked(fake: FakeWorker, times: int = 1) -> None:
    async with asyncio.timeout(20):
        while fake.in_flight < times:
            await asyncio.sleep(0)


async def until_let_go(fake: FakeWorker) -> None:
    async with asyncio.timeout(20):
        while fake.in_flight:
            await asyncio.sleep(0)


async def test_a_cancelled_request_stops_its_run() -> None:
    podium, fake = hanging()
    async with talking(podium) as talk:
        call = asyncio.create_task(talk.use("ask", question="Why?"))
        await until_asked(fake)
        call.cancel()
        await until_let_go(fake)
        assert call.cancelled() or await asyncio.gather(call, return_exceptions=True)


async def test_a_client_that_goes_away_stops_its_runs() -> None:
    podium, fake = hanging()
    async with talking(podium) as talk:
        call = asyncio.create_task(talk.use("ask", question="Why?"))
        await until_asked(fake)
    await until_let_go(fake)
    await asyncio.gather(call, return_exceptions=True)
