"""Workers made of functions, and clients that are never closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import podium
from podium import FunctionWorker, Podium, Reply, Run, Step, Workflow


def run(worker: FunctionWorker) -> Run:
    with Podium([worker]) as opened:
        return opened.run(Workflow((Step(worker.profile.name, "say hi"),)), question="hi?")


def test_a_function_is_a_worker() -> None:
    threads: list[str] = []

    @podium.worker
    def shout(prompt: str) -> str:
        """Repeats you, loudly.

        More.
        """
        threads.append(threading.current_thread().name)
        return prompt.splitlines()[-1].upper()

    assert (shout.profile.name, shout.profile.description) == ("shout", "Repeats you, loudly.")
    ended = run(shout)
    assert (ended.status, ended.cost_usd) == ("answered", 0.0)
    assert ended.answer is not None
    assert ended.answer.isupper()
    assert threads != ["podium"], "it would block the event loop"
    assert shout("a") == "A"


def test_a_coroutine_function_with_a_name_of_its_own_is_a_worker() -> None:
    @podium.worker(name="slow", description="waits")
    async def wait(prompt: str) -> Reply:
        await asyncio.sleep(0)
        return Reply(f"waited for {len(prompt) > 0}")

    assert (wait.profile.name, wait.profile.description) == ("slow", "waits")
    assert run(wait).answer == "waited for True"


def test_a_function_that_returns_something_else_fails_its_step_with_advice() -> None:
    @podium.worker
    def count(prompt: str) -> str:
        return len(prompt)  # type: ignore[return-value]

    assert "returned int; return a str or a Reply" in (run(count).error or "")


PROGRAM = """
import asyncio, http.server, json, threading, sys
import podium

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        choice = {"index": 0, "finish_reason": "stop",
                  "message": {"role": "assistant", "content": "hi"}}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
with open("pool.toml", "w") as file:
    file.write(f'[[worker]]\\nname="a"\\nprovider="openai-compatible"\\nbase_url="{url}"\\n')

async def main():
    print((await podium.AsyncPodium(pool="pool.toml").ask("hi?", tier="mini")).answer)

if sys.argv[1] == "async":
    asyncio.run(main())
else:
    print(podium.Podium(pool="pool.toml").ask("hi?", tier="mini").answer)
"""


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_podium_that_is_never_closed_ends_quietly(kind: str, tmp_path: Path) -> None:
    program = PROGRAM.replace("\\\\", "\\")
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", program, kind],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PODIUM_HOME": str(tmp_path / "home"), "PATH": ""},
        timeout=60,
    )
    assert ended.stdout == "hi\n", ended.stderr
    assert "Unclosed" not in ended.stderr
