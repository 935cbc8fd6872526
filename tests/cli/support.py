"""What the tests of the command line share: how a command ended, and a vendor to reach."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SCRIPTED_POOL = REPOSITORY / "src" / "podium" / "config" / "pools" / "scripted.toml"
RULES = '[conductor]\nkind = "rules"\n'
"""The head of a pool file whose conductor needs no model."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on standard error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("podium: ")
        return lines[0].removeprefix("podium: ")


Podium = Callable[..., Ended]
MakePool = Callable[..., Path]


class Vendor:
    """A server that speaks Chat Completions, as a whole or streamed.

    A model replies with its own name until `replies` says otherwise. One that is in `hangs`
    answers only when `released` is set. With another `status` than 200 nothing is replied.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replies: dict[str, str] = {}
        self.hangs: set[str] = set()
        self.status = 200
        self.is_hanging = threading.Event()
        self.released = threading.Event()
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                vendor.answer(self, body)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        model = body["model"]
        self.asked.append(model)
        if model in self.hangs:
            self.is_hanging.set()
            self.released.wait(timeout=60)
        if self.status != 200:
            handler.send_response(self.status)
            handler.send_header("Content-Length", "4")
            handler.end_headers()
            handler.wfile.write(b"busy")
            return
        text = self.replies.get(model, f"reply of {model}")
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if body.get("stream"):
            pieces: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
                for word in text.splitlines(keepends=True)
            ]
            pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            pieces.append({"choices": [], "usage": usage})
            data = (
                "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
            )
            kind = "text/event-stream"
        else:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            data, kind = json.dumps({"choices": [choice], "usage": usage}), "application/json"
        try:
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.send_header("Content-Length", str(len(data.encode())))
            handler.end_headers()
            handler.wfile.write(data.encode())
        except BrokenPipeError:
            """The client was interrupted."""

    def pool(self, *names: str, directory: Path) -> Path:
        """A pool file with a worker for each name."""
        workers = (
            f'[[worker]]\nname = "{name}"\nprovider = "openai-compatible"\n'
            f'base_url = "{self.url}"\nprice = {{ input = 1.0, output = 2.0 }}\n'
            for name in names
        )
        path = directory / "vendor.toml"
        path.write_text('[conductor]\nkind = "rules"\n' + "\n".join(workers), "utf-8")
        return path


def perform_by(process: str, home: Path) -> None:
    """Have every run be performed by that process."""
    with sqlite3.connect(home / "podium.db") as database:
        database.execute(
            "UPDATE runs SET status = 'running', process = ?, document = "
            "json_set(document, '$.status', 'running', '$.process', ?)",
            [process, process],
        )
    database.close()
