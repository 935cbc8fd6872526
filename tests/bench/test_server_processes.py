from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.processes import cpu_seconds, free_port, server_process
from podium.core.errors import ConfigError

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.send_header("content-length", "0")
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_the_cpu_time_of_a_process_is_what_the_system_gave_it() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert time.process_time() <= cpu_seconds(os.getpid()) <= time.process_time()


def test_the_cpu_time_of_an_unknown_process_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no clock for the CPU time of process 4194305"):
        cpu_seconds(2**22 + 1)


async def test_a_server_is_there_once_it_says_that_it_is_ready_and_gone_afterwards(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with server_process(
        "the server",
        (sys.executable, "-c", SERVER, str(port)),
        port=port,
        ready="/ready",
        directory=tmp_path,
        environment={},
    ) as started:
        assert started.port == port
        assert started.seconds > 0
        assert started.cpu_seconds > 0
    assert started.process.returncode is not None


async def test_a_server_that_ends_before_it_is_ready_is_an_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="the server did not become ready: the disk is on fire"):
        async with server_process(
            "the server",
            (sys.executable, "-c", "print('starting'); raise SystemExit('the disk is on fire')"),
            port=free_port(),
            ready="/ready",
            directory=tmp_path,
            environment={},
        ):
            raise AssertionError("it was never ready")


async def test_a_server_may_write_bytecode_even_if_this_process_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    says = "import sys; raise SystemExit(f'dont_write_bytecode={sys.dont_write_bytecode}')"
    with pytest.raises(ConfigError, match="dont_write_bytecode=False"):
        async with server_process(
            "the server",
            (sys.executable, "-c", says),
            port=free_port(),
            ready="/ready",
            directory=tmp_path,
            environment={},
        ):
            raise AssertionError("it was never ready")
