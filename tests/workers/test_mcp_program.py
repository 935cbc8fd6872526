"""Servers that are programs, most of which misbehave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podium.config import McpSettings
from podium.core.request import ToolCall, ToolResult
from podium.workers.mcp import McpServers
from support.tool_servers import odd_server


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not end is stopped soon."""
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.3)
    monkeypatch.setattr("mcp.client.stdio.FORCE_KILL_TIMEOUT", 0.3)


@asynccontextmanager
async def opened(*servers: McpSettings) -> AsyncIterator[McpServers]:
    box = McpServers(servers, os.environ)
    try:
        await box.open()
        yield box
    finally:
        await box.close()


async def used(box: McpServers, name: str = "odd__echo", arguments: str = "{}") -> ToolResult:
    return await box.call(ToolCall("call_1", name, arguments))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_tool_gets_its_arguments_and_its_answer_is_the_result(tmp_path: Path) -> None:
    async with opened(odd_server(tmp_path)) as box:
        assert [tool.name for tool in box.tools] == ["odd__echo"]
        assert await used(box, arguments='{"a": "ü"}') == ToolResult("call_1", '{"a": "\\u00fc"}')


async def test_calls_at_the_same_time_get_their_own_answers(tmp_path: Path) -> None:
    oddity = """
waiting = []
def call(number, params):
    waiting.append((number, params["arguments"]["n"]))
    if len(waiting) == 3:
        for number, n in reversed(waiting):
            say(id=number, result={"content": [{"type": "text", "text": str(n)}]})
"""
    async with opened(odd_server(tmp_path, oddity)) as box:
        results = await asyncio.gather(*(used(box, arguments=f'{{"n": {n}}}') for n in range(3)))
    assert [result.text for result in results] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("oddity", "said"),
    [
        (
            "raise SystemExit('no licence found')",
            "odd has exited: no licence found",
        ),
        ("def initialize(number, params): pass", "odd was not ready within 0.5 s"),
        (
            "def initialize(n, p): say(id=n, result={**WELCOME, 'protocolVersion': '1999-01-01'})",
            "odd: Unsupported protocol version from the server: 1999-01-01",
        ),
        ("def initialize(n, p): say(id=n, result={})", "odd sent an invalid message"),
        (
            "def initialize(n, p): say(id=n, error={'code': -1, 'message': 'not\\ntoday'})",
            "odd returned an error: not today",
        ),
        ("def listed(n, p): say(id=n, result={'tools': 'many'})", "expected a list as tools"),
    ],
)
async def test_a_server_that_does_not_start_is_left_out_and_the_log_says_why(
    tmp_path: Path, oddity: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = odd_server(tmp_path, name="good")
    bad = odd_server(tmp_path, oddity, seconds=0.5 if "ready" in said else 20)
    async with opened(bad, good) as box:
        assert [tool.name for tool in box.tools] == ["good__echo"]
    assert said in caplog.text


async def test_a_missing_program_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(McpSettings(name="odd", command="no-such-program-here")) as box:
        assert box.tools == ()
    assert "odd cannot be started" in caplog.text
    assert "check its command" in caplog.text


async def test_a_server_that_starts_later_has_its_tools_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.workers.mcp.FIRST_WAIT", 0.01)
    flag = tmp_path / "flag"
    settings = odd_server(tmp_path, f"if not os.path.exists({str(flag)!r}): sys.exit(3)")
    async with opened(settings) as box:
        assert box.tools == ()
        flag.touch()
        async with asyncio.timeout(20):
            while not box.tools:
                await asyncio.sleep(0.01)
        assert (await used(box)).text == "{}"


@pytest.mark.parametrize(
    ("oddity", "said"),
    [
        ("def call(number, params): pass", "odd did not answer within 2 s"),
        ("def call(n, p): sys.exit('out of memory')", "odd has exited: out of memory"),
        ("def call(n, p): say(id=n, result={'content': [1]})", "odd sent an invalid result"),
        (
            "def call(n, p): say(id=n, error={'code': 1, 'message': 'no'})",
            "odd returned an error: no",
        ),
        ("def call(n, p): say(id=n, result='yes')", "odd did not answer within 2 s"),
    ],
)
async def test_tool_errors_become_results(tmp_path: Path, oddity: str, said: str) -> None:
    seconds = 2.0 if "within" in said else 20.0
    async with opened(odd_server(tmp_path, oddity, seconds=seconds)) as box:
        result = await used(box)
    assert result.is_error
    assert said in result.text


async def test_lines_that_are_no_messages_are_passed_over(tmp_path: Path) -> None:
    oddity = """
print("Welcome to odd 1.0!", flush=True)
def call(number, params):
    sys.stdout.buffer.write(b"\\xff\\xfe\\n[1, 2]\\n{\\n")
    say(id=999, result={})
    say(id="1", result={})
    say(method="notifications/message", params={})
    say(id=number, result={"content": [{"type": "text", "text": "yes"}]})
"""
    async with opened(odd_server(tmp_path, oddity)) as box:
        assert (await used(box)).text == "yes"


async def test_a_servers_own_requests_are_declined_but_for_a_ping(tmp_path: Path) -> None:
    oddity = """
heard, asked = [], []
def call(number, params):
    asked.append(number)
    say(id="p", method="ping")
    say(id=7, method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
def other(message):
    if "id" in message and "method" not in message:
        heard.append(message)
    if len(heard) == 2:
        say(id=asked[0], result={"content": [{"type": "text", "text": json.dumps(heard)}]})
"""
    async with opened(odd_server(tmp_path, oddity)) as box:
        said = (await used(box)).text
    assert '"id": "p", "result": {}' in said
    assert "Sampling not supported" in said


async def test_a_program_that_has_ended_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    oddity = "def call(n, p): sys.exit() if p['arguments'] else say(id=n, result={})"
    async with opened(odd_server(tmp_path, oddity)) as box:
        assert (await used(box, arguments='{"end": 1}')).text == "odd has exited"
        assert await used(box) == ToolResult("call_1", "")


async def test_a_cancelled_caller_cancels_the_request(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    oddity = f"""
def call(number, params):
    open({str(notes)!r}, "a").write(f"call {{number}}\\n")
def other(message):
    if message["method"] == "notifications/cancelled":
        open({str(notes)!r}, "a").write(f"cancel {{message['params']['requestId']}}\\n")
"""
    async with opened(odd_server(tmp_path, oddity)) as box:
        task = asyncio.create_task(used(box))
        async with asyncio.timeout(20):
            while not notes.exists():
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    call, cancel = notes.read_text().split("\n")[:2]
    assert call.removeprefix("call ") == cancel.removeprefix("cancel ")


async def test_closing_kills_a_program_that_does_not_exit_and_what_it_has_started(
    tmp_path: Path,
) -> None:
    oddity = """
import signal; signal.signal(15, signal.SIG_IGN)
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
def call(number, params):
    say(id=number, result={"content": [{"type": "text", "text": f"{os.getpid()} {child}"}]})
def end():
    time.sleep(600)
"""
    async with opened(odd_server(tmp_path, oddity)) as box:
        processes = [int(process) for process in (await used(box)).text.split()]
        assert len(processes) == 2
        assert all(map(is_alive, processes))
    async with asyncio.timeout(20):
        while any(map(is_alive, processes)):
            await asyncio.sleep(0.01)


async def test_a_program_gets_only_the_variables_that_are_named_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendors")
    monkeypatch.setenv("FILES_TOKEN", "t-1")
    oddity = """
def call(number, params):
    text = json.dumps(dict(os.environ))
    say(id=number, result={"content": [{"type": "text", "text": text}]})
"""
    async with opened(odd_server(tmp_path, oddity, env=("FILES_TOKEN",))) as box:
        said = (await used(box)).text
    assert '"FILES_TOKEN": "t-1"' in said
    assert "PATH" in said
    assert "sk-vendors" not in said


async def test_a_variable_that_is_not_set_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(odd_server(tmp_path, env=("NO_SUCH_TOKEN",))) as box:
        assert box.tools == ()
    assert "odd needs NO_SUCH_TOKEN; set it in the environment" in caplog.text
