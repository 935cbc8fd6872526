"""`podium serve` as processes that can be killed, stopped and started again, over an upstream that
counts which step asks it how often."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

PATIENCE: Final = 90.0
"""Seconds within which anything that a test waits for has happened, on however busy a machine."""

CONFIGURATION: Final = """
[conductor]
kind = "router"

[store]
{store}
lease_seconds = 1

[[worker]]
name = "slow"
provider = "openai-compatible"
base_url = "{address}/v1"
capabilities = ["tools"]
"""

_PART: Final = re.compile(r"part \d+ of \w+")


class Upstream:
    """A model that takes its time. It calls a tool when it is offered one, once; `asked` counts
    the parts of questions that it was asked for. Those like `held` wait for `released`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: Counter[str] = Counter()
        self.held = ""
        self.released = threading.Event()
        self.address = ""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion."""
        parts = _PART.findall(str(body["messages"][-1]["content"]))  # the last is its own
        if parts:
            self.asked[parts[-1]] += 1
        time.sleep(self.seconds)
        if parts and self.held and parts[-1].startswith(self.held):
            self.released.wait(PATIENCE)
        if body.get("tools") and body["messages"][-1]["role"] != "tool":
            function = {"name": "clock", "arguments": "{}"}
            calls = [{"id": "call_1", "type": "function", "function": function}]
            return _completion({"content": None, "tool_calls": calls}, "tool_calls")
        return _completion({"content": f"done: {parts[-1] if parts else 'so'}"}, "stop")


def _completion(message: dict[str, Any], finish: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "slow",
        "choices": [choice],
        "usage": usage,
    }


@contextmanager
def upstream(seconds: float) -> Iterator[Upstream]:
    """An upstream that listens until the block is left."""
    counting = Upstream(seconds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = json.dumps(counting.answer(body)).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)
            except OSError:
                self.close_connection = True  # the client was killed

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients are killed here."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    counting.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield counting
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def workflow(question: str, parts: int) -> dict[str, Any]:
    """The parts of that question, one after the other, as a client sends a workflow."""
    steps = [
        {"worker": "slow", "subtask": f"part {n} of {question}", "access": "all" if n else []}
        for n in range(parts)
    ]
    return {"steps": steps}


def body_of(question: str, parts: int) -> dict[str, Any]:
    """A request for that question."""
    return {
        "model": "podium-ultra",
        "messages": [{"role": "user", "content": f"the question {question}"}],
        "podium": {"workflow": workflow(question, parts)},
    }


@dataclass
class Replica:
    """A server process on a port of its own. It can be started again after it was killed."""

    directory: Path
    name: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    logs: list[Path] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it listens, whenever it is there."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has said since it was first started."""
        return "".join(path.read_text() for path in self.logs)

    def start(self) -> None:
        """Start it; it may not listen yet."""
        self.port = self.port or _free_port()
        path = self.directory / f"{self.name}-{len(self.logs)}.log"
        self.logs.append(path)
        with path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "podium", "serve", "--port", str(self.port)),
                    *("--config", "podium.toml", "--log", "json"),
                ],
                cwd=self.directory,
                stderr=log,
                env={**os.environ, "PODIUM_CONFIG": ""},
            )

    def await_start(self) -> None:
        """Wait until it listens."""
        until = time.monotonic() + PATIENCE
        while "startup complete" not in self.logs[-1].read_text():
            assert self.process is not None
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; after one that kills, wait until it is dead."""
        assert self.process is not None, "it was started"
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(PATIENCE)


@contextmanager
def replicas(directory: Path, store: str, address: str, count: int) -> Iterator[list[Replica]]:
    """So many servers over one store, ready to be asked; none is left when the block is."""
    text = CONFIGURATION.format(store=store, address=address)
    (directory / "podium.toml").write_text(text, "utf-8")
    servers = [Replica(directory, f"replica-{number}") for number in range(count)]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_start()
        yield servers
    finally:
        for server in servers:
            if server.process is not None and server.process.poll() is None:
                server.send(signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
