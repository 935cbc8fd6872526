"""What real coding agents send, replayed: `agents/` has bodies of Codex 0.166, Claude Code 2.1.197
and opencode 1.18.33 against a server of ours, with long texts cut short and most tools left out.

Each agent is asked what a file says. The worker calls the agent's tool for it, the agent runs the
tool and sends what it gave, and the worker answers with that. `RUN` in a body stands for the run
that waits, as the agents repeat it in ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, ToolCall, Usage
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.conformance import results_of
from support.serving import Served, application, serving

AGENTS: Final = Path(__file__).parent / "agents"
DIALECTS: Final = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
SAID: Final = "the file says hello"


@dataclass(frozen=True, slots=True)
class Agent:
    """How an agent calls the tool: the name that workers know, and what it is called with."""

    name: str
    tool: str
    arguments: str


CODEX: Final = Agent("codex", "exec_command", '{"cmd":"cat hello.txt"}')
CODEX_KNOWING: Final = Agent("codex_known_model", "functions__exec", '{"input":"text(1)"}')
CLAUDE_CODE: Final = Agent("claude_code", "Bash", '{"command":"cat hello.txt"}')
OPENCODE: Final = Agent("opencode", "bash", '{"command":"cat hello.txt"}')


def sent(name: str) -> list[dict[str, Any]]:
    """What an agent sent, in order."""
    exchanges: list[dict[str, Any]] = json.loads((AGENTS / f"{name}.json").read_text("utf-8"))
    return exchanges


def worker_for(agent: Agent, name: str = "solver") -> ScriptedWorker:
    """Calls the agent's tool, where it has it, and then says what that gave."""

    def script(request: Request) -> Reply | str:
        if results := results_of(request):
            return f"It says: {results[-1]}"
        if not request.tools:
            return "A title"
        call = ToolCall("call_1", agent.tool, agent.arguments)
        return Reply("Let me look.", Usage(5, 7, 0, 0, 0), "tool", (call,))

    profile = WorkerProfile(name=name, capabilities=frozenset({"tools", "sampling"}))
    return ScriptedWorker(profile, script)


@asynccontextmanager
async def served_by(worker: ScriptedWorker, directory: Path) -> AsyncIterator[Served]:
    store = await open_store(directory / "runs.db")
    async with serving(application([worker], dialects=DIALECTS, store=store)) as served:
        yield served


async def replayed(served: Served, exchanges: list[dict[str, Any]]) -> list[str]:
    """The streams that the agent would get, each as it came."""
    streams: list[str] = []
    for exchange in exchanges:
        waiting = re.search(r"call_([0-9a-f]{16})_call_1", "".join(streams))
        body = json.dumps(exchange["body"]).replace("RUN", waiting[1] if waiting else "RUN")
        headers = {**exchange["headers"], "content-type": "application/json"}
        response = await served.client.post(exchange["path"], content=body, headers=headers)
        assert response.status_code == 200, response.text
        assert '"error":{' not in response.text
        streams.append(response.text)
    return streams


def events(stream: str) -> list[dict[str, Any]]:
    """The events of a stream that are JSON."""
    lines = (line.removeprefix("data: ") for line in stream.splitlines() if "data: {" in line)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "agent", [CODEX, CODEX_KNOWING, CLAUDE_CODE, OPENCODE], ids=lambda agent: agent.name
)
async def test_an_agents_tool_is_called_and_its_result_is_the_answer(
    agent: Agent, tmp_path: Path
) -> None:
    name = "gpt-6.1-terra" if agent is CODEX_KNOWING else "solver"
    worker = worker_for(agent, name)
    async with served_by(worker, tmp_path) as served:
        streams = await replayed(served, sent(agent.name))
    assert "Let me look." in spoken(streams[-2])
    assert SAID in spoken(streams[-1])
    assert SAID in results_of(worker.requests[-1])[-1]
    reported = [
        message.text for message in worker.requests[-1].messages if message.role == "system"
    ]
    assert any(words.startswith("You are ") for words in reported), "the agent's own instructions"


def spoken(stream: str) -> str:
    """The words of an answer, in whichever dialect."""
    pieces: list[str] = []
    for event in events(stream):
        match event:
            case {"type": "response.output_text.delta", "delta": str() as piece}:
                pieces.append(piece)
            case {"delta": {"type": "text_delta", "text": str() as piece}}:
                pieces.append(piece)
            case {"choices": [{"delta": {"content": str() as piece}}]}:
                pieces.append(piece)
    return "".join(pieces)


async def test_codex_is_called_back_by_the_names_that_it_gave(tmp_path: Path) -> None:
    worker = worker_for(CODEX_KNOWING, "gpt-6.1-terra")
    async with served_by(worker, tmp_path) as served:
        first, _ = await replayed(served, sent(CODEX_KNOWING.name))
    done = [event["item"] for event in events(first) if event["type"].endswith("item.done")]
    call = done[-1]
    assert (call["type"], call["namespace"], call["name"], call["input"]) == (
        *("custom_tool_call", "functions", "exec", "text(1)"),
    )


async def test_claude_code_gets_two_messages_with_ids_of_their_own(tmp_path: Path) -> None:
    async with served_by(worker_for(CLAUDE_CODE), tmp_path) as served:
        streams = await replayed(served, sent(CLAUDE_CODE.name))
    first, second = (events(stream)[0]["message"]["id"] for stream in streams)
    assert first != second


async def test_claude_codes_note_to_its_billing_reaches_no_worker(tmp_path: Path) -> None:
    worker = worker_for(CLAUDE_CODE)
    async with served_by(worker, tmp_path) as served:
        await replayed(served, sent(CLAUDE_CODE.name))
    for request in worker.requests:
        assert "billing" not in request.text


async def test_a_pdf_that_claude_code_read_ends_nothing(tmp_path: Path) -> None:
    worker = worker_for(Agent("", "Read", '{"file_path":"/home/me/project/doc.pdf"}'))
    async with served_by(worker, tmp_path) as served:
        *_, last = await replayed(served, sent("claude_code_pdf"))
    assert "[a PDF that you cannot read]" in spoken(last)


async def test_claude_codes_tokens_are_counted(tmp_path: Path) -> None:
    (count,) = sent("claude_code_count_tokens")
    async with served_by(worker_for(CLAUDE_CODE), tmp_path) as served:
        response = await served.client.post(
            count["path"], json=count["body"], headers=count["headers"]
        )
    assert response.status_code == 200
    assert response.json()["input_tokens"] > 0
